//! How far a parameter can go: the largest cost, the largest factor on all costs, the shortest
//! period.
//!
//! By bisection over any test that is *sustainable* in the parameter (assumption 1: what it accepts
//! it also accepts with less cost, or with a longer period; each test's head says so): the last
//! accepted value is then next to the first refused one. E. Bini, M. Di Natale and G. C. Buttazzo,
//! "Sensitivity analysis for fixed-priority real-time systems", Real-Time Systems 39(1-3), 2008,
//! for the questions; S. Baruah and A. Burns, "Sustainable scheduling analysis", RTSS 2006, for the
//! assumption.
//!
//! Exact to the nanosecond for one cost and one period, to the given resolution for a factor. As
//! exact as the test.
//!
//! An order of priorities is part of the test: what is passed in keeps its places, and a test that
//! sorts sorts anew.

use crate::Sporadic;
use crate::verdict::Why;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// A test: whether it accepts the tasks.
///
/// An error is no refusal; it ends the search.
pub trait Accepts: FnMut(&[Sporadic]) -> Result<bool, Why> {}

impl<T: FnMut(&[Sporadic]) -> Result<bool, Why>> Accepts for T {}

/// The largest of `least..=most` that `accepts` accepts; `None` if not even the least.
fn largest(
    least: u64,
    most: u64,
    mut accepts: impl FnMut(u64) -> Result<bool, Why>,
) -> Result<Option<u64>, Why> {
    if least > most || !accepts(least)? {
        return Ok(None);
    }
    // `low` is accepted, and what is above `high` is not.
    let (mut low, mut high) = (least, most);
    while mutate!("analysis-sensitivity", low < high, low + 1 < high) {
        let middle = low + (high - low).div_ceil(2);
        if accepts(middle)? {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Ok(Some(low))
}

/// The largest cost of task `at` that is accepted, all else as it is; at most its period and its
/// deadline. `None` if not even a nanosecond is.
///
/// # Errors
/// Those of the test.
pub fn largest_cost(
    tasks: &[Sporadic],
    at: usize,
    mut accepts: impl Accepts,
) -> Result<Option<Work>, Why> {
    let mut changed: Vec<Sporadic> = tasks.to_vec();
    let most = tasks[at].period.min(tasks[at].deadline).as_ns();
    let found = largest(1, most, |cost| {
        changed[at].cost = Work::from_ns(cost);
        accepts(&changed)
    })?;
    Ok(found.map(Work::from_ns))
}

/// The costs times `parts` / `resolution`, rounded up; `None` beyond the range.
pub fn scaled(tasks: &[Sporadic], parts: u64, resolution: u32) -> Option<Vec<Sporadic>> {
    let one = |task: &Sporadic| {
        let cost = (u128::from(task.cost.as_ns()) * u128::from(parts))
            .div_ceil(u128::from(resolution.max(1)));
        Some(Sporadic { cost: Work::from_ns(u64::try_from(cost).ok()?), ..*task })
    };
    tasks.iter().map(one).collect()
}

/// The largest factor on all costs that is accepted, in parts of one / `resolution`: with 1,000 in
/// thousandths. Costs are rounded up to whole nanoseconds. Below one if the tasks are not accepted
/// as they are; `None` if no part of them is, or if there are no tasks.
///
/// # Errors
/// Those of the test.
pub fn largest_factor(
    tasks: &[Sporadic],
    resolution: u32,
    mut accepts: impl Accepts,
) -> Result<Option<u64>, Why> {
    // Beyond this the first task to reach its period or deadline is too long even alone.
    let most = |task: &Sporadic| {
        let room = u128::from(task.period.min(task.deadline).as_ns());
        let parts = room * u128::from(resolution.max(1)) / u128::from(task.cost.as_ns().max(1));
        u64::try_from(parts).unwrap_or(u64::MAX)
    };
    let Some(most) = tasks.iter().map(most).min() else { return Ok(None) };
    largest(1, most, |parts| match scaled(tasks, parts, resolution) {
        Some(changed) => accepts(&changed),
        None => Ok(false),
    })
}

/// The shortest period of task `at` that is accepted, all else as it is, except that a deadline
/// which is not longer than the period is kept so. At least the task's cost. `None` if not even the
/// longest that `longest` allows is.
///
/// # Errors
/// Those of the test.
pub fn shortest_period(
    tasks: &[Sporadic],
    at: usize,
    longest: Span,
    mut accepts: impl Accepts,
) -> Result<Option<Span>, Why> {
    let mut changed: Vec<Sporadic> = tasks.to_vec();
    let (task, least) = (tasks[at], tasks[at].cost.as_ns().max(1));
    let Some(room) = longest.as_ns().checked_sub(least) else { return Ok(None) };
    // The more is taken away the harder it becomes.
    let found = largest(0, room, |less| {
        let period = Span::from_ns(longest.as_ns() - less);
        let is_constrained = task.deadline <= task.period;
        let deadline = if is_constrained { task.deadline.min(period) } else { task.deadline };
        changed[at] = Sporadic { period, deadline, ..task };
        accepts(&changed)
    })?;
    Ok(found.map(|less| Span::from_ns(longest.as_ns() - less)))
}
