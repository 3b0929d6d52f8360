//! Deployment: the generation in force, its trial, requests, and the queue of effects.
//!
//! | state | request or event | next state |
//! | --- | --- | --- |
//! | nothing in force | apply | in force, or on trial |
//! | in force | apply | in force, or on trial |
//! | on trial | confirm, all tasks ready | in force |
//! | on trial | end of the trial; a changed task has failed; rollback | the generation before |
//! | in force | rollback | an earlier generation |
//! | in force, on trial | remove | nothing in force |
//!
//! Invariants.
//!
//! 1. Each request is answered once, and after its result is stored.
//! 2. A program starts or changes only after an observation, never directly after a request.
//! 3. A task that is equal in two generations has the same state in both, so a change from one to
//!    the other has no effect for the task.

use crate::generation::Generation;
use crate::ids::{EffectNumber, Errno, ProcessId, RequestId};
use crate::inactive::Inactive;
use crate::input::{Effect, Event, FailureCause, Input, Refusal, Request, RollbackCause};
use crate::record::Record;
use crate::status::{Condition, Status, TaskStatus};
use crate::task_state::TaskState;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use talea_core::{Monotonic, Span, mutate};

/// Maximum time between two observations while programs of the deployment may exist.
pub const INSPECTION_PERIOD: Span = Span::from_ns(100_000_000);
/// Time after which the machine orders a table from its governor again, if that is not in force.
pub const ADJUST_PERIOD: Span = Span::from_ns(1_000_000_000);
/// Time between the request to a program to finish and its kill.
pub const STOP_GRACE: Span = Span::from_ns(5_000_000_000);

/// Stop of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) kill_at: Monotonic,
    /// The last kill.
    pub(crate) kill: Option<EffectNumber>,
}

/// Deployment of one computer.
#[derive(Clone, Debug, Default)]
pub struct Deployment {
    last_number: u64,
    pub(crate) in_force: Option<Arc<Generation>>,
    pub(crate) before: Option<Arc<Generation>>,
    pub(crate) trial_until: Option<Monotonic>,
    /// `tasks[i]`: state of task `i` of the generation in force.
    pub(crate) tasks: Vec<TaskState>,
    /// Programs that the machine stops.
    pub(crate) stops: BTreeMap<ProcessId, Stop>,
    /// `starts[task]`: start that no observation includes yet.
    pub(crate) starts: BTreeMap<String, EffectNumber>,
    /// Exited programs that were handled and are still observed.
    pub(crate) forgotten: BTreeSet<ProcessId>,
    pub(crate) wakeup_at: Option<Monotonic>,
    stored: Record,
    last_effect: u64,
    /// Effects of the present input.
    batch: Vec<(EffectNumber, Effect)>,
    outbox: VecDeque<(EffectNumber, Effect)>,
}

impl Deployment {
    /// Creates the machine from the record of an earlier one; a default record for the first. The
    /// machine observes the computer at once, so that no program of an earlier machine is lost.
    pub fn restore(record: Record, now: Monotonic) -> Deployment {
        Deployment {
            last_number: record.last_number,
            in_force: record.in_force.clone(),
            before: record.before.clone(),
            trial_until: record.trial_until,
            tasks: record.tasks.iter().map(TaskState::restore).collect(),
            wakeup_at: Some(now),
            stored: record,
            ..Deployment::default()
        }
    }

    /// Handles one input. The effects are then in the queue.
    pub fn handle(&mut self, now: Monotonic, input: Input) {
        // A record precedes the effects that follow from it.
        let store = self.number();
        if self.trial_until.is_some_and(|until| mutate!("deploy-trial", until <= now, false)) {
            self.roll_back(RollbackCause::NotConfirmed, None, now);
        }
        match input {
            Input::Requested { request, what } => self.request(request, what, now),
            Input::Observed(observation) => self.reconcile(&observation, now),
            Input::Failed { effect, error } => self.failed(effect, error, now),
            Input::Timer => {
                if self.wakeup_at.is_some_and(|at| at <= now) {
                    self.observe(now);
                }
            }
        }
        let record = self.record();
        if record != self.stored {
            self.outbox.push_back((store, Effect::Store(Box::new(record.clone()))));
            self.stored = record;
        }
        self.outbox.extend(self.batch.drain(..));
    }

    /// Removes and returns the oldest effect.
    pub fn poll_effect(&mut self) -> Option<(EffectNumber, Effect)> {
        self.outbox.pop_front()
    }

    /// Returns the time of the next [`Input::Timer`]; `None` if the machine waits for nothing.
    pub fn next_wakeup(&self) -> Option<Monotonic> {
        [self.wakeup_at, self.trial_until].into_iter().flatten().min()
    }

    /// Returns the record of the present state.
    pub fn record(&self) -> Record {
        Record {
            last_number: self.last_number,
            in_force: self.in_force.clone(),
            before: self.before.clone(),
            trial_until: self.trial_until,
            tasks: self.tasks.iter().map(TaskState::record).collect(),
        }
    }

    /// Returns the generation in force.
    pub fn in_force(&self) -> Option<&Generation> {
        self.in_force.as_deref()
    }

    /// Returns the present state for an administrator.
    pub fn status(&self) -> Status {
        let specs = self.in_force.iter().flat_map(|generation| generation.tasks());
        let tasks = specs.zip(&self.tasks).enumerate().map(|(index, (spec, state))| TaskStatus {
            name: spec.name.clone(),
            condition: self.condition(index),
            process: state.process,
            counters: state.counters,
            contended: state.contended().collect(),
        });
        Status {
            tasks: tasks.collect(),
            in_force: self.in_force.clone(),
            before: self.before.clone(),
            trial_until: self.trial_until,
        }
    }

    fn condition(&self, index: usize) -> Condition {
        let state = &self.tasks[index];
        let spec = self.in_force.as_ref().and_then(|generation| generation.tasks().get(index));
        match state.process {
            Some(process) if self.stops.contains_key(&process) || state.inactive.is_some() => {
                Condition::Stopping
            }
            Some(_) if state.adjusts => Condition::NotReady,
            Some(_) if state.is_ready || spec.is_none_or(|spec| spec.health.ready.is_none()) => {
                Condition::Running
            }
            Some(_) => Condition::NotReady,
            None => match (state.inactive, state.not_before) {
                (Some(why), _) => Condition::Inactive(why),
                (None, Some(until)) => Condition::BackOff(until),
                (None, None) => Condition::Starting,
            },
        }
    }

    fn number(&mut self) -> EffectNumber {
        self.last_effect += 1;
        EffectNumber(self.last_effect)
    }

    pub(crate) fn emit(&mut self, effect: Effect) -> EffectNumber {
        let number = self.number();
        self.batch.push((number, effect));
        number
    }

    pub(crate) fn report(&mut self, event: Event) {
        self.emit(Effect::Report(event));
    }

    /// Orders an observation.
    pub(crate) fn observe(&mut self, now: Monotonic) {
        self.emit(Effect::Observe);
        self.wakeup_at = Some(now.saturating_add(INSPECTION_PERIOD));
    }

    fn request(&mut self, request: RequestId, what: Request, now: Monotonic) {
        let answer = match what {
            Request::Apply { generation, confirm } => self.apply(generation, confirm, now),
            Request::Confirm => self.confirm(),
            Request::RollBack { to } => self.roll_back_on_request(to, now),
            Request::Drain { task, within } => self.drain(task.as_deref(), within),
            Request::Remove => self.remove(),
        };
        if answer.is_ok() {
            self.observe(now);
        }
        self.emit(Effect::Answer { request, answer });
    }

    fn apply(
        &mut self,
        generation: Arc<Generation>,
        confirm: Option<Span>,
        now: Monotonic,
    ) -> Result<(), Refusal> {
        if let (Some(on_trial), Some(_)) = (&self.in_force, self.trial_until) {
            return Err(Refusal::OnTrial { generation: on_trial.number() });
        }
        if generation.number() <= self.last_number {
            return Err(Refusal::StaleGeneration { last: self.last_number });
        }
        let until = confirm.map(|within| now.saturating_add(within));
        self.last_number = generation.number();
        self.before = self.in_force.clone();
        self.report(Event::InForce { generation: generation.number(), until });
        self.switch(Some(generation));
        self.trial_until = until;
        self.tasks.iter_mut().for_each(TaskState::reactivate);
        Ok(())
    }

    fn confirm(&mut self) -> Result<(), Refusal> {
        let (Some(generation), Some(_)) = (&self.in_force, self.trial_until) else {
            return Err(Refusal::NotOnTrial);
        };
        let number = generation.number();
        let is_open = |index: &usize| {
            use Condition::{Inactive as Rests, Running};
            let condition = self.condition(*index);
            !matches!(condition, Running | Rests(Inactive::Ended | Inactive::Drained))
        };
        if let Some(index) = (0..self.tasks.len()).find(is_open) {
            return Err(Refusal::NotReady { task: generation.tasks()[index].name.clone() });
        }
        self.trial_until = None;
        self.report(Event::Confirmed { generation: number });
        Ok(())
    }

    fn roll_back_on_request(
        &mut self,
        to: Option<Arc<Generation>>,
        now: Monotonic,
    ) -> Result<(), Refusal> {
        if self.in_force.is_none() {
            return Err(Refusal::NothingInForce);
        }
        if to.is_none() && self.before.is_none() && self.trial_until.is_none() {
            return Err(Refusal::NothingBefore);
        }
        self.roll_back(RollbackCause::Requested, to, now);
        Ok(())
    }

    /// Returns to `to`, or to the generation before. A first generation on trial has none: then
    /// nothing is in force.
    pub(crate) fn roll_back(
        &mut self,
        cause: RollbackCause,
        to: Option<Arc<Generation>>,
        now: Monotonic,
    ) {
        let Some(from) = self.in_force.as_ref().map(|generation| generation.number()) else {
            return;
        };
        let to = to.or_else(|| self.before.take());
        let number = to.as_ref().map(|generation| generation.number());
        self.before = None;
        self.last_number = self.last_number.max(number.unwrap_or(0));
        self.switch(to);
        self.report(Event::RolledBack { from, to: number, cause });
        self.observe(now);
    }

    fn drain(&mut self, task: Option<&str>, within: Span) -> Result<(), Refusal> {
        let generation = self.in_force.clone().ok_or(Refusal::NothingInForce)?;
        if let Some(task) = task.filter(|task| generation.task(task).is_none()) {
            return Err(Refusal::UnknownTask { task: task.to_owned() });
        }
        if let Some(spec) = task.and_then(|task| generation.task(task))
            && spec.governed.is_some()
        {
            return Err(Refusal::Governor { task: spec.name.clone() });
        }
        for (index, spec) in generation.tasks().iter().enumerate() {
            if task.is_none_or(|task| task == spec.name) {
                let state = &mut self.tasks[index];
                (state.inactive, state.drain_within) = (Some(Inactive::Drained), Some(within));
                self.report(Event::Inactive { task: spec.name.clone(), why: Inactive::Drained });
            }
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<(), Refusal> {
        let generation = self.in_force.as_ref().ok_or(Refusal::NothingInForce)?.number();
        self.before = None;
        self.switch(None);
        self.report(Event::Removed { generation });
        Ok(())
    }

    /// Replaces the generation in force, and ends a trial. Equal tasks keep their state.
    fn switch(&mut self, to: Option<Arc<Generation>>) {
        let from = self.in_force.take();
        let old = from.as_ref().map_or(&[][..], |generation| generation.tasks());
        let by_name: BTreeMap<&str, usize> =
            old.iter().enumerate().map(|(index, spec)| (spec.name.as_str(), index)).collect();
        let new = to.as_ref().map_or(&[][..], |generation| generation.tasks());
        let states = new.iter().map(|spec| {
            let Some(&index) = by_name.get(spec.name.as_str()) else { return TaskState::default() };
            let (old, state) = (&old[index], &self.tasks[index]);
            if mutate!("deploy-unchanged", old == spec, false) {
                return state.clone();
            }
            state.changed(&old.command, &spec.command)
        });
        self.tasks = states.collect();
        self.in_force = to;
        self.trial_until = None;
    }

    /// Handles an effect that the driver could not execute.
    fn failed(&mut self, effect: EffectNumber, error: Errno, now: Monotonic) {
        let Some(generation) = self.in_force.clone() else { return };
        for (index, spec) in generation.tasks().iter().enumerate() {
            let state = &mut self.tasks[index];
            if state.pending == Some(effect) {
                state.pending = None;
                self.starts.remove(&spec.name);
                self.fail(index, spec, FailureCause::NotStarted(Some(error)), now);
                self.roll_back_if_failed(now);
                return;
            }
            if let Some((thread, kind)) = state.refuse(effect, now) {
                let task = spec.name.clone();
                return self.report(Event::SettingRefused { task, thread, kind, error });
            }
        }
    }
}
