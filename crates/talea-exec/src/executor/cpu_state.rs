//! State of a CPU of a root: its assignment, its budget, and the wake-up of its dispatcher.

use super::budget_sleep::{BudgetSleep, MIN_REMAINDER};
use talea_core::engine::TaskId;
use talea_core::{Span, Time, Work};

/// Job that has a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) task: TaskId,
    pub(super) job: u64,
    pub(super) version: u32,
}

/// State of one CPU.
#[derive(Debug)]
pub(super) struct CpuState {
    /// Assignment as the mechanism knows it.
    running: Option<Assignment>,
    /// Assignment as ordered in this step.
    ordered: Option<Assignment>,
    /// Whether this step has charged a negligible remainder.
    has_charged_remainder: bool,
    /// Latest time at which the dispatcher is awake.
    pub(super) wakeup: Time,
    /// Sleep of the dispatcher while a budget is in use.
    pub(super) budget_sleep: BudgetSleep,
}

impl CpuState {
    /// State before the first step.
    pub(super) const INITIAL: CpuState = CpuState {
        running: None,
        ordered: None,
        has_charged_remainder: false,
        wakeup: Time::ZERO,
        budget_sleep: BudgetSleep::INITIAL,
    };

    /// Starts a step.
    pub(super) fn begin_step(&mut self) {
        self.has_charged_remainder = false;
    }

    pub(super) fn running(&self) -> Option<Assignment> {
        self.running
    }

    pub(super) fn ordered(&self) -> Option<Assignment> {
        self.ordered
    }

    /// Whether the mechanism runs a job of `task` here.
    pub(super) fn runs(&self, task: TaskId) -> bool {
        self.running.is_some_and(|assignment| assignment.task == task)
    }

    /// Whether this step has ordered a job of `task` here.
    pub(super) fn has_ordered(&self, task: TaskId) -> bool {
        self.ordered.is_some_and(|assignment| assignment.task == task)
    }

    /// Sets the assignment that the engine orders.
    pub(super) fn order(&mut self, assignment: Option<Assignment>) {
        self.ordered = assignment;
    }

    /// Whether the order differs from the last step.
    pub(super) fn is_changed(&self) -> bool {
        self.running != self.ordered
    }

    /// Notes that the mechanism has applied the order.
    pub(super) fn order_applied(&mut self) {
        self.running = self.ordered;
    }

    /// Takes the remaining budget `left` if it is negligible. Each CPU takes one remainder per
    /// step. Without that bound, a server with an immediate refill or a quantum of the same length
    /// would be charged forever.
    pub(super) fn take_remainder(&mut self, left: impl FnOnce() -> Span) -> Option<(TaskId, Work)> {
        let task = self.ordered.filter(|_| !self.has_charged_remainder)?.task;
        let left = left();
        if left >= MIN_REMAINDER {
            return None;
        }
        self.has_charged_remainder = true;
        Some((task, Work::from_ns(left.as_ns().max(1))))
    }
}
