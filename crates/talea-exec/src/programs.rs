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

use crate::failure::Failure;
use crate::mechanism::freeze::Freezable;
use crate::options::Options;
use crate::policy_monitor::{self, ProgramPolicies, WatchedProgram};
use crate::root_shared::{PriorityMap, ProgramLevel, RootShared};
use std::fmt;
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
use talea_os::cgroup::rt_group::RtLimit;
use talea_os::cgroup::{self, Cgroup, RunCgroups};
use talea_os::event_count::EventCount;
use talea_os::launch::Program;
use talea_os::sched::{self, Attr, Policy};
use talea_os::users::Account;
use talea_os::wakeup_events::{self, WakeupEvent, WakeupWatch};
use talea_os::{Tid, clock, proc};

/// Program that a run is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedProgram {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// Account under which the program runs; `None` stands for the account of this process.
    pub(crate) account: Option<Account>,
    /// Limit of the servers above the program.
    pub(crate) limit: Option<RtLimit>,
}

/// Exit of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramExit {
    /// The run killed the program at its end.
    Killed,
    /// The program exited before the end of the run. Its children may have run on.
    Exited(ExitStatus),
    /// The kernel could not execute the program.
    Failed(String),
}

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

/// Isolation of a stopped program: the cgroup is frozen, the threads have the lowest real-time
/// priority, and the kernel may limit the program's CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// Whether the kernel also limits the program's real-time CPU time by a control group.
    pub has_rt_group: bool,
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("freezer, FIFO 1")?;
        if self.has_rt_group { f.write_str(", real-time control group") } else { Ok(()) }
    }
}

/// Timeout within which a started child must be in its cgroup.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// CPU time beyond the length of the run that a program may consume before the kernel kills the
/// program.
const CPU_TIME_GRACE: Duration = Duration::from_secs(5);
/// Length from which a run has no CPU time limit for programs.
const MIN_UNLIMITED_RUN: Duration = Duration::from_hours(24);
/// Number of polls between two checks of whether the cgroup is empty.
const POLLS_PER_EMPTY_CHECK: u32 = 128;
/// Maximum number of threads of a program whose wake-ups are timed. A job that another thread
/// begins is released when the engine receives the event.
const MAX_TIMED_THREADS: usize = 16;
/// Maximum number of walks over the threads of a program that set a level.
const MAX_WALKS: u32 = 4;
/// Period at which the listener reads the clock of a program whose wake-ups the kernel does not
/// report.
const POLL_PERIOD: Span = Span::from_ns(1_000_000);

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
        let count = wanted.iter().flatten().flatten().count();
        if count == 0 {
            started.roots.resize_with(wanted.len(), Vec::new);
            return Ok(started);
        }
        let find = |wanted: &WantedProgram| {
            Program::find(&wanted.words)
                .map(|program| program.run_as(wanted.account.clone()))
                .map_err(|error| Failure::Plan(format!("{}: {error}", wanted.words[0])))
        };
        let found: Vec<Vec<Option<Program>>> = wanted
            .iter()
            .map(|root| root.iter().map(|wanted| wanted.as_ref().map(find).transpose()).collect())
            .collect::<Result<_, _>>()?;
        let limits: Vec<Option<RtLimit>> =
            wanted.iter().flatten().flatten().map(|wanted| wanted.limit).collect();
        let no_groups = |error| {
            Failure::Plan(format!(
                "programs need cgroups (v2), which only root can create: {error}"
            ))
        };
        let cgroups = Arc::new(
            RunCgroups::create(&limits, Some(priorities.reaper_priority())).map_err(no_groups)?,
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
                    policies: ProgramPolicies::new(priorities),
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
        let policies = ProgramPolicies::new(priorities);
        let Policy::Rr(priority) = policies.of(ProgramLevel::Running) else {
            unreachable!("threads of one program share the CPU round robin")
        };
        let launcher =
            Builder::new().name(format!("exec-launch{}", task.0)).spawn_scoped(scope, {
                let cgroups = Arc::clone(&cgroups);
                move || match program
                    .start(cgroups.cgroup(at), cpu, priority, most)
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
                // A child that enters after the kill would stay frozen there, and its launcher
                // would wait for it forever.
                while !launcher.is_finished() {
                    let _: io::Result<()> = cgroups.kill();
                    std::thread::sleep(Duration::from_millis(1));
                }
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
            reported_at_ns: AtomicU64::new(0),
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
        let policy_changed: Arc<OnceLock<String>> = Arc::default();
        let isolation = Isolation { has_rt_group: cgroups.cgroup(at).rt_group().is_some() };
        let handle = Some(ProgramHandle {
            cgroups,
            group: at,
            listener: Arc::clone(&listener),
            policies,
            policy_changed: Arc::clone(&policy_changed),
            armed_times: Vec::with_capacity(MAX_TIMED_THREADS),
        });
        Ok(ProgramThreads {
            launcher,
            listener_thread,
            listener,
            policy_changed,
            isolation,
            handle,
        })
    }
}

/// Starts the idle detector of a CPU. The detector sleeps below the programs, and reports when it
/// gets the CPU.
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
    isolation: Isolation,
    /// Handle for the mechanism, until the mechanism takes it.
    handle: Option<ProgramHandle>,
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
            member.as_mut().and_then(|member| member.handle.take())
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
            join(member.listener_thread);
            let policy_changed = member.policy_changed.get().cloned();
            ProgramReport {
                exit: join(member.launcher),
                policy_changed,
                polled: member.listener.is_polled(),
                isolation: member.isolation,
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
    /// Whether the kernel has stopped reporting wake-ups.
    has_lost_events: AtomicBool,
    /// Event count of poll requests, notified when the listener is to detect a wake-up.
    poll_requests: EventCount,
    /// CPU clock of the program at the last poll request.
    armed_cpu_time_ns: AtomicU64,
    /// CLOCK_MONOTONIC at the last report. Until the step for that report the program has no CPU,
    /// because the listener and the dispatcher have higher priorities.
    reported_at_ns: AtomicU64,
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

    /// Whether the listener polls the program's clock.
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
            self.reported_at_ns.store(clock::now().as_ns(), Ordering::Release);
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

/// Program in the form that the mechanism uses.
#[derive(Debug)]
pub(crate) struct ProgramHandle {
    cgroups: Arc<RunCgroups>,
    group: usize,
    listener: Arc<WakeupListener>,
    policies: ProgramPolicies,
    policy_changed: Arc<OnceLock<String>>,
    /// Runnable times of the program's first threads when the listener was armed.
    armed_times: Vec<(Tid, Span)>,
}

impl Freezable for ProgramHandle {
    fn set_level(&mut self, level: ProgramLevel) -> io::Result<()> {
        let policy = self.policies.of(level);
        // A thread that is created meanwhile has the level of its creator, and a second walk
        // finds it.
        for _ in 0..MAX_WALKS {
            let mut is_done = true;
            self.cgroups.cgroup(self.group).for_each_thread(|tid| {
                let Ok(now) = sched::get(tid) else { return };
                if !self.policies.contain(now.policy) && self.policy_changed.get().is_none() {
                    let _ = self.policy_changed.set(self.policies.describe_change(tid, now.policy));
                }
                if now.policy != policy {
                    is_done = false;
                    // It may have exited.
                    let _: io::Result<()> = sched::set(tid, &Attr::plain(policy));
                }
            })?;
            if is_done {
                break;
            }
        }
        Ok(())
    }

    fn is_frozen(&mut self) -> io::Result<bool> {
        self.cgroups.cgroup(self.group).is_frozen()
    }

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
        let (group, times) = (self.cgroups.cgroup(self.group), &mut self.armed_times);
        times.clear();
        group.for_each_thread(|tid| {
            if times.len() < MAX_TIMED_THREADS
                && let Ok(time) = proc::runnable_time(tid)
            {
                times.push((tid, time));
            }
        })?;
        self.listener.arm(group)
    }

    fn time_since_wakeup(&mut self) -> Span {
        let since =
            |&(tid, before): &(Tid, Span)| proc::runnable_time(tid).ok()?.checked_sub(before);
        let runnable = self.armed_times.iter().filter_map(since).max().unwrap_or(Span::ZERO);
        let reported_at = self.listener.reported_at_ns.load(Ordering::Acquire);
        runnable + clock::now().saturating_since(Monotonic::from_ns(reported_at))
    }
}
