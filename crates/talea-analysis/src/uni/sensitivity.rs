//! Sensitivity analysis: the largest cost, the largest factor on all costs, the shortest period.
//!
//! The analysis bisects over any test that is *sustainable* in the parameter (assumption 1). An
//! accepted set then stays accepted with less cost, or with a longer period. The head of each test
//! states whether the test is sustainable. The last accepted value is then adjacent to the first
//! refused value. E. Bini, M. Di Natale and G. C. Buttazzo, "Sensitivity analysis for
//! fixed-priority real-time systems", Real-Time Systems 39(1-3), 2008, for the questions; S. Baruah
//! and A. Burns, "Sustainable scheduling analysis", RTSS 2006, for the assumption.
//!
//! The result is exact to the nanosecond for one cost and one period, and to the given resolution
//! for a factor. Apart from this, the result is as exact as the test.
//!
//! A priority order is part of the test. The tasks keep their positions, and a test that sorts the
//! tasks sorts them again.

use crate::Sporadic;
use crate::verdict::Inconclusive;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Test that returns whether it accepts the tasks.
///
/// An error is no refusal, and ends the search.
pub trait Accepts: FnMut(&[Sporadic]) -> Result<bool, Inconclusive> {}

impl<T: FnMut(&[Sporadic]) -> Result<bool, Inconclusive>> Accepts for T {}

/// Returns the largest value of `least..=most` that `accepts` accepts; `None` if it does not accept
/// `least`.
fn largest(
    least: u64,
    most: u64,
    mut accepts: impl FnMut(u64) -> Result<bool, Inconclusive>,
) -> Result<Option<u64>, Inconclusive> {
    if least > most || !accepts(least)? {
        return Ok(None);
    }
    // `low` is accepted, and values above `high` are not.
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

/// Returns the largest accepted cost of task `at`, at most its period and its deadline. All other
/// parameters are unchanged. `None` if not even a nanosecond is accepted.
///
/// # Errors
/// Those of the test.
pub fn largest_cost(
    tasks: &[Sporadic],
    at: usize,
    mut accepts: impl Accepts,
) -> Result<Option<Work>, Inconclusive> {
    let mut changed: Vec<Sporadic> = tasks.to_vec();
    let most = tasks[at].period.min(tasks[at].deadline).as_ns();
    let found = largest(1, most, |cost| {
        changed[at].cost = Work::from_ns(cost);
        accepts(&changed)
    })?;
    Ok(found.map(Work::from_ns))
}

/// Returns the tasks with costs times `parts` / `resolution`, rounded up; `None` beyond the range.
pub fn scaled(tasks: &[Sporadic], parts: u64, resolution: u32) -> Option<Vec<Sporadic>> {
    let one = |task: &Sporadic| {
        let cost = (u128::from(task.cost.as_ns()) * u128::from(parts))
            .div_ceil(u128::from(resolution.max(1)));
        Some(Sporadic { cost: Work::from_ns(u64::try_from(cost).ok()?), ..*task })
    };
    tasks.iter().map(one).collect()
}

/// Returns the largest accepted factor on all costs, in units of 1 / `resolution`. With 1,000 the
/// unit is a thousandth. Costs are rounded up to whole nanoseconds. The factor is below one if the
/// unchanged tasks are not accepted. `None` if no factor is accepted, or if there are no tasks.
///
/// # Errors
/// Those of the test.
pub fn largest_factor(
    tasks: &[Sporadic],
    resolution: u32,
    mut accepts: impl Accepts,
) -> Result<Option<u64>, Inconclusive> {
    // Upper limit: beyond it a task exceeds its period or deadline even alone.
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

/// Returns the shortest accepted period of task `at`, which is at least its cost. All other
/// parameters are unchanged, except that a deadline within the period stays within it. `None` if
/// not even the period `longest` is accepted.
///
/// # Errors
/// Those of the test.
pub fn shortest_period(
    tasks: &[Sporadic],
    at: usize,
    longest: Span,
    mut accepts: impl Accepts,
) -> Result<Option<Span>, Inconclusive> {
    let mut changed: Vec<Sporadic> = tasks.to_vec();
    let (task, least) = (tasks[at], tasks[at].cost.as_ns().max(1));
    let Some(room) = longest.as_ns().checked_sub(least) else { return Ok(None) };
    // The more the period shrinks, the harder the test becomes.
    let found = largest(0, room, |less| {
        let period = Span::from_ns(longest.as_ns() - less);
        let is_constrained = task.deadline <= task.period;
        let deadline = if is_constrained { task.deadline.min(period) } else { task.deadline };
        changed[at] = Sporadic { period, deadline, ..task };
        accepts(&changed)
    })?;
    Ok(found.map(|less| Span::from_ns(longest.as_ns() - less)))
}
