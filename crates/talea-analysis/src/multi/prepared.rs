//! Shared parts of the tests of this module: their assumptions, tasks prepared as plain numbers,
//! and reusable memory.

use super::divisor::Divisor;
use super::piecewise_linear::LinearPiece;
use crate::Sporadic;
use crate::verdict::{Inconclusive, Release, Verdict, Witness};
use alloc::vec;
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::mutate;

/// Exclusive upper bound of the longest period times the number of tasks, or of CPUs.
///
/// A window is at most a deadline. The work of a task in a window is at most 2·T, and it is capped
/// by the window plus 1 before it is summed. A sum is at most n·(D + 1), and the capacity at most
/// m·D. All of these values are below 2^63.
pub(crate) const MAX_PRODUCT: u64 = 1 << 61;

/// Task as plain numbers, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreparedTask {
    pub(crate) cost: u64,
    pub(crate) deadline: u64,
    pub(crate) period: Divisor,
    /// Bound of the response time minus the cost: R − C. Before any bound is known, the value is D
    /// − C.
    pub(crate) lag: u64,
    /// Upper bound of the interference of this task on the analysed job, for any window.
    pub(crate) cap: u64,
    /// Start of the task's last job in the most recent window, and the work of the jobs before it
    /// in `base`. A window that is less than a period longer needs no division.
    pub(crate) begin: u64,
    pub(crate) base: u64,
}

impl PreparedTask {
    /// Value of `begin` above any window, so that the next window is evaluated with a division.
    pub(crate) const NO_WINDOW: u64 = 1 << 63;
}

/// Additional work of a task in a window if the task has carry-in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarryInGain {
    pub(crate) more: u64,
    pub(crate) with: LinearPiece,
    pub(crate) without: LinearPiece,
}

/// Reusable memory for the tests of this module. After a set with as many tasks, the functions
/// without a list result allocate nothing. The exception is a sum of utilisations that rounding
/// leaves open: integers of any size then decide.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    pub(crate) rows: Vec<PreparedTask>,
    /// `until[k]`: last window of task k.
    pub(crate) until: Vec<u64>,
    pub(crate) gains: Vec<CarryInGain>,
    /// `next[k]`: next deadline of task k.
    pub(crate) next: Vec<u64>,
    /// `due[k]`: demand of task k that is due until now.
    pub(crate) due: Vec<u64>,
    /// Values of which a test sums the largest.
    pub(crate) values: Vec<u64>,
}

impl Scratch {
    /// Creates an empty scratch.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Reads a set that satisfies the assumptions of this module. Returns the number of CPUs.
    ///
    /// # Errors
    /// The verdict, if it is known without a test, or the reason why no test applies.
    pub(crate) fn read(&mut self, tasks: &[Sporadic], cpus: u32) -> Result<u64, Verdict> {
        check(tasks, cpus)?;
        mutate!("multi-allocation", self.rows.clear(), self.rows = Vec::new());
        for task in tasks {
            let (cost, deadline) = (task.cost.as_ns(), task.deadline.as_ns());
            let period = Divisor::new(task.period.as_ns());
            let (lag, cap) = (deadline - cost, u64::MAX);
            self.rows.push(PreparedTask {
                cost,
                deadline,
                period,
                lag,
                cap,
                begin: PreparedTask::NO_WINDOW,
                base: 0,
            });
        }
        Ok(u64::from(cpus))
    }

    /// Returns the bounds of an accepted set, in the order of the tasks. A response-time test must
    /// have accepted.
    pub fn bounds(&self) -> impl Iterator<Item = Span> + '_ {
        self.rows.iter().map(|row| {
            mutate!(
                "multi-simulated",
                Span::from_ns(row.cost + row.lag),
                Span::from_ns(row.cost + row.lag.saturating_sub(1))
            )
        })
    }

    /// Returns the proof with the bounds found.
    pub(crate) fn proved(&self) -> Verdict {
        Verdict::Proved { bounds: self.bounds().collect() }
    }
}

/// Checks that the set satisfies the assumptions of this module.
///
/// # Errors
/// `Refuted` if a job needs more than its deadline (or there is no CPU), `Unknown` if no test of
/// this module covers the set.
pub(crate) fn check(tasks: &[Sporadic], cpus: u32) -> Result<(), Verdict> {
    // Fast path: nearly all sets satisfy everything.
    let (mut keeps, mut longest) = (true, 0);
    for task in tasks {
        let (cost, deadline, period) =
            (task.cost.as_ns(), task.deadline.as_ns(), task.period.as_ns());
        keeps &= cost > 0 && cost <= deadline && deadline <= period;
        keeps &= task.jitter.is_zero() && task.blocking.is_zero();
        longest = longest.max(period);
    }
    if keeps && cpus > 0 && fits(longest, tasks.len(), cpus) {
        return Ok(());
    }
    let unless =
        |number: u8, holds: fn(&Sporadic) -> bool| match tasks.iter().position(|task| !holds(task))
        {
            None => Ok(()),
            Some(task) => Err(Verdict::Unknown { why: Inconclusive::Assumption { number, task } }),
        };
    unless(2, |task| task.cost.as_ns() > 0 && task.period.as_ns() > 0)?;
    unless(3, |task| task.jitter.is_zero() && task.blocking.is_zero())?;
    if cpus == 0 && !tasks.is_empty() {
        return Err(Verdict::Refuted { witness: Witness::Overload { task: 0 } });
    }
    if let Some(long) = tasks.iter().position(|task| task.cost.as_ns() > task.deadline.as_ns()) {
        return Err(alone(tasks, long));
    }
    unless(4, |task| task.deadline <= task.period)?;
    if fits(longest, tasks.len(), cpus) {
        Ok(())
    } else {
        Err(Verdict::Unknown { why: Inconclusive::Limit })
    }
}

/// Whether every product is below [`MAX_PRODUCT`].
fn fits(longest: u64, tasks: usize, cpus: u32) -> bool {
    longest
        .checked_mul((tasks as u64).max(cpus.into()))
        .is_some_and(|product| product < MAX_PRODUCT)
}

/// Returns the miss of a job of `task` without interference: the other tasks arrive when the job
/// has completed.
fn alone(tasks: &[Sporadic], task: usize) -> Verdict {
    let response = Span::from_ns(tasks[task].cost.as_ns());
    let mut releases = mutate!(
        "multi-necessary-alone",
        vec![Release { first: response, early: Span::ZERO }; tasks.len()],
        vec![Release { first: Span::ZERO, early: Span::ZERO }; tasks.len()]
    );
    releases[task].first = Span::ZERO;
    Verdict::Refuted { witness: Witness::Miss { task, job: 0, response, releases } }
}
