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
//! Groups that another process fills ([`Load::group`](crate::Load)) have no launcher, and keep
//! their members at the end of the run, frozen.
//!
//! In an orderly end the last dispatcher kills the programs of the run, which no program
//! keeps from the CPU.

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
use group::{Governed, Origin};
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

/// Origin of the program that plays a task.
#[derive(Clone, Debug)]
pub(crate) enum ProgramSource {
    /// The run starts and ends the program.
    Start(WantedProgram),
    /// Another process starts and ends the program in this cgroup.
    Group(Arc<Cgroup>),
}

impl ProgramSource {
    fn is_group(&self) -> bool {
        matches!(self, ProgramSource::Group(_))
    }

    fn start(&self) -> Option<&WantedProgram> {
        match self {
            ProgramSource::Start(wanted) => Some(wanted),
            ProgramSource::Group(_) => None,
        }
    }
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

    /// Starts the programs of `sources`, all of them frozen, and governs them. `sources[r][n]` is
    /// the program of task `n` of root `r`.
    pub(crate) fn start_all<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        sources: &[Vec<Option<ProgramSource>>],
        shared_roots: &'scope [Arc<RootShared>],
        priorities: PriorityMap,
        options: &Options,
    ) -> Result<StartedPrograms<'scope>, Failure> {
        let has_groups = sources.iter().flatten().flatten().any(ProgramSource::is_group);
        if options.priorities && !has_groups {
            // Programs of a run that was killed together with its reaper run on with real-time
            // priorities. What cannot be killed does not keep this run from beginning.
            let _: io::Result<_> = cgroup::remove_leftover();
        }
        let mut started = StartedPrograms { roots: Vec::new(), idle_detectors: Vec::new() };
        if sources.iter().flatten().flatten().next().is_none() {
            started.roots.resize_with(sources.len(), Vec::new);
            return Ok(started);
        }
        let mut starts = self.prepare_starts(sources, priorities)?.into_iter();
        let (stop, listener_stop) = io::pipe()?;
        let stop = Arc::new(stop);
        *self.listener_stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener_stop);
        let mut watched = Vec::new();
        for (shared, sources) in shared_roots.iter().zip(sources) {
            let mut members = Vec::new();
            for (task, source) in (0..).map(TaskId).zip(sources) {
                let Some(source) = source else {
                    members.push(None);
                    continue;
                };
                let (cgroup, program) = match source {
                    ProgramSource::Group(cgroup) => (Arc::clone(cgroup), None),
                    ProgramSource::Start(_) => {
                        let (cgroup, program) = starts.next().expect("one for each");
                        (cgroup, Some(program))
                    }
                };
                let member = self.start(
                    scope,
                    (&cgroup, program),
                    (shared, task),
                    (priorities, options, &stop),
                )?;
                watched.push(WatchedProgram {
                    cgroup,
                    cpu: shared.cpus[0].number,
                    policies: ProgramPolicies::new(priorities),
                    policy_changed: Arc::clone(&member.governed.policy_changed),
                });
                members.push(Some(member));
            }
            if members.iter().any(Option::is_some) {
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

    /// Finds the programs that the run starts, and creates their cgroups.
    fn prepare_starts(
        &self,
        sources: &[Vec<Option<ProgramSource>>],
        priorities: PriorityMap,
    ) -> Result<Vec<(Arc<Cgroup>, Program)>, Failure> {
        let wanted: Vec<&WantedProgram> =
            sources.iter().flatten().flatten().filter_map(ProgramSource::start).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let programs =
            wanted.iter().map(|wanted| wanted.find()).collect::<Result<Vec<Program>, _>>()?;
        let limits: Vec<_> = wanted.iter().map(|wanted| wanted.limit).collect();
        let cgroups = launch::create_cgroups(&limits, priorities.reaper_priority())?;
        let cgroups = self.cgroups.get_or_init(|| cgroups);
        let with_cgroup = |(at, program)| (Arc::clone(cgroups.cgroup(at)), program);
        Ok(programs.into_iter().enumerate().map(with_cgroup).collect())
    }

    /// Starts `program` in the cgroup, or governs what another process starts in it.
    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        (cgroup, program): (&Arc<Cgroup>, Option<Program>),
        (shared, task): (&'scope Arc<RootShared>, TaskId),
        (priorities, options, stop): (PriorityMap, &Options, &Arc<PipeReader>),
    ) -> Result<ProgramThreads<'scope>, Failure> {
        let cpu = shared.cpus[0].number;
        let is_timely = options.wakeup_events && wakeup_events::events_are_timely();
        let (launcher, origin, events) = match program {
            None => {
                let events = is_timely.then(|| WakeupWatch::open_group(cgroup, cpu).ok());
                (None, Origin::Filled, events)
            }
            Some(program) => {
                let Policy::Rr(priority) =
                    ProgramPolicies::new(priorities).of(ProgramLevel::Running)
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
                let cgroups = self.cgroups.get().expect("created before");
                let Launched { launcher, first } =
                    launch::launch(scope, name, start, (cgroups, &self.is_over))?;
                let events = is_timely.then(|| WakeupWatch::open(first, cpu).ok());
                (Some(launcher), Origin::Run, events)
            }
        };
        let governed = group::govern(
            scope,
            (cgroup, origin),
            (shared, task),
            priorities,
            events.flatten(),
            (stop, &self.is_over),
        )?;
        Ok(ProgramThreads { launcher, governed })
    }
}

/// One program with its threads.
struct ProgramThreads<'scope> {
    /// Absent if another process starts the program.
    launcher: Option<ScopedJoinHandle<'scope, ProgramExit>>,
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
            Some(ProgramReport {
                exit: join(launcher?),
                policy_changed: governed.policy_changed.get().cloned(),
                polled: governed.listener.is_polled(),
                isolation: governed.isolation,
            })
        };
        let reports = self
            .roots
            .into_iter()
            .map(|root| root.into_iter().map(|one| one.and_then(report)).collect());
        let reports = reports.collect();
        self.idle_detectors.into_iter().for_each(join);
        reports
    }
}
