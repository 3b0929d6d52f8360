//! State of one task: whether its program must run, its restarts and its back-off.
//!
//! | state | program | transition |
//! | --- | --- | --- |
//! | active | runs, or starts when its back-off ends | failure: active with back-off, *failed*, *idle* or *ended* |
//! | *ended* | exited, and nothing starts it again | apply |
//! | *failed* | has used all attempts of its window | apply |
//! | *idle* | failed once, under `on_failure = "idle"` | apply |
//! | *drained* | ended by a request | apply |
//!
//! An apply makes every task active again.

use crate::drift::{KINDS, ThreadState};
use crate::generation::{Command, TaskSpec};
use crate::ids::{EffectNumber, ProcessId, SettingKind, ThreadId};
use crate::inactive::Inactive;
use crate::input::FailureCause;
use crate::record::{Counters, TaskRecord};
use std::collections::BTreeMap;
use talea_core::health::{OnFailure, Restart};
use talea_core::{Monotonic, Span, mutate};

/// State of one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskState {
    pub(crate) inactive: Option<Inactive>,
    /// Time after which a drained program is killed.
    pub(crate) drain_within: Option<Span>,
    restarts: Vec<Monotonic>,
    pub(crate) not_before: Option<Monotonic>,
    /// The program that was observed last.
    pub(crate) process: Option<ProcessId>,
    pub(crate) started_at: Option<Monotonic>,
    /// The last start, until an observation that includes it.
    pub(crate) pending: Option<EffectNumber>,
    pub(crate) is_ready: bool,
    /// Whether the program is a governor whose table in force is not that of the task.
    pub(crate) adjusts: bool,
    /// The last order to change the table, and its time.
    pub(crate) adjusted: Option<(EffectNumber, Monotonic)>,
    /// Whether a late readiness was reported and ignored.
    pub(crate) is_late: bool,
    pub(crate) counters: Counters,
    /// Threads of the program.
    pub(crate) threads: BTreeMap<ThreadId, ThreadState>,
}

impl TaskState {
    pub(crate) fn restore(record: &TaskRecord) -> TaskState {
        let mut threads: BTreeMap<ThreadId, ThreadState> = BTreeMap::new();
        for &(thread, kind) in &record.contended {
            threads.entry(thread).or_default().value(kind).is_contended = true;
        }
        TaskState {
            threads,
            inactive: record.inactive,
            restarts: record.restarts.clone(),
            not_before: record.not_before,
            process: record.process,
            started_at: record.started_at,
            counters: record.counters,
            ..TaskState::default()
        }
    }

    pub(crate) fn record(&self) -> TaskRecord {
        TaskRecord {
            inactive: self.inactive,
            restarts: self.restarts.clone(),
            not_before: self.not_before,
            process: self.process,
            started_at: self.started_at,
            counters: self.counters,
            contended: self.contended().collect(),
        }
    }

    /// Returns the contended values of the threads.
    pub(crate) fn contended(&self) -> impl Iterator<Item = (ThreadId, SettingKind)> {
        self.threads.iter().flat_map(|(&thread, state)| {
            KINDS
                .into_iter()
                .filter(|&kind| state.is_contended(kind))
                .map(move |kind| (thread, kind))
        })
    }

    /// Returns the state under a task whose command was `old` and is `new`. A program that can play
    /// the task continues.
    pub(crate) fn changed(&self, old: &Command, new: &Command) -> TaskState {
        if !old.is_same_program(new) {
            return TaskState::default();
        }
        TaskState {
            process: self.process,
            started_at: self.started_at,
            pending: self.pending,
            is_ready: self.is_ready,
            adjusts: self.process.is_some() && (self.adjusts || old != new),
            counters: self.counters,
            ..TaskState::default()
        }
    }

    /// Notes that a program is observed for the first time.
    pub(crate) fn begin(&mut self, process: ProcessId, now: Monotonic) {
        if self.pending.is_none() {
            // An adopted program: its readiness counts from now.
            self.started_at = Some(now);
        }
        self.process = Some(process);
        (self.is_ready, self.is_late, self.adjusted) = (false, false, None);
        self.threads.clear();
    }

    /// Notes that the program is gone.
    pub(crate) fn end(&mut self) {
        (self.process, self.started_at, self.pending, self.adjusted) = (None, None, None, None);
        (self.is_ready, self.adjusts) = (false, false);
        self.threads.clear();
    }

    /// Notes that a start is on its way.
    pub(crate) fn order_start(&mut self, start: EffectNumber, now: Monotonic) {
        (self.pending, self.started_at, self.not_before) = (Some(start), Some(now), None);
        self.counters.starts += 1;
    }

    /// Notes that the kernel refused to set a value. Returns the value if the effect is of this
    /// task.
    pub(crate) fn refuse(
        &mut self,
        effect: EffectNumber,
        now: Monotonic,
    ) -> Option<(ThreadId, SettingKind)> {
        for (&thread, state) in &mut self.threads {
            for kind in KINDS {
                let value = state.value(kind);
                if value.pending == Some(effect) {
                    value.refuse(now);
                    return Some((thread, kind));
                }
            }
        }
        None
    }

    /// Makes an inactive task active again, and ends a back-off. A program that is being stopped
    /// starts again after its exit.
    pub(crate) fn reactivate(&mut self) {
        let is_down = self.process.is_none() && self.pending.is_none();
        if is_down || self.inactive.is_some() {
            (self.inactive, self.drain_within, self.not_before) = (None, None, None);
            self.restarts.clear();
        }
    }

    /// Returns the time until which the program must be ready.
    pub(crate) fn ready_by(&self, spec: &TaskSpec) -> Option<Monotonic> {
        let is_open = !self.is_ready && !self.is_late;
        Some(self.started_at.filter(|_| is_open)?.saturating_add(spec.health.ready?))
    }

    /// Handles a failure. The result is the new inactivity, or the end of the back-off.
    pub(crate) fn fail(
        &mut self,
        spec: &TaskSpec,
        cause: FailureCause,
        now: Monotonic,
    ) -> Result<Monotonic, Option<Inactive>> {
        self.counters.failures += 1;
        let is_gone = cause != FailureCause::NotReady;
        let inactive = match spec.health.on_failure {
            OnFailure::Restart => return self.restart(&spec.health.restart, now).map_err(Some),
            OnFailure::Idle => Some(Inactive::Idle),
            OnFailure::Ignore => is_gone.then_some(Inactive::Ended),
        };
        self.is_late = !is_gone;
        self.inactive = inactive;
        Err(inactive)
    }

    /// Starts the back-off of a restart, unless the attempts are used up.
    pub(crate) fn restart(
        &mut self,
        limits: &Restart,
        now: Monotonic,
    ) -> Result<Monotonic, Inactive> {
        let begin = now.saturating_sub(limits.within);
        self.restarts.retain(|&at| mutate!("deploy-attempts-window", at > begin, at >= now));
        let count = self.restarts.len() as u32;
        if mutate!("deploy-attempts", count >= limits.attempts, count > limits.attempts) {
            self.inactive = Some(Inactive::Failed);
            return Err(Inactive::Failed);
        }
        let doubled = limits.backoff.as_ns().saturating_mul(1 << count.min(62));
        let wait = doubled.min(limits.within.as_ns().max(limits.backoff.as_ns()));
        let until = now.saturating_add(Span::from_ns(mutate!("deploy-backoff", wait, 0)));
        self.restarts.push(now);
        self.not_before = Some(until);
        Ok(until)
    }
}
