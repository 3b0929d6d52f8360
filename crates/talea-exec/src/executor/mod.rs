//! Executor of one root: its engine, its mechanism, and the body of a step. No threads and no
//! clock.
//!
//! A step handles one instant as the simulator does:
//!
//! 1. CPU accounting: charge what the running workers have consumed.
//! 2. Overdue releases ([`release_timers`]).
//! 3. Completed segments, of workers and of idle programs.
//! 4. Suspensions that are over, changes of conditions, activations, a stop request.
//! 5. Releases that are due, and programs that woke.
//! 6. Orders, until the engine has no more.
//! 7. The mechanism applies the difference to the last step.
//!
//! Dispatchers step, and so do workers at the end of a segment or at their release, one after the
//! other under a lock ([`root_state`](crate::root_state)). The stepping thread applies the orders
//! for all CPUs.
//!
//! A worker is charged the difference between its CPU clock and the last charged value, whenever
//! that is read. So what it consumes after it was stopped on another CPU, or between two jobs, is
//! charged when it next runs.
//!
//! [`segments`]: segments of a job and the steps between them; [`wakeup`]: wake-up times of
//! dispatchers; [`release_timers`]: workers that wake themselves.

mod release_timers;
mod segments;
mod wakeup;

use crate::flow::Flow;
use crate::job_stats::JobStats;
use crate::load::{Cursor, Load};
use crate::lost_time::{LostTime, LostTimes};
use crate::mailbox::Batch;
use crate::mechanism::{Deferred, Mechanism};
use crate::record::{Log, RecordEntry, RecordKind};
use release_timers::ReleaseTimers;
use segments::Segment;
use std::sync::Arc;
use talea_core::engine::{
    ChannelId, Condition, Cpu, Engine, Event, Handled, Notification, Order, TaskId,
};
use talea_core::heap::Heap;
use talea_core::mutate;
use talea_core::workload::job_program::JobProgram;
use talea_core::{Span, Time, Work};
use wakeup::{SleepState, WakeupEstimator};

/// Smallest remainder of a budget for which a dispatcher sleeps. A shorter remainder is charged at
/// once, because sleeping costs more.
pub(crate) const MIN_REMAINDER: Span = Span::from_ns(4_000);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Assignment {
    task: TaskId,
    job: u64,
    version: u32,
}

/// Thread that steps: the dispatcher of a CPU, or a worker that runs there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepContext {
    pub(crate) cpu: usize,
    pub(crate) worker: Option<TaskId>,
}

/// Executor of one root.
#[derive(Debug)]
pub(crate) struct Executor<M> {
    engine: Engine,
    mechanism: M,
    loads: Vec<Cursor>,
    /// `arrivals`: next arrival of each task.
    arrivals: Heap,
    /// Arrivals for which the executor has to wake a dispatcher.
    dispatcher_alarms: Heap,
    timers: ReleaseTimers,
    /// `running[c]`: assignment of CPU `c` as the mechanism knows it.
    running: Vec<Option<Assignment>>,
    /// `ordered[c]`: assignment of CPU `c` as ordered in this step.
    ordered: Vec<Option<Assignment>>,
    /// `begun_jobs[n]`: number of the job of task `n` that has started and not ended.
    begun_jobs: Vec<Option<u64>>,
    /// `segments[n]`: state of the current segment of task `n`.
    segments: Vec<Segment>,
    /// `scripts[n]`: job program of task `n`.
    scripts: Vec<Option<JobProgram>>,
    /// `flows[n]`: flow of channel `n`, if jobs move tokens explicitly. Empty if no job does.
    flows: Vec<Arc<Flow>>,
    /// `channels_of[n]`: channels of which task `n` is an end.
    channels_of: Vec<Vec<ChannelId>>,
    /// End of the suspension of each suspended task, as a heap.
    resumptions: Heap,
    /// Changes of battery, mode and permissions, in order of time. `next_change` is the index of
    /// the next change.
    changes: Vec<(Time, Condition)>,
    next_change: usize,
    /// `charged[n]`: value of the CPU clock of task `n`'s worker up to which the engine was
    /// charged.
    charged: Vec<Work>,
    /// `wakeups[c]`: latest time at which the dispatcher of CPU `c` is awake.
    wakeups: Vec<Time>,
    /// `sleeps[c]`: sleep of the dispatcher of CPU `c`.
    sleeps: Vec<SleepState>,
    /// `estimators[c]`: wake-up estimator of the dispatcher of CPU `c`.
    estimators: Vec<WakeupEstimator>,
    /// `remainder_charged[c]`: whether this step has charged a negligible remainder on CPU `c`.
    remainder_charged: Vec<bool>,
    now: Time,
    entry_count: u64,
    refused: u64,
    /// `job_stats[n]`: statistics of the jobs of task `n`.
    job_stats: Vec<JobStats>,
    /// Late wake-ups of dispatchers, and of workers that step in place of a dispatcher.
    late_wakeups: LostTimes,
    stopped: bool,
    closed: bool,
}

impl<M: Mechanism> Executor<M> {
    /// Creates an executor at time zero. The caller passes `changes` in order of time.
    ///
    /// # Panics
    /// If there is not one load for each task of the engine.
    pub(crate) fn new(
        mut engine: Engine,
        cpus: usize,
        mut mechanism: M,
        loads: Vec<Load>,
        changes: Vec<(Time, Condition)>,
        flows: Vec<Arc<Flow>>,
    ) -> Result<Self, M::Error> {
        let tasks = engine.tasks();
        assert_eq!(tasks, loads.len(), "one load for each task");
        let charged = (0..tasks)
            .map(|task| mechanism.cpu_time(TaskId(task as u32)))
            .collect::<Result<_, _>>()?;
        // Tokens that a previous run left.
        let tokens: Vec<u32> = flows.iter().map(|flow| flow.visible()).collect();
        engine.keep_tokens(mutate!("exec-resume-tokens", &tokens, &[]));
        let script = |(task, load): (u32, &Load)| {
            if load.explicit_tokens {
                return None;
            }
            let (inputs, outputs): (Vec<_>, Vec<_>) =
                (engine.inputs(TaskId(task)).collect(), engine.outputs(TaskId(task)).collect());
            JobProgram::new(&load.marks, &inputs, &outputs)
        };
        let mut channels_of = vec![Vec::new(); tasks];
        for (flow, channel) in flows.iter().zip((0..).map(ChannelId)) {
            mutate!(
                "exec-segment-ends",
                flow.endpoints().for_each(|task| channels_of[task.0 as usize].push(channel)),
                flow.endpoints()
                    .take(1)
                    .for_each(|task| channels_of[task.0 as usize].push(channel))
            );
        }
        let mut root = Executor {
            channels_of,
            scripts: (0..).zip(&loads).map(script).collect(),
            engine,
            mechanism,
            loads: loads.into_iter().map(Cursor::new).collect(),
            arrivals: Heap::new(tasks),
            dispatcher_alarms: Heap::new(tasks),
            timers: ReleaseTimers::new(tasks),
            running: vec![None; cpus],
            ordered: vec![None; cpus],
            begun_jobs: vec![None; tasks],
            segments: vec![Segment::None; tasks],
            resumptions: Heap::new(tasks),
            changes,
            next_change: 0,
            flows,
            charged,
            wakeups: vec![Time::ZERO; cpus],
            sleeps: vec![SleepState::NONE; cpus],
            estimators: vec![WakeupEstimator::INITIAL; cpus],
            remainder_charged: vec![false; cpus],
            now: Time::ZERO,
            entry_count: 0,
            refused: 0,
            job_stats: vec![JobStats::default(); tasks],
            late_wakeups: LostTimes::new(),
            stopped: false,
            closed: false,
        };
        for task in 0..tasks as u32 {
            root.schedule_next_release(TaskId(task));
        }
        Ok(root)
    }

    /// Closes the executor: later steps change nothing.
    pub(crate) fn close(&mut self) {
        if !std::mem::replace(&mut self.closed, true) {
            self.mechanism.shut_down();
        }
    }

    /// Records a wake-up at `now`, planned for `due`: of the dispatcher of `cpu`, or of a worker
    /// that steps in place of that dispatcher.
    pub(crate) fn record_wakeup(&mut self, cpu: usize, due: Time, now: Time) {
        self.late_wakeups.push(LostTime {
            cpu: cpu as u32,
            from: due,
            to: now,
            amount: now.since(due),
        });
    }

    /// Returns the late wake-ups of dispatchers, and of workers that step in place of a dispatcher.
    pub(crate) fn late_wakeups(&self) -> &[LostTime] {
        self.late_wakeups.all()
    }

    /// Returns what the stepping worker has to do after it has released the lock.
    pub(crate) fn take_deferred(&mut self) -> Deferred {
        let deferred = self.mechanism.take_deferred();
        Deferred {
            wake: deferred.wake.filter(|&task| !self.timers.is_already_awake(task)),
            ..deferred
        }
    }

    /// Returns the time of the last step.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Whether the CPU time consumed on any CPU must be accounted while it runs.
    pub(crate) fn needs_accounting(&self) -> bool {
        (0..self.running.len() as u32).any(|cpu| self.engine.is_accounted(Cpu(cpu)))
    }

    /// Returns the statistics of the jobs of each task: element `n` for task `n`.
    pub(crate) fn job_stats(&self) -> &[JobStats] {
        &self.job_stats
    }

    /// Returns the number of jobs that were refused because a backlog was full.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Saves the tokens of the channels in the flows, for another run.
    pub(crate) fn save_flows(&self) {
        for (at, flow) in self.flows.iter().enumerate() {
            flow.reset_to(self.engine.unclaimed(ChannelId(at as u32)));
        }
    }

    /// Returns the mechanism. Called when the run is over.
    pub(crate) fn mechanism(&self) -> &M {
        &self.mechanism
    }

    fn record(&mut self, log: &mut Log, what: RecordKind) {
        log.push(RecordEntry { number: self.entry_count, now: self.now, kind: what });
        self.entry_count += 1;
    }

    fn handle(&mut self, log: &mut Log, event: Event) -> Handled {
        self.record(log, RecordKind::Event(event));
        self.engine.handle(self.now, event)
    }

    /// Whether a stop was requested and all released jobs have ended.
    pub(crate) fn is_done(&self) -> bool {
        let tasks = (0..self.begun_jobs.len() as u32).map(TaskId);
        self.stopped && tasks.into_iter().all(|task| self.engine.unfinished(task).next().is_none())
    }

    /// Makes a step of one instant with the events of a batch.
    pub(crate) fn step(
        &mut self,
        context: StepContext,
        clock: Time,
        batch: &Batch,
        log: &mut Log,
    ) -> Result<(), M::Error> {
        if self.closed {
            return Ok(());
        }
        // Two CPUs may get the lock in another order than they read the clock.
        self.now = self.now.max(clock);
        self.mechanism.begin_decision(self.now, context.worker);
        mutate!(
            "exec-release-timer-renew",
            {
                self.timers.begin_step();
            },
            {}
        );

        self.record(log, RecordKind::Step);
        self.remainder_charged.fill(false);
        mutate!(
            "exec-loop-charge",
            for cpu in 0..self.running.len() {
                self.charge(cpu, log)?;
            },
            if batch.completed.is_empty() {
                for cpu in 0..self.running.len() {
                    self.charge(cpu, log)?;
                }
            }
        );
        mutate!(
            "exec-release-timer-late",
            {
                self.deliver_overdue_releases(log);
            },
            {}
        );

        for &task in &batch.completed {
            self.mechanism.complete(task)?;
            self.advance_job(task, log);
        }
        self.complete_idle_programs(log)?;
        self.deliver_timed_events(log);
        for &event in batch
            .events
            .iter()
            .filter(|&&event| mutate!("exec-stop-asked", event != Event::Stopped, true))
        {
            let _ = self.handle(log, event);
        }
        for &(task, count) in &batch.activations {
            self.activate(task, count, log);
        }
        // An activation before a stop request, by the same thread, was read before it.
        if batch.events.contains(&Event::Stopped) {
            self.stopped = true;
            let _ = self.handle(log, Event::Stopped);
        }
        while let Some((at, task)) = self.arrivals.first()
            && at <= self.now.as_ns()
        {
            self.deliver_release(TaskId(task), log);
        }
        self.release_woken_programs(log)?;
        loop {
            while let Some(order) = self.engine.poll(self.now) {
                self.record(log, RecordKind::Order(order));
                let (cpu, assignment) = match order {
                    Order::Run { cpu, task, job, version } => {
                        (cpu, Some(Assignment { task, job, version }))
                    }
                    Order::Idle { cpu } => (cpu, None),
                };
                self.ordered[cpu.0 as usize] = assignment;
            }
            self.record(log, RecordKind::Polled);
            self.drain_refusals();
            let began = self.begin_jobs(log);
            if !self.charge_remainders(log) && !began {
                break;
            }
        }
        self.apply_orders(context)
    }

    /// Delivers the next release of `task`.
    fn deliver_release(&mut self, task: TaskId, log: &mut Log) {
        let cursor = &mut self.loads[task.0 as usize];
        let arrival = cursor.next().expect("a scheduled arrival");
        cursor.advance();
        if self.handle(log, Event::Arrived { task, arrival: arrival.nominal }) == Handled::Refused {
            self.refused += 1;
        }
        self.on_release_delivered(task);
        self.schedule_next_release(task);
    }

    /// Adds the refused activations by graphs to the count of refused jobs.
    fn drain_refusals(&mut self) {
        while let Some(note) = self.engine.poll_notification() {
            let is_refusal = matches!(note, Notification::Refused { .. });
            self.refused += u64::from(mutate!("exec-activated-refused", is_refusal, false));
        }
    }

    /// Delivers `count` activations of `task`. After a refused activation, the remaining ones are
    /// refused, too.
    fn activate(&mut self, task: TaskId, count: u32, log: &mut Log) {
        for done in 0..count {
            let now = self.now;
            if self.handle(log, Event::Arrived { task, arrival: now }) != Handled::Done {
                self.refused += u64::from(count - done);
                break;
            }
        }
    }

    /// Completes the jobs of programs that have become idle: programs report no completion.
    fn complete_idle_programs(&mut self, log: &mut Log) -> Result<(), M::Error> {
        for cpu in 0..self.running.len() {
            let Some(task) = self.mechanism.take_idle(Cpu(cpu as u32)) else { continue };
            let has = self.running[cpu].is_some_and(|assignment| assignment.task == task);
            if has && self.segments[task.0 as usize] == Segment::Running {
                self.mechanism.complete(task)?;
                self.advance_job(task, log);
            }
        }
        Ok(())
    }

    /// Releases a job for each program that has woken.
    fn release_woken_programs(&mut self, log: &mut Log) -> Result<(), M::Error> {
        while let Some((task, ago)) = self.mechanism.take_woken() {
            let arrival = Time::from_ns(self.now.as_ns().saturating_sub(ago.as_ns()));
            if self.handle(log, Event::Arrived { task, arrival }) == Handled::Refused {
                self.refused += 1;
                self.mechanism.complete(task)?;
            }
        }
        Ok(())
    }

    /// Charges what the task on `cpu` has consumed, if the engine accounts this CPU.
    fn charge(&mut self, cpu: usize, log: &mut Log) -> Result<(), M::Error> {
        let at = Cpu(cpu as u32);
        let Some(assignment) = self.running[cpu].filter(|_| self.engine.is_accounted(at)) else {
            return Ok(());
        };
        let used = self.mechanism.cpu_time(assignment.task)?;
        let charged = &mut self.charged[assignment.task.0 as usize];
        // A charged remainder may be more than what was used.
        let work = used.checked_sub(*charged).unwrap_or(Work::ZERO);
        if !work.is_zero() {
            *charged = used;
            self.observe_sleep(cpu, work);
            let _ = self.handle(log, Event::Ran { cpu: at, work });
        }
        Ok(())
    }

    /// Charges negligible remainders of budgets, at most once per CPU and step. Returns whether
    /// there were any. Without that bound, a server with an immediate refill or a quantum of the
    /// same length would be charged forever.
    fn charge_remainders(&mut self, log: &mut Log) -> bool {
        let mut any = false;
        for cpu in 0..self.running.len() {
            let at = Cpu(cpu as u32);
            let left = match self.ordered[cpu] {
                Some(_) if !self.remainder_charged[cpu] => {
                    self.engine.budget_end(at).as_ns().saturating_sub(self.now.as_ns())
                }
                _ => continue,
            };
            if left < MIN_REMAINDER.as_ns()
                && let Some(assignment) = self.ordered[cpu]
            {
                self.remainder_charged[cpu] = true;
                let work = Work::from_ns(left.max(1));
                self.charged[assignment.task.0 as usize] += work;
                let _ = self.handle(log, Event::Ran { cpu: at, work });
                any = true;
            }
        }
        any
    }

    /// Has the mechanism apply the changes of this step. Other CPUs come first, because their
    /// workers run meanwhile; the own CPU runs nothing else before the stepping thread sleeps. A
    /// stepping worker that moves to another CPU goes there last, when that CPU is free: behind a
    /// running worker it could stop none.
    fn apply_orders(&mut self, context: StepContext) -> Result<(), M::Error> {
        let (cpus, me) = (self.running.len(), context.cpu);
        let goes = |assignment: &Option<Assignment>| {
            assignment.is_some_and(|assignment| Some(assignment.task) == context.worker)
        };
        let away = mutate!(
            "exec-root-state-away",
            self.ordered.iter().position(goes).filter(|&cpu| cpu != me),
            self.ordered.iter().position(goes).filter(|_| false)
        );
        for cpu in (me + 1..cpus).chain(0..=me).filter(|&cpu| Some(cpu) != away) {
            if self.running[cpu] != self.ordered[cpu] || self.has_pending_segment(self.ordered[cpu])
            {
                self.dispatch(cpu)?;
                self.preempt(cpu)?;
            }
        }
        if let Some(cpu) = away {
            self.preempt(cpu)?;
            self.dispatch(cpu)?;
        }
        for cpu in 0..cpus {
            if self.running[cpu] != self.ordered[cpu] && self.ordered[cpu].is_none() {
                self.mechanism.idle(Cpu(cpu as u32))?;
            }
        }
        self.running.copy_from_slice(&self.ordered);
        self.mechanism.commit()
    }
}
