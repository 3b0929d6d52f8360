//! Programs of a run: how they are found, started, observed and ended.
//!
//! The states of a program in a run are in `mechanism::freeze`; this file has the threads around
//! it.
//!
//! | thread | number | what it does |
//! | --- | --- | --- |
//! | launcher | one per program | starts the program and waits for its exit |
//! | wakeup listener | one per program, at the dispatcher's priority | detects wake-ups |
//! | idle detector | one per CPU with programs | runs when the program does not want its CPU |
//! | policy monitor | one | checks policies and affinities |
//!
//! A program is started by its run and ends with it, with everything that it has created. All of
//! that is in its cgroup, wherever it is in the process tree; only a process with rights over the
//! hierarchy leaves it. The cgroup is killed however the run ends ([`talea_os::cgroup`]). In an
//! orderly end the last dispatcher kills it, which no program keeps from the CPU.
//!
//! A wakeup listener reads the CPU clock of its program where the kernel reports no wake-ups in
//! time. Perf events may be refused, or stop, or the kernel may be fully preemptible: it then
//! delivers them from a thread at FIFO 1 that a busy CPU never runs.

use crate::mechanism::freeze::Freezable;
use crate::policy_monitor::{self, WatchedProgram};
use crate::root_shared::{PriorityMap, RootShared};
use crate::run::{Failure, Options};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use talea_core::engine::TaskId;
use talea_core::{CpuSet, Monotonic, Span, Work};
use talea_os::cgroup::{self, Cgroup, RunCgroups};
use talea_os::event_count::EventCount;
use talea_os::launch::Program;
use talea_os::sched::{self, Attr, Policy};
use talea_os::wakeup_events::{self, WakeupEvent, WakeupWatch};
use talea_os::{Tid, clock};

/// Exit of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramExit {
    /// Killed with the run.
    Killed,
    /// Exited before the end of the run; its children may have run on.
    Exited(ExitStatus),
    /// Could not be executed.
    Failed(String),
}

/// Report about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramReport {
    /// Its exit.
    pub exit: ProgramExit,
    /// Change of policy or affinity of one of its threads, in words: the program did not run as
    /// ordered.
    pub policy_changed: Option<String>,
    /// Whether its wake-ups were detected by polling its clock, because the kernel did not report
    /// them.
    pub polled: bool,
}

/// Timeout until a started child is in its cgroup.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// CPU time that a program may consume beyond the length of the run before the kernel kills it.
const CPU_TIME_GRACE: Duration = Duration::from_secs(5);
/// Length from which a run has no CPU time limit for programs.
const MIN_UNLIMITED_RUN: Duration = Duration::from_hours(24);
/// Number of polls between two checks whether the cgroup is empty.
const POLLS_PER_EMPTY_CHECK: u32 = 128;
/// Period of reading the clock of a program whose wake-ups are not reported.
const POLL_PERIOD: Span = Span::from_ns(1_000_000);

/// All programs of a run, for the threads that end it.
pub(crate) struct ProgramControl {
    cgroups: OnceLock<Arc<RunCgroups>>,
    /// Wakeup listeners run until this is dropped.
    listener_stop: Mutex<Option<PipeWriter>>,
    /// The policy monitor runs until this is dropped.
    monitor_stop: Mutex<Option<Sender<()>>>,
    is_over: AtomicBool,
    /// Dispatchers that have not stopped.
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

    /// Counts a dispatcher.
    pub(crate) fn dispatcher_started(&self) {
        self.active_dispatchers.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a dispatcher stopped; the last one kills all programs.
    ///
    /// A dispatcher can do that because its priority is above theirs. The ordinary thread that
    /// joins the dispatchers may get no CPU while a program with a changed policy keeps one busy.
    pub(crate) fn dispatcher_stopped(&self, priorities: PriorityMap) {
        if self.active_dispatchers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.kill_all();
            self.boost_exit(priorities);
        }
    }

    /// Boosts killed programs: they need the CPU to exit, and one that has lowered its priority
    /// gets it before ordinary threads again.
    fn boost_exit(&self, priorities: PriorityMap) {
        let Some(cgroups) = self.cgroups.get() else { return };
        for tid in cgroups.threads() {
            // It may have exited.
            let _: io::Result<()> =
                sched::set(tid, &Attr::grant(Policy::Rr(priorities.program_priority())));
        }
    }

    /// Kills all programs and everything that they created. A second call does nothing.
    pub(crate) fn kill_all(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(cgroups) = self.cgroups.get() {
            // If the kernel does not kill them, nothing can; the reaper tries again.
            let _: io::Result<()> = cgroups.kill();
        }
        drop(self.listener_stop.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.monitor_stop.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Starts the programs of `wanted`, by root and task; all of them are frozen.
    pub(crate) fn start_all<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        wanted: &[Vec<Option<Vec<String>>>],
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
        let count = wanted.iter().flatten().flatten().count();
        if count == 0 {
            started.roots.resize_with(wanted.len(), Vec::new);
            return Ok(started);
        }
        let find = |words: &Vec<String>| {
            Program::find(words).map_err(|error| Failure::Plan(format!("{}: {error}", words[0])))
        };
        let found: Vec<Vec<Option<Program>>> = wanted
            .iter()
            .map(|root| root.iter().map(|words| words.as_ref().map(find).transpose()).collect())
            .collect::<Result<_, _>>()?;
        let no_groups = |error| {
            Failure::Plan(format!(
                "programs need cgroups (v2), which only root can create: {error}"
            ))
        };
        let cgroups = Arc::new(
            RunCgroups::create(count, Some(priorities.reaper_priority())).map_err(no_groups)?,
        );
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
                let at = (Arc::clone(cgroups), next);
                next += 1;
                let member =
                    self.start(scope, program, at, (shared, task), (priorities, options, &stop))?;
                let policy_changed = Arc::clone(&member.policy_changed);
                watched.push(WatchedProgram {
                    group: next - 1,
                    cpu: shared.cpus[0].number,
                    priority: priorities.program_priority(),
                    policy_changed,
                });
                members.push(Some(member));
            }
            if has_some {
                started.idle_detectors.push(spawn_idle_detector(scope, shared, priorities)?);
            }
            started.roots.push(members);
        }
        let (monitor_stop, over) = channel();
        *self.monitor_stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(monitor_stop);
        policy_monitor::spawn(scope, Arc::clone(cgroups), watched, over)?;
        Ok(started)
    }

    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        program: Program,
        (cgroups, at): (Arc<RunCgroups>, usize),
        (shared, task): (&'scope Arc<RootShared>, TaskId),
        (priorities, options, stop): (PriorityMap, &Options, &Arc<PipeReader>),
    ) -> Result<ProgramThreads<'scope>, Failure> {
        let cpu = shared.cpus[0].number;
        cgroups.cgroup(at).freeze()?;
        let most = Duration::from_nanos(options.duration.as_ns());
        let most = (most < MIN_UNLIMITED_RUN).then(|| most + CPU_TIME_GRACE);
        let launcher =
            Builder::new().name(format!("exec-launch{}", task.0)).spawn_scoped(scope, {
                let cgroups = Arc::clone(&cgroups);
                move || match program
                    .start(cgroups.cgroup(at), cpu, priorities.program_priority(), most)
                    .and_then(|mut child| child.wait())
                {
                    _ if self.is_over.load(Ordering::Acquire) => ProgramExit::Killed,
                    Ok(status) => ProgramExit::Exited(status),
                    Err(error) => ProgramExit::Failed(error.to_string()),
                }
            })?;
        let end = Instant::now() + START_TIMEOUT;
        let first = loop {
            let group = cgroups.cgroup(at);
            if let Some(&first) =
                group.processes()?.first().filter(|_| group.is_frozen().unwrap_or(false))
            {
                break first;
            }
            if launcher.is_finished() {
                let exit = launcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                return Err(Failure::Os(io::Error::other(format!(
                    "a program cannot be started: {exit:?}"
                ))));
            }
            if Instant::now() > end {
                return Err(Failure::Os(io::Error::other(
                    "a program did not enter its cgroup in time",
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let events = if options.wakeup_events && wakeup_events::events_are_timely() {
            WakeupWatch::open(first, cpu).ok()
        } else {
            None
        };
        let listener = WakeupListener {
            events,
            has_lost_events: AtomicBool::new(false),
            poll_requests: EventCount::new(),
            armed_cpu_time_ns: AtomicU64::new(0),
        };
        let listener = Arc::new(listener);
        let (report, reported) = channel();
        let listener_thread =
            Builder::new().name(format!("talea-wake{}", task.0)).spawn_scoped(scope, {
                let (listener, cgroups, stop) =
                    (Arc::clone(&listener), Arc::clone(&cgroups), Arc::clone(stop));
                move || {
                    let entered = sched::set_affinity(Tid::current(), &CpuSet::single(cpu))
                        .and_then(|()| priorities.set_dispatcher(Tid::current()));
                    let is_in = entered.is_ok();
                    // The receiver waits for it.
                    let _ = report.send(entered);
                    if is_in {
                        listener.run(cgroups.cgroup(at), shared, task, (&stop, &self.is_over));
                    }
                }
            })?;
        reported
            .recv()
            .map_err(|_| Failure::Os(io::Error::other("a wakeup listener panicked")))??;
        let handle = Some(ProgramHandle { cgroups, group: at, listener: Arc::clone(&listener) });
        Ok(ProgramThreads {
            launcher,
            listener_thread,
            listener,
            policy_changed: Arc::default(),
            handle,
        })
    }
}

/// Starts the idle detector of a CPU: it sleeps below the programs, and reports when it gets the
/// CPU.
fn spawn_idle_detector<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Arc<RootShared>,
    priorities: PriorityMap,
) -> Result<ScopedJoinHandle<'scope, ()>, Failure> {
    let (report, reported) = channel();
    let cpu = &shared.cpus[0];
    let watch = move || {
        let entered = sched::set_affinity(Tid::current(), &CpuSet::single(cpu.number))
            .and_then(|()| priorities.set_runnable(Tid::current(), 0));
        let is_in = entered.is_ok();
        let _ = report.send(entered);
        let mut key = 0;
        while is_in && !shared.is_over.load(Ordering::Acquire) {
            cpu.idle_detector.epoch.wait(key, Monotonic::NEVER);
            key = cpu.idle_detector.epoch.key();
            cpu.idle_detector.idle_epoch.store(key, Ordering::Release);
            cpu.mailbox.event_count.notify();
        }
    };
    let name = format!("talea-idle{}", cpu.number);
    let detector = Builder::new().name(name).spawn_scoped(scope, watch)?;
    reported.recv().map_err(|_| Failure::Os(io::Error::other("an idle detector panicked")))??;
    Ok(detector)
}

/// One program with its threads.
struct ProgramThreads<'scope> {
    launcher: ScopedJoinHandle<'scope, ProgramExit>,
    listener_thread: ScopedJoinHandle<'scope, ()>,
    listener: Arc<WakeupListener>,
    policy_changed: Arc<OnceLock<String>>,
    /// Handle for the mechanism, until it is taken.
    handle: Option<ProgramHandle>,
}

/// Programs of a run with their threads, by root and task.
pub(crate) struct StartedPrograms<'scope> {
    roots: Vec<Vec<Option<ProgramThreads<'scope>>>>,
    idle_detectors: Vec<ScopedJoinHandle<'scope, ()>>,
}

impl StartedPrograms<'_> {
    /// Takes the handles of a root, by task, for its mechanism; nothing if it has no programs.
    pub(crate) fn take_handles(&mut self, root: usize) -> Option<Vec<Option<ProgramHandle>>> {
        let members = &mut self.roots[root];
        let take = |member: &mut Option<ProgramThreads<'_>>| {
            member.as_mut().and_then(|member| member.handle.take())
        };
        members.iter().any(Option::is_some).then(|| members.iter_mut().map(take).collect())
    }

    /// Joins the threads of all programs, which were killed, and returns the reports.
    pub(crate) fn join_all(self) -> Vec<Vec<Option<ProgramReport>>> {
        fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }
        let report = |member: ProgramThreads<'_>| {
            join(member.listener_thread);
            let policy_changed = member.policy_changed.get().cloned();
            ProgramReport {
                exit: join(member.launcher),
                policy_changed,
                polled: member.listener.is_polled(),
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

/// Detection of the wake-ups of a program.
#[derive(Debug)]
struct WakeupListener {
    events: Option<WakeupWatch>,
    /// Whether the kernel stopped reporting.
    has_lost_events: AtomicBool,
    /// Poll requests: notified when a wake-up is to be detected.
    poll_requests: EventCount,
    /// CPU clock of the program at the last request.
    armed_cpu_time_ns: AtomicU64,
}

impl WakeupListener {
    fn arm(&self, group: &Cgroup) -> io::Result<()> {
        if let Some(events) = self.events.as_ref().filter(|_| !self.is_polled()) {
            let armed = events.arm();
            // After arming: a listener that loses its events later polls.
            if !self.is_polled() {
                return armed;
            }
        }
        self.armed_cpu_time_ns.store(group.used()?.as_ns(), Ordering::Release);
        self.poll_requests.notify();
        Ok(())
    }

    /// Whether the clock is polled.
    fn is_polled(&self) -> bool {
        self.events.is_none() || self.has_lost_events.load(Ordering::SeqCst)
    }

    /// Reports wake-ups to the dispatcher, until the run is over or the cgroup is empty.
    fn run(
        &self,
        group: &Cgroup,
        shared: &RootShared,
        task: TaskId,
        (stop, over): (&PipeReader, &AtomicBool),
    ) {
        // A process enters the cgroup only as a child of one that is in it.
        let is_empty = |group: &Cgroup| group.is_populated().is_ok_and(|is| !is);
        let awake = || {
            shared.slots[task.0 as usize].has_woken.store(true, Ordering::Release);
            shared.cpus[0].mailbox.event_count.notify();
        };
        if let Some(events) = &self.events {
            loop {
                match events.wait(stop.as_fd()) {
                    Ok(WakeupEvent::Switched) => awake(),
                    Ok(WakeupEvent::Cancelled) => return,
                    Ok(WakeupEvent::Ended) | Err(_) => break,
                }
            }
            // A process that has just exited stays in its cgroup for a moment.
            clock::sleep_until(clock::now() + POLL_PERIOD);
            if over.load(Ordering::Acquire) || is_empty(group) {
                return;
            }
            self.has_lost_events.store(true, Ordering::SeqCst);
            // It may have woken unnoticed since it was armed.
            awake();
        }
        let (mut key, mut polls) = (0, 0_u32);
        while !shared.is_over.load(Ordering::Acquire) {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_EMPTY_CHECK) && is_empty(group) {
                return;
            }
            // The loop also notices the end of the run.
            let asked = self.poll_requests.key();
            if asked != key {
                match group.used() {
                    Ok(used) if used.as_ns() == self.armed_cpu_time_ns.load(Ordering::Acquire) => {}
                    Ok(_) => {
                        key = asked;
                        awake();
                    }
                    Err(_) => return,
                }
            }
            clock::sleep_until(clock::now() + POLL_PERIOD);
        }
    }
}

/// A program as its mechanism uses it.
#[derive(Debug)]
pub(crate) struct ProgramHandle {
    cgroups: Arc<RunCgroups>,
    group: usize,
    listener: Arc<WakeupListener>,
}

impl Freezable for ProgramHandle {
    fn freeze(&mut self) -> io::Result<()> {
        self.cgroups.cgroup(self.group).freeze()
    }

    fn thaw(&mut self) -> io::Result<()> {
        self.cgroups.cgroup(self.group).thaw()
    }

    fn cpu_time(&mut self) -> io::Result<Work> {
        self.cgroups.cgroup(self.group).used()
    }

    fn arm_wakeup(&mut self) -> io::Result<()> {
        self.listener.arm(self.cgroups.cgroup(self.group))
    }
}
