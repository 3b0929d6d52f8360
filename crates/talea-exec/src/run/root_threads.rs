//! Worker threads of one root, and the engine that schedules them, if there is one.

use super::context::{LiveState, StepHandleCell};
use super::plan::RootPlan;
use super::report::RootReport;
use crate::dispatcher::DispatcherStats;
use crate::executor::Executor;
use crate::failure::Failure;
use crate::load::{Arrivals, Cursor, Load};
use crate::mechanism::audit::{Audited, Consumed};
use crate::mechanism::freeze::Freeze;
use crate::mechanism::{MechanismChoice, MechanismKind, Mixed, PriorityMechanism, WorkerThread};
use crate::native::queue::JobQueue;
use crate::native::worker::{JobLog, Shutdown};
use crate::native::{self, Guarantee, Plan};
use crate::options::{MAX_RECORD_CAPACITY, Options};
use crate::programs::{ProgramHandle, ProgramReport};
use crate::record;
use crate::root_shared::{PriorityControl, PriorityMap, RootShared};
use crate::root_state::StepHandle;
use crate::run_clock::RunClock;
use crate::stalls::RESERVATION_WARMUP;
use crate::work::JobBody;
use crate::worker;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use talea_core::engine::{Engine, SwitchRule, TaskId, Tree};
use talea_core::{Span, Time};
use talea_os::pi_mutex::PiMutex;
use talea_os::sched::Policy;
use talea_os::sysinfo::SystemInfo;

/// Threads of one root.
pub(super) struct RootThreads {
    /// `cpus[c]`: kernel number of CPU `c` of the root.
    pub(super) cpus: Vec<u32>,
    pub(super) driver: Driver,
}

/// Scheduler of the root's workers.
pub(super) enum Driver {
    /// The engine.
    Engine {
        state: Arc<PiMutex<LiveState>>,
        /// Cell of the handle with which workers step the root, if the workers may step.
        step_handle: Option<StepHandleCell>,
        choice: MechanismChoice,
    },
    /// Linux.
    Linux {
        guarantee: Guarantee,
        reason: String,
        /// Longest period of a reservation.
        max_period: Span,
        starts: Vec<Sender<RunClock>>,
        shutdown: Arc<Shutdown>,
        /// Logs of the workers that have left.
        logs: Mutex<Receiver<(TaskId, JobLog)>>,
    },
}

/// Policy with which a stall monitor is above the workers of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MonitorPolicy {
    /// SCHED_FIFO at a higher priority.
    Fifo,
    /// SCHED_DEADLINE with a shorter deadline.
    Deadline,
}

/// Whether any two children of the root may use either the same CPUs or no common CPU.
///
/// Then a running worker is never moved to a CPU that has just become free and on which a worker
/// steps. Behind the moved worker the stepping worker would wait with the lock.
fn affinities_are_equal_or_disjoint(tree: &Tree) -> bool {
    let sets = || tree.children(Tree::ROOT).map(|(_, node)| node.affinity().0);
    let all = u64::MAX >> (u64::BITS - tree.cpus.clamp(1, u64::BITS));
    sets().all(|one| sets().all(|other| one & all == other & all || one & other & all == 0))
}

impl RootThreads {
    pub(super) fn new<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        (root, engine, shared): (RootPlan<'a>, Engine, &Arc<RootShared>),
        handles: Option<Vec<Option<ProgramHandle>>>,
        priorities: PriorityMap,
        options: &Options,
        workers: &mut Vec<ScopedJoinHandle<'scope, ()>>,
    ) -> Result<RootThreads, Failure> {
        let (bodies, loads): (Vec<_>, Vec<_>) =
            root.tasks.into_iter().map(|task| (task.body, task.load)).unzip();
        let step_handle = StepHandleCell::default();
        let worker_threads =
            spawn_workers(scope, shared, &step_handle, priorities, bodies, workers)?;
        // See `root_state`. A program has a higher priority than a worker: if a stepping worker
        // thaws it, the program preempts the step.
        let may_step = match priorities.control {
            PriorityControl::None => false,
            _ if root.cpus.len() == 1 => handles.is_none(),
            // Not beside a dispatcher that spins before its time: its priority can be lent by the
            // lock, but that takes no CPU from it.
            PriorityControl::Full => {
                handles.is_none()
                    && options.spin.is_zero()
                    && affinities_are_equal_or_disjoint(root.tree)
            }
            PriorityControl::Fixed => false,
        };
        let tasks = worker_threads.len();
        // While a worker sleeps with its CPU, priorities keep no preempted worker from running.
        let sleeps = loads.iter().any(|load| load.sleeps_with_cpu || load.marks.sleeps_with_cpu());
        let threads =
            PriorityMechanism::new(Arc::clone(shared), priorities, &worker_threads, sleeps);
        let frozen_programs =
            handles.map(|handles| Freeze::new(Arc::clone(shared), handles)).transpose()?;
        let mechanism = Audited::new(Mixed::new(threads, frozen_programs), tasks, options.audit)?;
        let cpus = root.cpus.len();
        let programs = loads.iter().filter(|load| load.is_program()).count();
        // A record is replayed with one tree.
        let may_switch =
            options.record_capacity == 0 && loads.iter().all(|load| load.group.is_some());
        let choice = MechanismChoice::for_orders(priorities.control, tasks, programs);
        let mut executor = Executor::new(engine, cpus, mechanism, loads, root.changes, root.flows)?;
        if may_switch {
            executor.allow_switches(SwitchRule::of(root.tree));
        }
        // Release timers need the levels. A dispatcher that spins is the only thread that is awake
        // before its time.
        if may_step && priorities.control == PriorityControl::Full && options.spin.is_zero() {
            executor.enable_release_timers(priorities.worker_levels())?;
        }
        let state =
            Arc::new(PiMutex::new(LiveState::new(executor, cpus, tasks, options.record_capacity)));
        let driver = Driver::Engine { state, step_handle: may_step.then_some(step_handle), choice };
        Ok(RootThreads { cpus: root.cpus, driver })
    }

    /// Creates the threads of a root that Linux schedules.
    pub(super) fn linux<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        (root, plan, shared): (RootPlan<'a>, Plan, &Arc<RootShared>),
        options: &Options,
        workers: &mut Vec<ScopedJoinHandle<'scope, ()>>,
    ) -> Result<RootThreads, Failure> {
        let cpu = root.cpus[0];
        let (report, reported) = channel();
        let (leave, logs) = channel();
        let mut starts = Vec::new();
        let tasks = root.tasks.len();
        let shutdown = Arc::new(Shutdown::new(tasks));
        let Plan { guarantee, policies, rules, reason } = plan;
        let period = |policy: &Policy| match policy {
            Policy::Deadline { period, .. } => *period,
            _ => Span::ZERO,
        };
        let max_period = policies.iter().map(period).max().unwrap_or(Span::ZERO);
        for ((task, plan), (policy, rule)) in
            (0..).map(TaskId).zip(root.tasks).zip(policies.into_iter().zip(rules))
        {
            let room = job_capacity(&plan.load, options);
            let queue = JobQueue::new(rule, Cursor::new(plan.load), room);
            let (log, body, shared) = (JobLog::new(room), plan.body, Arc::clone(shared));
            let shutdown = Arc::clone(&shutdown);
            let (start, started) = channel();
            starts.push(start);
            let (report, leave) = (report.clone(), leave.clone());
            let name = format!("exec-task{}", task.0);
            workers.push(Builder::new().name(name).spawn_scoped(scope, move || {
                // The receiver waits for it.
                let _ = report.send((task, native::worker::enter(cpu, policy)));
                drop(report);
                let log =
                    native::worker::run(task, (&shared, &shutdown), queue, log, body, &started);
                let _ = leave.send((task, log));
            })?);
        }
        drop(report);
        let mut tids = Vec::new();
        for (task, entered) in reported.iter().take(tasks) {
            tids.push((task, entered.map_err(|error| explain_refusal(error, cpu, &guarantee))?));
        }
        tids.sort_unstable_by_key(|&(task, _)| task);
        assert_eq!(tids.len(), tasks, "each thread reports");
        *shared.worker_tids.lock() = tids.into_iter().map(|(_, tid)| tid).collect();
        let driver = Driver::Linux {
            guarantee,
            reason,
            max_period,
            starts,
            shutdown,
            logs: Mutex::new(logs),
        };
        Ok(RootThreads { cpus: root.cpus, driver })
    }

    pub(super) fn monitor_policy(&self) -> MonitorPolicy {
        match &self.driver {
            Driver::Linux { guarantee: Guarantee::Deadlines(_), .. } => MonitorPolicy::Deadline,
            _ => MonitorPolicy::Fifo,
        }
    }

    /// Returns the time from the start message until workers with reservations, and their monitor,
    /// have a full budget. What they consume before that time belongs to an earlier budget.
    pub(super) fn warmup_time(&self) -> Span {
        match (&self.driver, self.monitor_policy()) {
            (Driver::Linux { max_period, .. }, MonitorPolicy::Deadline) => {
                (*max_period).max(RESERVATION_WARMUP)
            }
            _ => Span::ZERO,
        }
    }

    /// Sends the start of the run to the workers.
    pub(super) fn begin(&self, clock: RunClock) {
        match &self.driver {
            Driver::Engine { state, step_handle, .. } => {
                if let Some(step_handle) = step_handle {
                    step_handle.set(StepHandle::new(Arc::clone(state), clock)).expect("set once");
                }
            }
            Driver::Linux { starts, .. } => {
                for start in starts {
                    // A worker that panicked has cancelled the run.
                    let _ = start.send(clock);
                }
            }
        }
    }

    /// Returns the message of a panic in a step.
    pub(super) fn panic_message(&self) -> Option<String> {
        match &self.driver {
            Driver::Engine { state, .. } => state.lock().panic_message().map(str::to_owned),
            Driver::Linux { .. } => None,
        }
    }

    /// Returns the state of the engine.
    pub(super) fn state(&self) -> Option<&Arc<PiMutex<LiveState>>> {
        match &self.driver {
            Driver::Engine { state, .. } => Some(state),
            Driver::Linux { .. } => None,
        }
    }

    /// Builds the report of the root until `end`. Called when all threads have left.
    pub(super) fn report(
        &self,
        stats: Vec<DispatcherStats>,
        end: Time,
        programs: Vec<Option<ProgramReport>>,
    ) -> RootReport {
        let (state, choice) = match &self.driver {
            Driver::Engine { state, choice, .. } => (state, choice.clone()),
            Driver::Linux { guarantee, reason, logs, .. } => {
                let logs = logs.lock().unwrap_or_else(PoisonError::into_inner);
                let mut logs: Vec<(TaskId, JobLog)> = logs.try_iter().collect();
                logs.sort_unstable_by_key(|&(task, _)| task);
                let logs = logs.into_iter().map(|(_, log)| log).collect();
                return self::linux_report(guarantee, reason, logs, end, stats, programs);
            }
        };
        let mut state = state.lock();
        let (record, lost) = record::merge(state.take_logs());
        let root = &state.executor;
        root.save_flows();
        let consumed = root.mechanism().consumed().to_vec();
        let stopped_times = (0..consumed.len() as u32)
            .map(|task| root.mechanism().inner().stopped_time(TaskId(task)));
        let stopped_times = stopped_times.collect();
        let mut stretches = [root.mechanism().lost_times().all(), root.late_wakeups()].concat();
        stretches.sort_by_key(|stretch| stretch.to);
        let (refused, tallies) = (root.refused(), root.job_stats());
        RootReport {
            mechanism: choice,
            native: None,
            record,
            lost,
            dispatchers: stats,
            consumed,
            refused,
            job_stats: tallies,
            programs,
            holds: root.holds(),
            stopped_times,
            lost_times: stretches,
            executed: None,
            idle: None,
        }
    }
}

/// Builds the report of a root that Linux scheduled, from the logs of its workers.
fn linux_report(
    guarantee: &Guarantee,
    reason: &str,
    logs: Vec<JobLog>,
    end: Time,
    stats: Vec<DispatcherStats>,
    programs: Vec<Option<ProgramReport>>,
) -> RootReport {
    let consumed = logs.iter().map(|log| Consumed::new(log.ordered, log.total)).collect();
    let (refused, lost) =
        (logs.iter().map(|log| log.refusals).sum(), logs.iter().map(|log| log.lost).sum());
    let (jobs, refused_arrivals) =
        logs.into_iter().map(|log| (log.jobs, log.refused_arrivals)).unzip();
    let report =
        native::NativeReport { guarantee: guarantee.clone(), jobs, refused: refused_arrivals };
    RootReport {
        mechanism: MechanismChoice { kind: MechanismKind::Linux, reason: reason.to_owned() },
        record: Vec::new(),
        lost,
        dispatchers: stats,
        consumed,
        refused,
        job_stats: report.job_stats(),
        holds: Vec::new(),
        stopped_times: vec![None; programs.len()],
        programs,
        lost_times: report.lost_times(None, end),
        executed: None,
        idle: None,
        native: Some(report),
    }
}

/// Returns the number of jobs that a task may have.
fn job_capacity(load: &Load, options: &Options) -> usize {
    let jobs = match &load.arrivals {
        Arrivals::List(list) => list.len(),
        Arrivals::Periodic { period, .. } => {
            let jobs = options.duration.as_ns() / period.as_ns().max(1) + 2;
            usize::try_from(jobs).unwrap_or(MAX_RECORD_CAPACITY)
        }
        Arrivals::OnDemand => 0,
    };
    jobs.min(options.record_capacity)
}

/// Converts the error of a worker that did not get its policy, and explains the refusal.
fn explain_refusal(error: io::Error, cpu: u32, guarantee: &Guarantee) -> Failure {
    let domain = || Some(SystemInfo::probe().ok()?.domain_of(cpu)?.cpus);
    match (guarantee, error.kind()) {
        (Guarantee::Deadlines(_), io::ErrorKind::PermissionDenied) => match domain() {
            Some(domain) if domain.len() > 1 => Failure::Plan(format!(
                "SCHED_DEADLINE threads cannot be pinned to CPU {cpu}: it shares its root domain with others ({domain}), and needs \
                 a cpuset partition of its own"
            )),
            _ => error.into(),
        },
        (Guarantee::Deadlines(_), io::ErrorKind::ResourceBusy) => Failure::Plan(format!(
            "the kernel's admission test has no room for the reservations on CPU {cpu}, budgets in their deadlines: one CPU holds 90 % \
             (95 % before Linux 6.12)"
        )),
        _ => error.into(),
    }
}

/// Spawns a worker for each body, and waits until all workers are ready.
fn spawn_workers<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &Arc<RootShared>,
    step_handle: &StepHandleCell,
    priorities: PriorityMap,
    bodies: Vec<JobBody<'a>>,
    workers: &mut Vec<ScopedJoinHandle<'scope, ()>>,
) -> Result<Vec<WorkerThread>, Failure> {
    let (report, reported) = channel();
    let count = bodies.len();
    for (task, body) in (0..).map(TaskId).zip(bodies) {
        let (shared, step_handle, report) =
            (Arc::clone(shared), Arc::clone(step_handle), report.clone());
        let name = format!("exec-task{}", task.0);
        workers.push(Builder::new().name(name).spawn_scoped(scope, move || {
            worker::run(task, &shared, &step_handle, priorities, body, move |identity| {
                // The receiver waits for it.
                let _ = report.send((task, identity));
            });
        })?);
    }
    drop(report);
    let mut worker_threads: Vec<Option<WorkerThread>> = vec![None; count];
    for (task, identity) in reported.iter().take(count) {
        worker_threads[task.0 as usize] = Some(identity?);
    }
    let worker_threads: Vec<WorkerThread> = worker_threads.into_iter().flatten().collect();
    assert_eq!(worker_threads.len(), count, "each thread reports");
    let tids = worker_threads.iter().map(|identity| identity.tid).collect();
    *shared.worker_tids.lock() = tids;
    Ok(worker_threads)
}
