//! Set-up and tear-down of a run.
//!
//! All changed system state belongs to threads of the run and ends with them, except for the
//! cgroups of [`programs`](crate::programs), which belong to the run and are removed with it. Only
//! the handler of SIGURG belongs to the process; it is restored.
//!
//! Set-up: programs, frozen; workers, waiting; engine and mechanism; dispatchers, watchdog and
//! monitors; the start time, a moment later. Tear-down: dispatchers leave at the end, demote and
//! release the workers, and all threads are joined. A panic in a thread cancels the run and is
//! passed on when all have ended. A panic in a step of the engine, which calls policies and version
//! selectors of the application, becomes a [`Failure`].

mod context;
mod plan;
mod report;
mod root_threads;
mod service_threads;
mod statistics;
mod streaming;

use crate::dispatcher::DispatcherStats;
pub use crate::failure::Failure;
use crate::kernel_check;
use crate::native::Plan;
pub use crate::options::{MAX_RECORD_CAPACITY, MAX_SPIN, Options};
use crate::programs::{ProgramControl, ProgramSource};
use crate::record::RecordSink;
use crate::rights::{self, ObservedPolicies, RightsProvider, RunThreads};
pub use crate::root_shared::Band;
use crate::root_shared::{PriorityControl, PriorityMap, RootShared};
use crate::run_clock::RunClock;
use crate::run_control::RunControl;
use crate::statistics::RunningRoot;
use crate::watchdog::Watchdog;
use context::{RunContext, join};
pub use plan::{RootPlan, TaskPlan, check_budgets};
use plan::{check, linux_plans};
pub use report::{Report, RootReport};
use root_threads::{MonitorPolicy, RootThreads};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{Builder, Scope};
use streaming::StreamedRoot;
use talea_core::engine::Engine;
use talea_core::mutate;
use talea_core::{Monotonic, Span, Time};
use talea_os::signal_stop::Handler;
use talea_os::switch_trace::SwitchTrace;
use talea_os::{Tid, clock, sched};

/// Time between the readiness of the last thread and the start of the run.
const START_DELAY: Span = Span::from_ns(3_000_000);

/// Executes the system and returns the report.
///
/// A job that still runs at the end of the run is waited for. After two seconds the watchdog ends
/// the run: all its threads become ordinary ones, and [`Failure::Hung`] is returned once the body
/// has returned. A body that has not returned four seconds after the end, because it ignores its
/// flag, cannot be stopped otherwise: **the process is aborted**.
///
/// # Errors
/// If the system cannot be executed here, or had to be ended.
///
/// # Panics
/// Passes on the panic of a job.
pub fn execute(roots: Vec<RootPlan<'_>>, options: &Options) -> Result<Report, Failure> {
    execute_until(roots, options, &RunControl::default())
}

/// Variant of [`execute`] in which `remote` may cancel the run, activate jobs, or change
/// conditions.
///
/// # Errors
/// Those of [`execute`].
///
/// # Panics
/// Those of [`execute`].
pub fn execute_until(
    roots: Vec<RootPlan<'_>>,
    options: &Options,
    remote: &RunControl,
) -> Result<Report, Failure> {
    execute_granted(roots, options, remote, None)
}

/// Variant of [`execute_until`] that passes the record to `sink` while the run goes on. The record
/// of the report is then empty. The record capacity of the options bounds the entries between two
/// exchanges.
///
/// # Errors
/// Those of [`execute`].
///
/// # Panics
/// Those of [`execute`].
pub fn execute_streaming(
    roots: Vec<RootPlan<'_>>,
    options: &Options,
    remote: &RunControl,
    sink: &mut dyn RecordSink,
) -> Result<Report, Failure> {
    execute_with(roots, options, remote, None, Some(sink))
}

/// Variant of [`execute_until`] in which `grantor` grants priorities if the run does not set them
/// (`options.priorities`).
///
/// # Errors
/// Those of [`execute`].
///
/// # Panics
/// Those of [`execute`].
pub fn execute_granted(
    roots: Vec<RootPlan<'_>>,
    options: &Options,
    remote: &RunControl,
    grantor: Option<&dyn RightsProvider>,
) -> Result<Report, Failure> {
    execute_with(roots, options, remote, grantor, None)
}

fn execute_with<'k>(
    roots: Vec<RootPlan<'_>>,
    options: &Options,
    remote: &RunControl,
    grantor: Option<&dyn RightsProvider>,
    sink: Option<&'k mut (dyn RecordSink + 'k)>,
) -> Result<Report, Failure> {
    check(&roots, options)?;
    let mut engines = Vec::new();
    for root in &roots {
        let engine = root.tree.build().map_err(Failure::Tree)?;
        if engine.tasks() != root.tasks.len() {
            let why =
                format!("a root with {} tasks was given {}", engine.tasks(), root.tasks.len());
            return Err(Failure::Plan(why));
        }
        engines.push(engine);
    }
    let linux_plans = linux_plans(&roots, options).map_err(Failure::Plan)?;
    let everywhere = sched::get_affinity(Tid::current())?;
    let away =
        everywhere.difference(&roots.iter().flat_map(|root| root.cpus.iter().copied()).collect());
    let home = if away.is_empty() { everywhere } else { away };
    let shared = |(root, linux_plan): (&RootPlan<'_>, &Option<Plan>)| {
        Arc::new(RootShared::new(&root.cpus, root.tasks.len(), linux_plan.is_some(), &home))
    };
    let shared_roots: Vec<Arc<RootShared>> = roots.iter().zip(&linux_plans).map(shared).collect();
    for shared in &shared_roots {
        shared.all_roots.set(shared_roots.iter().map(Arc::downgrade).collect()).expect("set once");
    }
    // Outlives every thread that may be stopped.
    let _handler = Handler::install()?;
    mutate!("exec-remote-known", {}, {
        remote.begin(&shared_roots, Monotonic::ZERO);
    });
    let watchdog = Watchdog::new();
    let stop = AtomicBool::new(false);
    // Threads of the scope wait for killed programs.
    let programs = ProgramControl::new();
    let (watchdog, stop, programs, shared_roots) = (&watchdog, &stop, &programs, &shared_roots[..]);
    let grantor = grantor.filter(|_| !options.priorities);
    let shared = RunContext { shared_roots, watchdog, remote, stop, options, programs, grantor };
    let result = std::thread::scope(|scope| {
        // Also on an early error, because the scope waits for all threads.
        let _guard = EndGuard(&shared);
        let roots = roots.into_iter().zip(engines).zip(linux_plans);
        shared.run(
            scope,
            roots.map(|((root, engine), linux_plan)| (root, engine, linux_plan)).collect(),
            sink,
        )
    });
    if watchdog.has_fired() { Err(Failure::Hung) } else { result }
}

/// Guard that releases all threads at the end of the scope, by return or by panic.
struct EndGuard<'a, 's>(&'a RunContext<'s>);

impl Drop for EndGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.programs.kill_all();
        for shared in self.0.shared_roots {
            shared.cancel();
            shared.release_workers();
        }
        self.0.watchdog.cancel();
    }
}

impl<'s> RunContext<'s> {
    fn run<'scope, 'a: 'scope, 'k: 'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        roots: Vec<(RootPlan<'a>, Engine, Option<Plan>)>,
        sink: Option<&'k mut (dyn RecordSink + 'k)>,
    ) -> Result<Report, Failure>
    where
        's: 'scope,
    {
        let sources: Vec<Vec<Option<ProgramSource>>> =
            roots.iter().map(|(root, ..)| plan::programs(root)).collect();
        let has_programs = sources.iter().flatten().any(Option::is_some);
        let control = match (self.options.priorities, self.grantor) {
            (true, _) => PriorityControl::Full,
            (false, Some(_)) => PriorityControl::Fixed,
            (false, None) => PriorityControl::None,
        };
        let priorities = PriorityMap::new(self.options.band, control, has_programs);
        let mut started_programs = self.programs.start_all(
            scope,
            &sources,
            self.shared_roots,
            priorities,
            self.options,
        )?;
        let mut workers = Vec::new();
        let mut root_threads = Vec::new();
        for (number, ((root, engine, linux_plan), shared)) in
            roots.into_iter().zip(self.shared_roots).enumerate()
        {
            let handles = started_programs.take_handles(number);
            root_threads.push(match linux_plan {
                Some(plan) => {
                    RootThreads::linux(scope, (root, plan, shared), self.options, &mut workers)?
                }
                None => RootThreads::new(
                    scope,
                    (root, engine, shared),
                    handles,
                    priorities,
                    self.options,
                    &mut workers,
                )?,
            });
        }
        let monitored_cpus: Vec<(u32, MonitorPolicy)> = root_threads
            .iter()
            .flat_map(|threads| threads.cpus.iter().map(|&cpu| (cpu, threads.monitor_policy())))
            .collect();
        let mut dispatchers = self.dispatchers(scope, &root_threads, priorities)?;
        let mut monitors = self.monitors(scope, &monitored_cpus, priorities)?;
        let run_threads = self.run_threads(&root_threads);
        let policies = if dispatchers.are_all_ready {
            rights::grant_and_read_policies(
                &run_threads,
                self.shared_roots,
                self.grantor,
                self.options.locks_memory,
            )?
        } else {
            ObservedPolicies::default()
        };
        // The switch trace is optional, because it needs a right.
        let switches = match self.options.max_switches {
            0 => None,
            max_switches => SwitchTrace::start(
                &monitored_cpus.iter().map(|&(cpu, _)| cpu).collect::<Vec<_>>(),
                max_switches,
            )
            .ok(),
        };
        let tids: Vec<Vec<Tid>> =
            self.shared_roots.iter().map(|shared| shared.worker_tids.lock().clone()).collect();
        let dispatcher_tids = self.watchdog.dispatchers.lock().clone();
        let streaming = sink
            .map(|sink| {
                let room = self.options.record_capacity;
                let streamed = root_threads.iter().enumerate().filter_map(|(number, threads)| {
                    let state = Arc::clone(threads.state()?);
                    Some(StreamedRoot::new(number, state, threads.cpus.len(), room))
                });
                let mut streamed: Vec<StreamedRoot> = streamed.collect();
                let (over, is_over) = channel::<()>();
                let hand_over = move || streaming::run(&mut streamed, sink, &is_over);
                Builder::new()
                    .name("exec-record".into())
                    .spawn_scoped(scope, hand_over)
                    .map(|thread| (thread, over))
            })
            .transpose()?;
        let zero = self.begin(&root_threads, &mut dispatchers, &mut monitors);
        let mut dispatcher_stats = Vec::new();
        for dispatcher in dispatchers.threads {
            dispatcher_stats.push(join(dispatcher)?);
        }
        self.watchdog.dispatchers.lock().clear();
        // However they came to stop: the other threads have the same grace period as after a
        // planned end.
        self.watchdog.run_ended(clock::now());
        self.programs.kill_all();
        let mut program_reports = started_programs.join_all().into_iter();
        let stopped_at = dispatcher_stats
            .iter()
            .map(|stats: &DispatcherStats| stats.stopped_at)
            .max()
            .unwrap_or(Time::ZERO);
        for worker in workers {
            join(worker);
        }
        // The id of a joined thread may be reused.
        for shared in self.shared_roots {
            shared.worker_tids.lock().clear();
        }
        mutate!(
            "exec-root-state-goes-on",
            if let Some(message) = root_threads.iter().find_map(RootThreads::panic_message) {
                return Err(Failure::Panicked(message));
            }
        );

        if let Some((thread, over)) = streaming {
            drop(over);
            join(thread);
        }
        let mut reports = Vec::new();
        let mut dispatcher_stats = dispatcher_stats.into_iter();
        for threads in &root_threads {
            let stats = dispatcher_stats.by_ref().take(threads.cpus.len()).collect();
            reports.push(threads.report(
                stats,
                stopped_at,
                program_reports.next().unwrap_or_default(),
            ));
        }
        if let Some(trace) =
            switches.and_then(|switches| switches.finish().ok()).filter(|trace| trace.lost == 0)
        {
            for ((report, tids), threads) in reports.iter_mut().zip(&tids).zip(&root_threads) {
                report.idle = Some(kernel_check::idle_intervals(
                    &trace.intervals,
                    &dispatcher_tids,
                    &threads.cpus,
                    zero,
                ));
                report.executed = Some(kernel_check::worker_intervals(
                    &trace.intervals,
                    tids,
                    &threads.cpus,
                    zero,
                ));
                if let Some(native) = &report.native {
                    report.lost_times = native.lost_times(report.executed.as_deref(), stopped_at);
                }
            }
        }
        self.stop.store(true, Ordering::Relaxed);
        let mut stalls = Vec::new();
        for monitor in monitors.threads {
            stalls.extend(join(monitor));
        }
        self.watchdog.cancel();
        join(monitors.watchdog);
        Ok(Report { zero, roots: reports, stalls, length: stopped_at.since(Time::ZERO), policies })
    }

    /// Returns all threads of the run.
    fn run_threads(&self, root_threads: &[RootThreads]) -> RunThreads {
        let numbers = root_threads.iter().flat_map(|threads| &threads.cpus).copied();
        let workers = self.shared_roots.iter().zip(root_threads).flat_map(|(shared, threads)| {
            let tids = shared.worker_tids.lock().clone();
            tids.into_iter().map(|tid| (tid, threads.cpus.clone()))
        });
        RunThreads {
            watchdog: self.watchdog.own_tid.lock().clone(),
            dispatchers: self.watchdog.dispatchers.lock().iter().copied().zip(numbers).collect(),
            workers: workers.collect(),
        }
    }

    /// Sets the start of the run to a moment from now, and sends the start to all threads.
    fn begin(
        &self,
        root_threads: &[RootThreads],
        dispatchers: &mut service_threads::Dispatchers<'_>,
        monitors: &mut service_threads::Monitors<'_>,
    ) -> Monotonic {
        let warmup = root_threads.iter().map(RootThreads::warmup_time).max().unwrap_or(Span::ZERO);
        let soonest = clock::now() + warmup + START_DELAY;
        let zero = self.options.begin.map_or(soonest, |begin| begin.max(soonest));
        let until = Time::ZERO + self.options.duration;
        let begin = monitors.planned_end.take();
        if dispatchers.are_all_ready {
            let _ = begin.map(|begin| begin.send(zero + self.options.duration));
            let running = root_threads.iter().map(|threads| {
                let root: Arc<dyn RunningRoot> = Arc::clone(threads.state()?) as _;
                Some(Arc::downgrade(&root))
            });
            self.remote.set_running(running.collect());
            self.remote.begin(self.shared_roots, zero);
        }
        for start in &monitors.monitor_starts {
            let _ = start.send(zero);
        }
        let clock = RunClock { zero, until };
        for shared in self.shared_roots {
            shared.clock.set(clock).expect("set once");
        }
        for threads in root_threads {
            threads.begin(clock);
        }
        for start in dispatchers.starts.drain(..) {
            // A thread that panicked has cancelled the run.
            let _ = start.send(clock);
        }
        zero
    }
}
