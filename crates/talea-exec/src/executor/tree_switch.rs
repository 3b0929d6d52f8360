//! Switch of a running root to another tree.
//!
//! Another thread builds the engine of the new tree, because a step does not allocate, and requests
//! the switch under the root lock. A step makes the switch at the instant of [`SwitchRule`].
//!
//! | state | event | next state |
//! | --- | --- | --- |
//! | *steady* | a request | *requested* |
//! | *requested* | another request | *requested*: its tree replaces the one that waits, and the instant stays |
//! | *requested* | the first step at or after the switch instant | *steady*, with the new engine |
//!
//! What the step does at the switch instant, after the completions and before the releases:
//!
//! 1. It stops the running job: its program is frozen.
//! 2. It exchanges the engines. The time of the new engine begins at the switch instant, even if
//!    the step is later: the first slots of the new tables begin there.
//! 3. It releases each pending job again, at time zero of the new engine. Statistics count the
//!    response and the deadline of the first such job of a task from its first release.
//! 4. The orders of the new engine follow in the same step.
//!
//! The programs stay as they are: an idle program remains idle, and a frozen one has a job.
//!
//! *Budgets.* The servers of the new tree begin with full budgets at the switch instant.
//!
//! - Up to that instant, the supply of each server is that of the old tree; from that instant on,
//!   it is that of the new tree since its start. Each analysis allows that start, because it
//!   bounds the supply of every window after the start of a run. So no window on one side of the
//!   instant has more supply than the analysis of its tree assumes.
//! - A window that contains the instant has at most the supply of both parts. Only a job that is
//!   pending at the instant has such a window. At an idle instant there is no such job. At the end
//!   of a frame, such a job meets one more budget of each server that may preempt it. If the table
//!   is at the root, these are servers of its own partition only.
//! - Consumption that was not charged to the old engine is not charged to the new one: it lies
//!   before the instant, except for the lateness of the step.
//!
//! Limit: a job that waits for its enforced separation is released at the switch instant, too.
//!
//! Absent on purpose: roots with threads of the run. Their workers step the root, and their release
//! timers are in the time of the run.

use crate::successor::Successor;
use talea_core::engine::{Job, PendingSwitch, SwitchCause, SwitchRule};
use talea_core::{Span, Time};

/// State of the switches of one root.
#[derive(Debug)]
pub(super) struct TreeSwitch {
    /// Rule of the tree in force; `None` if the root does not switch.
    pub(super) rule: Option<SwitchRule>,
    /// Number of the tree in force.
    pub(super) number: u64,
    /// The successor that waits, and its switch from the first step after the request on.
    pub(super) requested: Option<(Box<Successor>, Option<PendingSwitch>)>,
    /// The engine that the last switch has replaced, until another thread frees it.
    pub(super) retired: Option<Box<Successor>>,
    /// Run time at which the time of the engine began.
    pub(super) origin: Time,
    /// Cause of the last switch.
    pub(super) cause: Option<SwitchCause>,
}

impl TreeSwitch {
    /// State of a root that does not switch.
    pub(super) const FIXED: TreeSwitch = TreeSwitch {
        rule: None,
        number: 0,
        requested: None,
        retired: None,
        origin: Time::ZERO,
        cause: None,
    };

    /// Returns the time of the engine at run time `at`. A time before the switch counts as the
    /// switch instant.
    pub(super) fn engine_time(&self, at: Time) -> Time {
        Time::ZERO + at.max(self.origin).since(self.origin)
    }

    /// Returns the run time at time `at` of the engine.
    pub(super) fn run_time(&self, at: Time) -> Time {
        at.saturating_add(self.offset())
    }

    /// Returns a job of the engine in run time.
    pub(super) fn job_in_run_time(&self, job: Job) -> Job {
        let (release, deadline) = (self.run_time(job.release), self.run_time(job.deadline));
        Job { release, deadline, ..job }
    }

    /// Returns the run time at which the time of the engine began, as a length.
    pub(super) fn offset(&self) -> Span {
        self.origin.since(Time::ZERO)
    }

    /// Returns the run time by which the next step has to be.
    pub(super) fn next_wakeup(&self) -> Time {
        let pending = self.requested.as_ref().and_then(|(_, pending)| *pending);
        pending.map_or(Time::NEVER, |pending| self.run_time(pending.next_wakeup()))
    }
}
