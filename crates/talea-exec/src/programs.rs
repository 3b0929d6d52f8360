//! Programs of a run: the threads around them, and their end.
//!
//! The states of a program in a run are in `mechanism::freeze`; this file has the threads around
//! it.
//!
//! | thread | number | file | what it does |
//! | --- | --- | --- | --- |
//! | launcher | one per program | `launch` | starts the program and waits for its exit |
//! | wakeup listener | one per program, at the dispatcher's priority | `listener` | detects wake-ups |
//! | idle detector | one per CPU with programs | `group` | runs when the program does not want its CPU |
//! | policy monitor | one | `policy_monitor` | checks policies and affinities |
//!
//! In an orderly end the last dispatcher kills the programs, which no program keeps from the CPU.

mod group;
mod launch;
mod listener;

pub use group::Isolation;
pub(crate) use group::ProgramHandle;
pub use launch::ProgramExit;
pub(crate) use launch::WantedProgram;

use crate::failure::Failure;
use crate::options::Options;
use crate::policy_monitor::{self, ProgramPolicies, WatchedProgram};
use crate::root_shared::{PriorityMap, ProgramLevel, RootShared};
use group::Governed;
use launch::{Launched, Start};
use std::io::{self, PipeReader, PipeWriter};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;
use talea_core::engine::TaskId;
use talea_os::cgroup::{self, Cgroup, RunCgroups};
use talea_os::launch::Program;
use talea_os::sched::{self, Attr, Policy};
use talea_os::wakeup_events::{self, WakeupWatch};

/// Report about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramReport {
    /// Exit of the program.
    pub exit: ProgramExit,
    /// Change of policy or affinity of one of the program's threads, in words. After the change the
    /// program did not run as ordered.
    pub policy_changed: Option<String>,
    /// Whether the wakeup listener detected wake-ups by polling the program's clock, because the
    /// kernel did not report them.
    pub polled: bool,
    /// Isolation of the program while it was stopped.
    pub isolation: Isolation,
}

/// Control of all programs of a run, for the threads that end the run.
pub(crate) struct ProgramControl {
    cgroups: OnceLock<Arc<RunCgroups>>,
    /// End of a pipe. Wakeup listeners run until it is dropped.
    listener_stop: Mutex<Option<PipeWriter>>,
    /// End of a channel. The policy monitor runs until it is dropped.
    monitor_stop: Mutex<Option<Sender<()>>>,
    is_over: AtomicBool,
    /// Number of dispatchers that have not stopped.
    active_dispatchers: AtomicUsize,
}

impl ProgramControl {
    pub(crate) fn new() -> ProgramControl {
        let (listener_stop, monitor_stop) = (Mutex::new(None), Mutex::new(None));
        let (is_over, active_dispatchers) = (AtomicBool::new(false), AtomicUsize::new(0));
        ProgramControl {
            cgroups: OnceLock::new(),
            listener_stop,
            monitor_stop,
            is_over,
            active_dispatchers,
        }
    }

    /// Increments the number of active dispatchers.
    pub(crate) fn dispatcher_started(&self) {
        self.active_dispatchers.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a dispatcher stopped. The last dispatcher kills all programs.
    ///
    /// A dispatcher can kill the programs because its priority is above theirs. The ordinary thread
    /// that joins the dispatchers may get no CPU while a program with a changed policy keeps a CPU
    /// busy.
    pub(crate) fn dispatcher_stopped(&self, priorities: PriorityMap) {
        if self.active_dispatchers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.kill_all();
            self.boost_exit(priorities);
        }
    }

    /// Raises the priority of killed programs, because they need CPU time to exit. A program that
    /// has lowered its priority then gets the CPU before ordinary threads again.
    fn boost_exit(&self, priorities: PriorityMap) {
        let Some(cgroups) = self.cgroups.get() else { return };
        for tid in cgroups.threads() {
            // It may have exited.
            let policy = priorities.program_policy(ProgramLevel::Running);
            let _: io::Result<()> = sched::set(tid, &Attr::grant(policy));
        }
    }

    /// Kills all programs and everything that the programs created. A second call does nothing.
    pub(crate) fn kill_all(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(cgroups) = self.cgroups.get() {
            // If the kernel does not kill them, nothing can; the reaper tries again.
            let _: io::Result<()> = cgroups.kill();
        }
        drop(self.listener_stop.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.monitor_stop.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Starts the programs of `wanted`, all of them frozen. `wanted[r][n]` is the program of task
    /// `n` of root `r`.
    pub(crate) fn start_all<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        wanted: &[Vec<Option<WantedProgram>>],
        shared_roots: &'scope [Arc<RootShared>],
        priorities: PriorityMap,
        options: &Options,
    ) -> Result<StartedPrograms<'scope>, Failure> {
        if options.priorities {
            // Programs of a run that was killed together with its reaper run on with real-time
            // priorities. What cannot be killed does not keep this run from beginning.
            let _: io::Result<_> = cgroup::remove_leftover();
        }
        let mut started = StartedPrograms { roots: Vec::new(), idle_detectors: Vec::new() };
        if wanted.iter().flatten().flatten().next().is_none() {
            started.roots.resize_with(wanted.len(), Vec::new);
            return Ok(started);
        }
        let found = wanted
            .iter()
            .map(|root| {
                let find = |wanted: &Option<WantedProgram>| {
                    wanted.as_ref().map(WantedProgram::find).transpose()
                };
                root.iter().map(find).collect()
            })
            .collect::<Result<Vec<Vec<Option<Program>>>, _>>()?;
        let limits: Vec<_> = wanted.iter().flatten().flatten().map(|wanted| wanted.limit).collect();
        let cgroups = launch::create_cgroups(&limits, priorities.reaper_priority())?;
        let cgroups = self.cgroups.get_or_init(|| cgroups);
        let (stop, listener_stop) = io::pipe()?;
        let stop = Arc::new(stop);
        *self.listener_stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener_stop);
        let (mut next, mut watched) = (0, Vec::new());
        for (shared, programs) in shared_roots.iter().zip(found) {
            let mut members = Vec::new();
            let has_some = programs.iter().any(Option::is_some);
            for (task, program) in (0..).map(TaskId).zip(programs) {
                let Some(program) = program else {
                    members.push(None);
                    continue;
                };
                let cgroup = cgroups.cgroup(next);
                next += 1;
                let member = self.start(
                    scope,
                    (program, cgroup, cgroups),
                    (shared, task),
                    (priorities, options, &stop),
                )?;
                watched.push(WatchedProgram {
                    cgroup: Arc::clone(cgroup),
                    cpu: shared.cpus[0].number,
                    policies: ProgramPolicies::new(priorities),
                    policy_changed: Arc::clone(&member.governed.policy_changed),
                });
                members.push(Some(member));
            }
            if has_some {
                let detector = group::spawn_idle_detector(scope, shared, priorities)?;
                started.idle_detectors.push(detector);
            }
            started.roots.push(members);
        }
        let (monitor_stop, over) = channel();
        *self.monitor_stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(monitor_stop);
        policy_monitor::spawn(scope, watched, over)?;
        Ok(started)
    }

    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        (program, cgroup, cgroups): (Program, &Arc<Cgroup>, &RunCgroups),
        (shared, task): (&'scope Arc<RootShared>, TaskId),
        (priorities, options, stop): (PriorityMap, &Options, &Arc<PipeReader>),
    ) -> Result<ProgramThreads<'scope>, Failure> {
        let cpu = shared.cpus[0].number;
        let Policy::Rr(priority) = ProgramPolicies::new(priorities).of(ProgramLevel::Running)
        else {
            unreachable!("threads of one program share the CPU round robin")
        };
        let start = Start {
            program,
            cgroup: Arc::clone(cgroup),
            cpu,
            priority,
            length: Duration::from_nanos(options.duration.as_ns()),
        };
        let name = format!("exec-launch{}", task.0);
        let Launched { launcher, first } =
            launch::launch(scope, name, start, (cgroups, &self.is_over))?;
        let events = if options.wakeup_events && wakeup_events::events_are_timely() {
            WakeupWatch::open(first, cpu).ok()
        } else {
            None
        };
        let governed = group::govern(
            scope,
            cgroup,
            (shared, task),
            priorities,
            events,
            (stop, &self.is_over),
        )?;
        Ok(ProgramThreads { launcher, governed })
    }
}

/// One program with its threads.
struct ProgramThreads<'scope> {
    launcher: ScopedJoinHandle<'scope, ProgramExit>,
    governed: Governed<'scope>,
}

/// Programs of a run with their threads, in the order of roots and tasks.
pub(crate) struct StartedPrograms<'scope> {
    roots: Vec<Vec<Option<ProgramThreads<'scope>>>>,
    idle_detectors: Vec<ScopedJoinHandle<'scope, ()>>,
}

impl StartedPrograms<'_> {
    /// Takes the handles of a root for its mechanism: element `n` is the handle of task `n`.
    /// Returns `None` if the root has no programs.
    pub(crate) fn take_handles(&mut self, root: usize) -> Option<Vec<Option<ProgramHandle>>> {
        let members = &mut self.roots[root];
        let take = |member: &mut Option<ProgramThreads<'_>>| {
            member.as_mut().and_then(|member| member.governed.handle.take())
        };
        members.iter().any(Option::is_some).then(|| members.iter_mut().map(take).collect())
    }

    /// Joins the threads of all programs, which must have been killed. Returns the reports in the
    /// order of roots and tasks.
    pub(crate) fn join_all(self) -> Vec<Vec<Option<ProgramReport>>> {
        fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }
        let report = |member: ProgramThreads<'_>| {
            let ProgramThreads { launcher, governed } = member;
            join(governed.listener_thread);
            ProgramReport {
                exit: join(launcher),
                policy_changed: governed.policy_changed.get().cloned(),
                polled: governed.listener.is_polled(),
                isolation: governed.isolation,
            }
        };
        let reports = self
            .roots
            .into_iter()
            .map(|root| root.into_iter().map(|one| one.map(report)).collect());
        let reports = reports.collect();
        self.idle_detectors.into_iter().for_each(join);
        reports
    }
}
