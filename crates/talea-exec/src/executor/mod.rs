//! Executor of one root: its engine, its mechanism, and the body of a step. No threads and no
//! clock.
//!
//! A step handles one instant as the simulator does:
//!
//! 1. CPU accounting: charge what the running workers have consumed.
//! 2. Overdue releases ([`release_timers`]).
//! 3. Completed segments, of workers and of idle programs; then a switch to another tree.
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
//! The executor routes; the state is in parts with methods of their own:
//!
//! | part | state | its protocol | routing |
//! | --- | --- | --- | --- |
//! | [`task_state`] | load, segment, CPU time of a task | segments of a job | `segments` |
//! | [`cpu_state`] | assignment and wake-up of a CPU | orders of a step | this file, `wakeup` |
//! | [`budget_sleep`] | sleep of a dispatcher | checks of a budget | `wakeup` |
//! | [`release_timers`] | releases and timers | workers that wake themselves | `releases` |
//! | [`timed_events`] | other known times | none | `segments` |
//! | [`tree_switch`] | the tree in force, and its successor | switch to another tree | `switches` |

mod budget_sleep;
mod cpu_state;
mod release_timers;
mod releases;
mod segments;
mod switches;
mod task_state;
mod timed_events;
mod tree_switch;
mod wakeup;

use crate::device_holds::{DeviceHold, DeviceHolds};
use crate::flow::Flow;
use crate::job_stats::JobStats;
use crate::load::Load;
use crate::lost_time::{LostTime, LostTimes};
use crate::mailbox::Batch;
use crate::mechanism::{Deferred, Mechanism};
use crate::record::{Log, RecordEntry, RecordKind};
pub(crate) use budget_sleep::MIN_REMAINDER;
use cpu_state::{Assignment, CpuState};
use release_timers::ReleaseTimers;
use std::sync::Arc;
use talea_core::Time;
use talea_core::engine::{
    ChannelId, Condition, Cpu, Engine, Event, Handled, Notification, Order, TaskId,
};
use talea_core::mutate;
use task_state::TaskState;
use timed_events::TimedEvents;
use tree_switch::TreeSwitch;

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
    /// `tasks[n]`: state of task `n`.
    tasks: Vec<TaskState>,
    /// `cpus[c]`: state of CPU `c`.
    cpus: Vec<CpuState>,
    releases: ReleaseTimers,
    timed_events: TimedEvents,
    /// `flows[n]`: flow of channel `n`, if jobs move tokens explicitly. Empty if no job does.
    flows: Vec<Arc<Flow>>,
    now: Time,
    entry_count: u64,
    refused: u64,
    /// Late wake-ups of dispatchers, and of workers that step in place of a dispatcher.
    late_wakeups: LostTimes,
    /// Waits in which workers kept their CPU idle.
    holds: DeviceHolds,
    switch: TreeSwitch,
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
        // Tokens that a previous run left.
        let tokens: Vec<u32> = flows.iter().map(|flow| flow.visible()).collect();
        engine.keep_tokens(mutate!("exec-resume-tokens", &tokens, &[]));
        let mut states = Vec::with_capacity(tasks);
        for (task, load) in (0..).map(TaskId).zip(loads) {
            let (inputs, outputs): (Vec<_>, Vec<_>) =
                (engine.inputs(task).collect(), engine.outputs(task).collect());
            states.push(TaskState::new(load, &inputs, &outputs, mechanism.cpu_time(task)?));
        }
        for (flow, channel) in flows.iter().zip((0..).map(ChannelId)) {
            let ends = mutate!("exec-segment-ends", usize::MAX, 1);
            for task in flow.endpoints().take(ends) {
                states[task.0 as usize].add_channel(channel);
            }
        }
        let may_hold = |&task: &TaskId| states[task.0 as usize].may_hold();
        let holds = DeviceHolds::new((0..tasks as u32).map(TaskId).filter(may_hold).collect());
        let mut root = Executor {
            engine,
            mechanism,
            tasks: states,
            cpus: (0..cpus).map(|_| CpuState::INITIAL).collect(),
            releases: ReleaseTimers::new(tasks),
            timed_events: TimedEvents::new(tasks, changes),
            flows,
            now: Time::ZERO,
            entry_count: 0,
            refused: 0,
            late_wakeups: LostTimes::new(),
            holds,
            switch: TreeSwitch::FIXED,
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
            wake: deferred.wake.filter(|&task| !self.releases.is_already_awake(task)),
            ..deferred
        }
    }

    /// Returns the time of the last step.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Whether the CPU time consumed on any CPU must be accounted while it runs.
    pub(crate) fn needs_accounting(&self) -> bool {
        (0..self.cpus.len() as u32).any(|cpu| self.engine.is_accounted(Cpu(cpu)))
    }

    /// Returns the statistics of the jobs of each task: element `n` for task `n`.
    pub(crate) fn job_stats(&self) -> Vec<JobStats> {
        self.tasks.iter().map(TaskState::stats).collect()
    }

    /// Returns the waits in which workers kept their CPU idle, as [`device_holds::outside`] needs
    /// them.
    ///
    /// [`device_holds::outside`]: crate::device_holds::outside
    pub(crate) fn holds(&self) -> Vec<DeviceHold> {
        let pending = (0..).map(TaskId).zip(&self.tasks).filter_map(|(task, state)| {
            state.hold().map(|(from, to)| DeviceHold { task, from, to })
        });
        self.holds.sorted(pending)
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
        self.engine.handle(self.switch.engine_time(self.now), event)
    }

    /// Whether a stop was requested and all released jobs have ended.
    pub(crate) fn is_done(&self) -> bool {
        let tasks = (0..self.tasks.len() as u32).map(TaskId);
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
        mutate!("exec-release-timer-renew", self.releases.begin_step());

        self.record(log, RecordKind::Step);
        self.cpus.iter_mut().for_each(CpuState::begin_step);
        mutate!(
            "exec-loop-charge",
            for cpu in 0..self.cpus.len() {
                self.charge(cpu, log)?;
            },
            if batch.completed.is_empty() {
                for cpu in 0..self.cpus.len() {
                    self.charge(cpu, log)?;
                }
            }
        );
        mutate!("exec-release-timer-late", self.deliver_overdue_releases(log));

        for &task in &batch.completed {
            self.receive_report(task, log)?;
        }
        self.complete_idle_programs(log)?;
        self.switch_if_due(log)?;
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
        self.deliver_due_releases(log);
        self.release_woken_programs(log)?;
        loop {
            while let Some(order) = self.engine.poll(self.switch.engine_time(self.now)) {
                self.record(log, RecordKind::Order(order));
                let (cpu, assignment) = match order {
                    Order::Run { cpu, task, job, version } => {
                        (cpu, Some(Assignment { task, job, version }))
                    }
                    Order::Idle { cpu } => (cpu, None),
                };
                self.cpus[cpu.0 as usize].order(assignment);
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
            let now = self.switch.engine_time(self.now);
            if self.handle(log, Event::Arrived { task, arrival: now }) != Handled::Done {
                self.refused += u64::from(count - done);
                break;
            }
        }
    }

    /// Completes the jobs of programs that have become idle: programs report no completion.
    fn complete_idle_programs(&mut self, log: &mut Log) -> Result<(), M::Error> {
        for cpu in 0..self.cpus.len() {
            let Some(task) = self.mechanism.take_idle(Cpu(cpu as u32)) else { continue };
            if self.cpus[cpu].runs(task) && self.tasks[task.0 as usize].is_segment_running() {
                self.mechanism.complete(task)?;
                self.advance_job(task, log);
            }
        }
        Ok(())
    }

    /// Releases a job for each program that has woken.
    fn release_woken_programs(&mut self, log: &mut Log) -> Result<(), M::Error> {
        while let Some((task, ago)) = self.mechanism.take_woken()? {
            let arrival = Time::from_ns(self.now.as_ns().saturating_sub(ago.as_ns()));
            let arrival = self.switch.engine_time(arrival);
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
        let running = self.cpus[cpu].running().filter(|_| self.engine.is_accounted(at));
        let Some(Assignment { task, .. }) = running else { return Ok(()) };
        let used = self.mechanism.cpu_time(task)?;
        let work = self.tasks[task.0 as usize].charge_up_to(used);
        if !work.is_zero() {
            self.cpus[cpu].budget_sleep.observe(self.now, work);
            let _ = self.handle(log, Event::Ran { cpu: at, work });
        }
        Ok(())
    }

    /// Charges negligible remainders of budgets. Returns whether there were any.
    fn charge_remainders(&mut self, log: &mut Log) -> bool {
        let mut any = false;
        for cpu in 0..self.cpus.len() {
            let at = Cpu(cpu as u32);
            let left = || {
                let end = self.switch.run_time(self.engine.budget_end(at));
                end.since(self.now.min(end))
            };
            if let Some((task, work)) = self.cpus[cpu].take_remainder(left) {
                self.tasks[task.0 as usize].charge_ahead(work);
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
        let (cpus, me) = (self.cpus.len(), context.cpu);
        let goes = |cpu: &CpuState| context.worker.is_some_and(|worker| cpu.has_ordered(worker));
        let away = self.cpus.iter().position(goes);
        let away = mutate!("exec-root-state-away", away.filter(|&cpu| cpu != me), None);
        for cpu in (me + 1..cpus).chain(0..=me).filter(|&cpu| Some(cpu) != away) {
            if self.cpus[cpu].is_changed() || self.has_pending_segment(cpu) {
                self.dispatch(cpu)?;
                self.preempt(cpu)?;
            }
        }
        if let Some(cpu) = away {
            self.preempt(cpu)?;
            self.dispatch(cpu)?;
        }
        for cpu in 0..cpus {
            if self.cpus[cpu].is_changed() && self.cpus[cpu].ordered().is_none() {
                self.mechanism.idle(Cpu(cpu as u32))?;
            }
        }
        self.cpus.iter_mut().for_each(CpuState::order_applied);
        self.mechanism.commit()
    }
}
