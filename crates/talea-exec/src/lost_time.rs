//! Lost time: intervals in which a CPU belonged to a worker that made no progress.
//!
//! Causes are switches, interrupts, waits for a lock, and CPU stalls. A CPU that is taken away in
//! slices too short for the stall monitor shows here: the CPU clock of the thread stands still, and
//! CLOCK_MONOTONIC goes on.

use talea_core::{Span, Time};

/// Interval in which a worker got less CPU time than the length of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostTime {
    /// CPU of the root.
    pub cpu: u32,
    /// Start.
    pub from: Time,
    /// End.
    pub to: Time,
    /// CPU time that the worker lost in the interval.
    pub amount: Span,
}

/// Smallest loss that is recorded. A smaller loss is the ordinary cost of an order.
const MIN_LOSS: Span = Span::from_ns(100_000);
/// Maximum number of records.
const MAX_RECORDS: usize = 20_000;

/// Recorded losses of a run. Their memory is allocated before the run.
#[derive(Clone, Debug)]
pub(crate) struct LostTimes(Vec<LostTime>);

impl LostTimes {
    pub(crate) fn new() -> LostTimes {
        LostTimes(Vec::with_capacity(MAX_RECORDS))
    }

    /// Records a loss that is at least `MIN_LOSS` long.
    ///
    /// The last record stands for all further ones. It has no end, because later losses are
    /// unknown.
    pub(crate) fn push(&mut self, loss: LostTime) {
        if loss.amount < MIN_LOSS || self.0.len() == MAX_RECORDS {
            return;
        }
        let is_last = self.0.len() + 1 == MAX_RECORDS;
        let all = LostTime { to: Time::NEVER, amount: Time::NEVER.since(Time::ZERO), ..loss };
        self.0.push(if is_last { all } else { loss });
    }

    pub(crate) fn all(&self) -> &[LostTime] {
        &self.0
    }
}
