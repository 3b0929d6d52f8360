//! Assignment of fixed priorities.
//!
//! Three orders are optimal for preemptive tasks without blocking that can be released together:
//! - rate monotonic for D = T (C. L. Liu and J. W. Layland, J. ACM 20(1), 1973, theorem 2);
//! - deadline monotonic for D ≤ T (J. Y.-T. Leung and J. Whitehead, Performance Evaluation 2(4),
//!   1982);
//! - D − J monotonic for D ≤ T with jitter (A. Zuhily and A. Burns, Information Processing Letters
//!   103(6), 2007).
//!
//! For other tasks: N. C. Audsley, "On priority assignment in fixed priority scheduling",
//! Information Processing Letters 79(1), 2001. The algorithm assigns level by level from the
//! lowest. A task that passes the test at a level may stay at that level.
//!
//! Assumptions of Audsley's algorithm (R. I. Davis and A. Burns, Real-Time Systems 47(1), 2011:
//! compatible tests):
//! 1. The verdict about a task depends on the sets of tasks above and below it, not on their order.
//! 2. A task that passes still passes when some of the tasks above it move below it.
//!
//! Then the algorithm finds an order if one exists, with at most n(n + 1)/2 tests. It is exact if
//! the test is exact.
//!
//! Orders are lists of indices, most urgent first. Tasks with equal parameters keep their order.

use super::prepared::Scratch;
use super::{fp_response, np_fp};
use crate::Sporadic;
use crate::verdict::Inconclusive;
use alloc::vec::Vec;
use talea_core::Work;
use talea_core::mutate;

fn sorted(tasks: &[Sporadic], key: impl Fn(&Sporadic) -> i128) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&at| key(&tasks[at]));
    order
}

/// Returns the order by period, the shortest first.
pub fn rate_monotonic(tasks: &[Sporadic]) -> Vec<usize> {
    sorted(tasks, |task| task.period.as_ns().into())
}

/// Returns the order by deadline, the shortest first.
pub fn deadline_monotonic(tasks: &[Sporadic]) -> Vec<usize> {
    sorted(tasks, |task| task.deadline.as_ns().into())
}

/// Returns the order by deadline minus jitter, the shortest first.
pub fn deadline_minus_jitter_monotonic(tasks: &[Sporadic]) -> Vec<usize> {
    sorted(tasks, |task| i128::from(task.deadline.as_ns()) - i128::from(task.jitter.as_ns()))
}

/// Returns the tasks in the order `order`.
pub fn ordered(tasks: &[Sporadic], order: &[usize]) -> Vec<Sporadic> {
    order.iter().map(|&at| tasks[at]).collect()
}

/// Result of Audsley's algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// A priority order that passes the test.
    Found(Vec<usize>),
    /// No order passes. None of these tasks can be the least urgent, in any order of the others.
    Stuck(Vec<usize>),
}

/// Runs Audsley's algorithm over `count` tasks. `passes(task, above, below)` returns whether `task`
/// meets its deadlines below all of `above` and above all of `below`. Both lists are in no
/// particular order.
///
/// # Errors
/// Those of `passes`.
pub fn audsley(
    count: usize,
    mut passes: impl FnMut(usize, &[usize], &[usize]) -> Result<bool, Inconclusive>,
) -> Result<Assignment, Inconclusive> {
    let mut open: Vec<usize> = (0..count).collect();
    let mut below = Vec::with_capacity(count);
    while !open.is_empty() {
        // The last first, so that a correct order is found at once.
        let mut lowest = None;
        for place in (0..open.len()).rev() {
            let task = open.remove(place);
            if passes(task, &open, &below)? {
                lowest = Some(task);
                break;
            }
            open.insert(place, task);
            mutate!("analysis-audsley", {}, {
                break;
            });
        }
        match lowest {
            Some(task) => below.push(task),
            None => return Ok(Assignment::Stuck(open)),
        }
    }
    below.reverse();
    Ok(Assignment::Found(below))
}

/// Returns an order in which preemptive `tasks` meet their deadlines, by [`fp_response`]: any D,
/// jitter and blocking. The B of a task stays the same at any priority. The caller recomputes B if
/// it depends on the tasks below.
///
/// # Errors
/// Those of [`fp_response::bounds`].
pub fn preemptive(tasks: &[Sporadic], scratch: &mut Scratch) -> Result<Assignment, Inconclusive> {
    let mut list = Vec::with_capacity(tasks.len());
    audsley(tasks.len(), |task, above, _| {
        list.clear();
        list.extend(above.iter().chain([&task]).map(|&at| tasks[at]));
        Ok(fp_response::lowest_priority_response(&list, scratch)?
            .is_some_and(|bound| bound.meets(&tasks[task])))
    })
}

/// Returns an order in which non-preemptive `tasks` meet their deadlines, by [`np_fp`].
///
/// # Errors
/// Those of [`np_fp::bounds`].
pub fn non_preemptive(
    tasks: &[Sporadic],
    scratch: &mut Scratch,
) -> Result<Assignment, Inconclusive> {
    let mut list = Vec::with_capacity(tasks.len());
    audsley(tasks.len(), |task, above, below| {
        list.clear();
        list.extend(above.iter().chain([&task]).map(|&at| tasks[at]));
        let longest = below.iter().map(|&at| tasks[at].cost).max().unwrap_or(Work::ZERO);
        Ok(np_fp::lowest_priority_response(&list, longest, scratch)?
            .is_some_and(|bound| bound.meets(&tasks[task])))
    })
}
