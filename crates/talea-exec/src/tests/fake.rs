//! Simulated threads: workers are numbers, CPUs run at full speed, and dispatchers wake when
//! planned.

use crate::executor::{Executor, StepContext};
use crate::job_stats::JobStats;
use crate::load::Load;
use crate::lost_time::LostTime;
use crate::mailbox::Batch;
use crate::mechanism::{Deferred, Mechanism};
use crate::record::{Log, RecordEntry, merge};
use crate::schedule_log::ScheduleLog;
use crate::work::{DeviceWait, Job};
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use talea_core::engine::{Condition, Cpu, TaskId, Tree};
use talea_core::workload::Workload;
use talea_core::{Span, Time, Work};
use talea_sim::Simulation;

#[derive(Clone, Copy, Debug, Default)]
struct FakeWorker {
    used: u64,
    /// Remaining work of the worker's job.
    left: Option<u64>,
    /// Wait for a device in place of work.
    wait: Option<DeviceWait>,
    /// CPU on which the worker may run.
    cpu: Option<usize>,
    /// Time at which the worker's own timer wakes it, if it has a job for which it was not woken.
    awake: u64,
    /// Level of the worker; level 0 is the highest.
    level: u8,
}

/// State that the mechanism and the test share.
#[derive(Debug, Default)]
pub(super) struct Threads {
    workers: Vec<FakeWorker>,
    now: u64,
    /// Time from which workers continue.
    from: u64,
    /// Worker that makes the step; `None` if a dispatcher makes it.
    stepping_worker: Option<TaskId>,
    /// Task to which another worker assigned a job in this step.
    assigned: Option<TaskId>,
    pub(super) stops: u64,
    /// Number of dispatches of a task whose level is no higher than that of a preempted one.
    level_inversions: u64,
}

impl Threads {
    /// Gives the CPU to the dispatcher until `to`. The switch back to the worker takes another
    /// `switch`.
    fn lose(&mut self, to: u64, switch: u64) {
        self.now = to;
        self.from = to + switch;
    }

    /// Advances the dispatched workers to `to`.
    fn advance(&mut self, to: u64) {
        let from = self.now.max(self.from);
        self.now = to;
        for worker in self.workers.iter_mut().filter(|worker| worker.cpu.is_some()) {
            let passed = to.saturating_sub(from.max(worker.awake));
            worker.used += if worker.wait.is_none_or(|wait| wait.is_spinning) { passed } else { 0 };
            worker.left = worker.left.map(|left| left - passed);
        }
    }

    fn first_end(&self) -> u64 {
        let running = self.workers.iter().filter(|worker| worker.cpu.is_some());
        running
            .filter_map(|worker| Some((worker.awake, worker.left?)))
            .map(|(awake, left)| self.now.max(self.from).max(awake) + left)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Whether a worker whose timer wakes it at `awake` gets the CPU, of a root with one.
    fn would_get_cpu(&self, task: usize, awake: u64) -> bool {
        let mut running = self.workers.iter().filter(|worker| worker.cpu.is_some());
        running.all(|running| self.workers[task].level < running.level || awake < running.awake)
    }

    /// Returns the workers whose job has just ended, with their CPUs.
    fn ended(&self) -> Vec<(TaskId, usize)> {
        let over =
            |(task, worker): (u32, &FakeWorker)| Some((TaskId(task), worker.cpu?, worker.left?));
        let all = (0..).zip(&self.workers).filter_map(over);
        all.filter(|&(.., left)| left == 0).map(|(task, cpu, _)| (task, cpu)).collect()
    }

    /// Checks a dispatch of `task` on a root with one CPU: preempted workers have lower levels, if
    /// levels are preemption levels.
    fn check_levels(&mut self, task: usize) {
        let level = self.workers[task].level;
        let others = self
            .workers
            .iter()
            .enumerate()
            .filter(|&(other, worker)| other != task && worker.left.is_some());
        self.level_inversions += u64::from(
            others.into_iter().any(|(_, worker)| worker.cpu.is_none() && worker.level <= level),
        );
    }

    /// Checks that each CPU has one worker at most.
    fn check(&self) {
        let mut taken: Vec<usize> = self.workers.iter().filter_map(|worker| worker.cpu).collect();
        let running = taken.len();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), running, "two workers on one CPU: {self:?}");
    }
}

/// Mechanism that moves the simulated workers.
#[derive(Clone, Debug)]
pub(super) struct Fake(pub(super) Rc<RefCell<Threads>>);

impl Fake {
    pub(super) fn new(tasks: usize) -> Fake {
        let workers = vec![FakeWorker::default(); tasks];
        Fake(Rc::new(RefCell::new(Threads { workers, ..Threads::default() })))
    }

    /// Runs the dispatched workers until `now`.
    pub(super) fn work_until(&self, now: u64) {
        self.0.borrow_mut().advance(now);
    }
}

impl Mechanism for Fake {
    type Error = Infallible;

    fn cpu_time(&mut self, task: TaskId) -> Result<Work, Infallible> {
        Ok(Work::from_ns(self.0.borrow().workers[task.0 as usize].used))
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> Result<(), Infallible> {
        let mut threads = self.0.borrow_mut();
        if threads.stepping_worker == Some(task) {
            let level = threads.workers[task.0 as usize].level;
            let is_there =
                |worker: &FakeWorker| worker.cpu == Some(cpu.0 as usize) && worker.level <= level;
            assert!(
                !threads.workers.iter().any(is_there),
                "the stepping worker waits behind one that is not stopped"
            );
        } else if threads.stepping_worker.is_some() {
            threads.assigned = Some(task);
        }
        threads.check_levels(task.0 as usize);
        let now = threads.now;
        let worker = &mut threads.workers[task.0 as usize];
        assert_eq!((worker.left, worker.cpu), (None, None), "it has a job");
        let left = |wait: DeviceWait| wait.until.as_ns().saturating_sub(now);
        (worker.left, worker.wait) = (Some(job.wait.map_or(job.cost.as_ns(), left)), job.wait);
        (worker.cpu, worker.awake) = (Some(cpu.0 as usize), 0);
        Ok(())
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> Result<(), Infallible> {
        let mut threads = self.0.borrow_mut();
        let now = threads.now;
        threads.check_levels(task.0 as usize);
        let worker = &mut threads.workers[task.0 as usize];
        assert!(worker.left.is_some(), "it has no job");
        // The device has worked meanwhile.
        if let Some(wait) = worker.wait {
            worker.left = Some(wait.until.as_ns().saturating_sub(now));
        }
        worker.cpu = Some(cpu.0 as usize);
        Ok(())
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, _successor: bool) -> Result<(), Infallible> {
        let mut threads = self.0.borrow_mut();
        let worker = &mut threads.workers[task.0 as usize];
        assert_eq!(worker.cpu.take(), Some(cpu.0 as usize), "it runs elsewhere");
        threads.stops += 1;
        Ok(())
    }

    fn complete(&mut self, task: TaskId) -> Result<(), Infallible> {
        let worker = &mut self.0.borrow_mut().workers[task.0 as usize];
        assert_eq!(worker.left.take(), Some(0), "it has work left");
        worker.cpu = None;
        Ok(())
    }

    fn set_levels(&mut self, levels: &[u8]) -> Result<(), Infallible> {
        for (worker, &level) in self.0.borrow_mut().workers.iter_mut().zip(levels) {
            worker.level = level;
        }
        Ok(())
    }

    fn unpark(&mut self, task: TaskId) -> Result<(), Infallible> {
        let threads = self.0.borrow();
        assert!(threads.stepping_worker.is_none_or(|by| by == task), "it does not step");
        let worker = &threads.workers[task.0 as usize];
        assert_eq!((worker.left, worker.cpu), (None, None), "it has a job");
        Ok(())
    }

    fn take_deferred(&mut self) -> Deferred {
        Deferred { wake: self.0.borrow().assigned, ..Deferred::default() }
    }

    fn idle(&mut self, cpu: Cpu) -> Result<(), Infallible> {
        let threads = self.0.borrow();
        assert!(
            threads.workers.iter().all(|worker| worker.cpu != Some(cpu.0 as usize)),
            "a worker runs"
        );
        Ok(())
    }
}

/// Result of a run.
pub(super) struct RunResult {
    pub(super) log: ScheduleLog,
    pub(super) record: Vec<RecordEntry>,
    pub(super) stops: u64,
    pub(super) steps: u64,
    /// Steps by workers at the end of a segment.
    pub(super) worker_completions: u64,
    /// Steps by workers at the expiry of a release timer.
    pub(super) worker_releases: u64,
    /// Number of jobs whose worker was not woken, because its own timer wakes it.
    pub(super) already_awake: u64,
    pub(super) job_stats: Vec<JobStats>,
    pub(super) refused: u64,
    /// Number of dispatches of a task whose level is no higher than that of a preempted one.
    pub(super) level_inversions: u64,
    /// Late wake-ups of dispatchers, and of workers that step in place of a dispatcher.
    pub(super) late_wakeups: Vec<LostTime>,
}

/// Runs `tree` until `until`. Each timer wakes a dispatcher late by `late`.
pub(super) fn run(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    late: impl FnMut() -> Span,
) -> RunResult {
    run_with(tree, workload, until, (Span::ZERO, Span::ZERO), late)
}

/// Variant of [`run`] with steps that keep all CPUs busy for `effort`, and switches to workers that
/// take `switch`.
pub(super) fn run_with(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    (effort, switch): (Span, Span),
    late: impl FnMut() -> Span,
) -> RunResult {
    run_in(tree, workload, until, (effort, switch), Vec::new(), late)
}

/// Variant of [`run`] with changes of conditions.
pub(super) fn run_in(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    (effort, switch): (Span, Span),
    changes: Vec<(Time, Condition)>,
    late: impl FnMut() -> Span,
) -> RunResult {
    run_with_worker_steps(tree, workload, until, (effort, switch), changes, |_| false, late)
}

/// Variant of [`run`] with steps by workers at the end of a segment, if `may` allows the step. The
/// argument of `may` is the number of steps.
pub(super) fn run_with_worker_steps(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    (effort, switch): (Span, Span),
    changes: Vec<(Time, Condition)>,
    may: impl FnMut(u64) -> bool,
    late: impl FnMut() -> Span,
) -> RunResult {
    run_all(tree, workload, until, (effort, switch), changes, may, late, None)
}

/// Variant of [`run`] with steps by workers, and with release timers on `room` levels. The timers
/// are late by `late`, as those of dispatchers are.
pub(super) fn run_with_release_timers(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    room: u8,
    changes: Vec<(Time, Condition)>,
    late: impl FnMut() -> Span,
) -> RunResult {
    let none = (Span::ZERO, Span::ZERO);
    run_all(tree, workload, until, none, changes, |_| true, late, Some((room, &mut || None)))
}

/// Activations by the test.
type Activations<'a> = &'a mut dyn FnMut() -> Option<TaskId>;

/// Variant of [`run`] with an activation of the task that `activations` returns, at each end of a
/// segment.
pub(super) fn run_with_activations(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    room: u8,
    activations: Activations<'_>,
    late: impl FnMut() -> Span,
) -> RunResult {
    let none = (Span::ZERO, Span::ZERO);
    run_all(tree, workload, until, none, Vec::new(), |_| true, late, Some((room, activations)))
}

#[allow(clippy::too_many_arguments, reason = "all parameters of a run")]
fn run_all(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    (effort, switch): (Span, Span),
    changes: Vec<(Time, Condition)>,
    mut may: impl FnMut(u64) -> bool,
    mut late: impl FnMut() -> Span,
    mut timers_option: Option<(u8, Activations<'_>)>,
) -> RunResult {
    let cpus = tree.cpus as usize;
    let engine = tree.build().expect("a valid tree");
    let has_accounting = engine.needs_accounting();
    let fake = Fake::new(engine.tasks());
    let drawn = talea_sim::generate_jobs(workload, until, |_| 1_000);
    let loads = drawn
        .into_iter()
        .zip(&workload.sources)
        .map(|(drawn, source)| Load::generated(&drawn.arrivals, drawn.costs, source.cost.clone()));
    let Ok(mut root) =
        Executor::new(engine, cpus, fake.clone(), loads.collect(), changes, Vec::new());
    if let Some((room, _)) = timers_option {
        let Ok(()) = root.enable_release_timers(room);
    }
    // As of any dispatcher; with budgets it would check earlier than the simulator does.
    for cpu in (0..cpus).filter(|_| !has_accounting) {
        root.calibrate_latency(cpu, Span::from_ns(5_000));
    }
    let mut logs: Vec<Log> = (0..cpus).map(|_| Log::new(1 << 16)).collect();
    let mut due = vec![0; cpus];
    // Timer of each worker. It gets the CPU if that is idle or runs a task of a lower level.
    let mut timers = vec![TimerState::NONE; workload.sources.len()];
    let (mut steps, mut worker_completions, mut worker_releases, mut already_awake) = (0, 0, 0, 0);
    loop {
        let first = fake.0.borrow().first_end().min(due.iter().copied().min().expect("a CPU"));
        for (timer, worker) in timers.iter_mut().zip(&fake.0.borrow().workers) {
            // A woken worker sleeps no more.
            *timer = if worker.left.is_some() { TimerState::NONE } else { *timer };
        }
        let (timer, sleeper) = {
            let threads = fake.0.borrow();
            let timers = timers
                .iter()
                .enumerate()
                .filter(|&(task, timer)| threads.would_get_cpu(task, timer.awake));
            timers.map(|(task, timer)| (timer.awake, task as u32)).min().unwrap_or((u64::MAX, 0))
        };
        if timer < first.min(until.as_ns()) {
            let now = timer.max(fake.0.borrow().now);
            fake.0.borrow_mut().advance(now);
            timers[sleeper as usize] = TimerState::NONE;
            let (task, now) = (TaskId(sleeper), Time::from_ns(now));
            if root.on_timer_expired(task, now) {
                let context = StepContext { cpu: 0, worker: Some(task) };
                fake.0.borrow_mut().stepping_worker = context.worker;
                let Ok(()) = root.step(context, now, &Batch::default(), &mut logs[0]);
                (steps, worker_releases) = (steps + 1, worker_releases + 1);
                let Ok(timer) = root.arm_release_timer(task);
                timers[sleeper as usize] = TimerState::of(timer, &mut late);
                already_awake += u64::from(is_already_awake(&mut root, &fake, &timers));
                root.notify_late_dispatchers(0, |other| due[other] = now.as_ns());
            }
            continue;
        }
        // An event during a dispatcher's step is handled after it.
        let now = first.max(fake.0.borrow().now);
        if now >= until.as_ns() {
            break;
        }
        fake.0.borrow_mut().advance(now);
        let ended = fake.0.borrow().ended();
        let awake = due.iter().position(|&due| due <= now);
        // A worker reports only its own end. Two ends at one instant, in two steps, have no
        // counterpart in the simulator.
        let alone = if let [one] = ended[..] { Some(one) } else { None };
        let worker = alone.filter(|_| awake.is_none() && !root.needs_accounting() && may(steps));
        let activations =
            worker.and(timers_option.as_mut()).and_then(|(_, activations)| activations());
        let activations = activations.into_iter().map(|task| (task, 1)).collect();
        let completed = ended.into_iter().map(|(task, _)| task).collect();
        let batch = Batch { completed, activations, ..Batch::default() };
        // The choice of the dispatcher matters only for wake-ups.
        let cpu = worker.map_or(awake.unwrap_or(0), |(_, cpu)| cpu);
        let context = StepContext { cpu, worker: worker.map(|(task, _)| task) };
        fake.0.borrow_mut().stepping_worker = context.worker;
        let Ok(()) = root.step(context, Time::from_ns(now), &batch, &mut logs[cpu]);
        fake.0.borrow().check();
        steps += 1;
        assert!(steps < 1_000_000, "no progress at {now}");
        let mut rung = Vec::new();
        let asleep = now + effort.as_ns();
        fake.0.borrow_mut().lose(asleep, switch.as_ns());
        if worker.is_some() {
            worker_completions += 1;
            for &task in &batch.completed {
                let Ok(timer) = root.arm_release_timer(task);
                timers[task.0 as usize] = TimerState::of(timer, &mut late);
            }
            already_awake += u64::from(is_already_awake(&mut root, &fake, &timers));
            root.notify_late_dispatchers(cpu, |other| due[other] = asleep);
            continue;
        }
        let armed = root.next_wakeup(cpu, Time::from_ns(asleep), |other| rung.push(other)).as_ns();
        due[cpu] = armed.saturating_add(late().as_ns());
        for other in rung {
            due[other] = asleep;
        }
    }
    root.finish_run(until, &mut logs[0]);
    let (record, lost) = merge(logs);
    assert_eq!(lost, 0);
    let (stops, level_inversions) = (fake.0.borrow().stops, fake.0.borrow().level_inversions);
    let (job_stats, refused, late_wakeups) =
        (root.job_stats(), root.refused(), root.late_wakeups().to_vec());
    let log = ScheduleLog::from_record(tree.cpus, &record);
    RunResult {
        log,
        record,
        stops,
        steps,
        worker_completions,
        worker_releases,
        already_awake,
        job_stats,
        refused,
        level_inversions,
        late_wakeups,
    }
}

/// Timer of a sleeping worker.
#[derive(Clone, Copy)]
struct TimerState {
    /// Planned time.
    expires_at: u64,
    /// Time at which the worker wakes.
    awake: u64,
}

impl TimerState {
    const NONE: TimerState = TimerState { expires_at: u64::MAX, awake: u64::MAX };

    fn of(until: Option<Time>, late: &mut impl FnMut() -> Span) -> TimerState {
        let of = |until: Time| TimerState {
            expires_at: until.as_ns(),
            awake: until.as_ns().saturating_add(late().as_ns()),
        };
        until.map_or(TimerState::NONE, of)
    }
}

/// Whether the worker that got a job in this step is not woken. Then its own timer, due by now,
/// must wake it, and its job starts at that time.
fn is_already_awake(root: &mut Executor<Fake>, fake: &Fake, timers: &[TimerState]) -> bool {
    let after = root.take_deferred();
    let Some(given) = fake.0.borrow_mut().assigned.take() else { return false };
    let is_already_awake = after.wake != Some(given);
    if is_already_awake {
        let timer = timers[given.0 as usize];
        assert!(timer.expires_at != u64::MAX, "{given:?} misses its job");
        assert!(
            timer.expires_at <= root.now().as_ns(),
            "{given:?} sleeps on until {}",
            timer.expires_at
        );
        fake.0.borrow_mut().workers[given.0 as usize].awake = timer.awake;
    }
    is_already_awake
}

/// Simulates `tree` with `workload` until `until`.
pub(super) fn simulate(tree: &Tree, workload: &Workload, until: Time) -> ScheduleLog {
    simulate_in(tree, workload, until, Vec::new())
}

/// Variant of [`simulate`] with changes of conditions.
pub(super) fn simulate_in(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    changes: Vec<(Time, Condition)>,
) -> ScheduleLog {
    let mut world = Simulation::new(tree.build().expect("a valid tree"), tree.cpus, workload);
    if !changes.is_empty() {
        world = world.with_condition_changes(changes);
    }
    let mut log = ScheduleLog::new(tree.cpus);
    world.run(until, &mut log);
    log.end_instant();
    log
}
