//! What the tests of this module share: their assumptions, tasks read into plain numbers, and
//! memory that is kept.

use super::divisor::Divisor;
use super::pieces::Piece;
use crate::Sporadic;
use crate::verdict::{Release, Verdict, Why, Witness};
use alloc::vec;
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::mutate;

/// The longest period times the number of tasks, or of CPUs, stays below this. A window is at most
/// a deadline, a task's work in it at most 2·T (whoever sums it up caps it by the window plus 1), a
/// sum at most n·(D + 1), and what there is at most m·D: all of them below 2^63.
pub(crate) const ROOF: u64 = 1 << 61;

/// A task in numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) cost: u64,
    pub(crate) deadline: u64,
    pub(crate) period: Divisor,
    /// How much longer than its cost a job can take, as far as it is known: R − C; D − C before
    /// anything is.
    pub(crate) lag: u64,
    /// The most that it does to the job that is looked at, whatever the window.
    pub(crate) cap: u64,
    /// Of the last window that was asked for: how long it was when the task's last job in it began,
    /// and what its jobs before do. A window that is less than a period longer needs no division.
    pub(crate) begin: u64,
    pub(crate) base: u64,
}

impl Row {
    /// More than any window, so that the next one is looked at afresh.
    pub(crate) const AFRESH: u64 = 1 << 63;
}

/// What a task does more in a window if it carries work into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gain {
    pub(crate) more: u64,
    pub(crate) with: Piece,
    pub(crate) without: Piece,
}

/// Memory for the tests of this module. Once it has seen as many tasks, what answers without a list
/// allocates nothing (but where rounding leaves a sum of utilisations open, and numbers of any size
/// have to settle it).
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    pub(crate) rows: Vec<Row>,
    /// How far each task's windows reach.
    pub(crate) until: Vec<u64>,
    pub(crate) gains: Vec<Gain>,
    /// Of each task the next deadline, and what is due until now.
    pub(crate) next: Vec<u64>,
    pub(crate) due: Vec<u64>,
    /// Numbers of which the largest count.
    pub(crate) values: Vec<u64>,
}

impl Scratch {
    /// With nothing in it.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Reads a set that keeps the assumptions of this module.
    ///
    /// # Errors
    /// The verdict, where it is known without a test, or the reason why there can be none.
    pub(crate) fn read(&mut self, tasks: &[Sporadic], cpus: u32) -> Result<u64, Verdict> {
        check(tasks, cpus)?;
        mutate!("multi-allocation", self.rows.clear(), self.rows = Vec::new());
        for task in tasks {
            let (cost, deadline) = (task.cost.as_ns(), task.deadline.as_ns());
            let period = Divisor::new(task.period.as_ns());
            let (lag, cap) = (deadline - cost, u64::MAX);
            self.rows.push(Row { cost, deadline, period, lag, cap, begin: Row::AFRESH, base: 0 });
        }
        Ok(u64::from(cpus))
    }

    /// After a test of response times has accepted: what it found, in the order of the tasks.
    pub fn bounds(&self) -> impl Iterator<Item = Span> + '_ {
        self.rows.iter().map(|row| {
            mutate!(
                "multi-simulated",
                Span::from_ns(row.cost + row.lag),
                Span::from_ns(row.cost + row.lag.saturating_sub(1))
            )
        })
    }

    /// That all are met, with the bounds that were found.
    pub(crate) fn proved(&self) -> Verdict {
        Verdict::Proved { bounds: self.bounds().collect() }
    }
}

/// Whether the tests of this module are about such a set.
///
/// # Errors
/// `Refuted` if a job needs more than its deadline (or there is no CPU), `Unknown` for what no test
/// here covers.
pub(crate) fn check(tasks: &[Sporadic], cpus: u32) -> Result<(), Verdict> {
    // What nearly all sets do, in one go.
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
            Some(task) => Err(Verdict::Unknown { why: Why::Assumption { number, task } }),
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
        Err(Verdict::Unknown { why: Why::Limit })
    }
}

/// Whether no value can grow beyond [`ROOF`].
fn fits(longest: u64, tasks: usize, cpus: u32) -> bool {
    longest.checked_mul((tasks as u64).max(cpus.into())).is_some_and(|product| product < ROOF)
}

/// The job of `task` that misses although nobody hinders it: the others come when it has ended.
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
