//! Assignment of fixed priorities.
//!
//! Rate monotonic (C. L. Liu and J. W. Layland, J. ACM 20(1), 1973, theorem 2: optimal for D = T),
//! deadline monotonic (J. Y.-T. Leung and J. Whitehead, Performance Evaluation 2(4), 1982: optimal
//! for D ≤ T), D − J monotonic (A. Zuhily and A. Burns, Information Processing Letters 103(6),
//! 2007: optimal for D ≤ T with jitter); all of them for preemptive tasks without blocking that can
//! be released together. Otherwise N. C. Audsley, "On priority assignment in fixed priority
//! scheduling", Information Processing Letters 79(1), 2001: level by level from the lowest: a task
//! that passes the test at a level may stay there.
//!
//! Assumptions of Audsley's algorithm (R. I. Davis and A. Burns, Real-Time Systems 47(1), 2011:
//! compatible tests): 1. what the test says of a task depends on which tasks are above and below
//! it, not on their order; 2. a task that passes still does when some of those above move below it.
//! Then it finds an order if there is one, with n(n + 1)/2 tests at most. Exact if the test is.
//!
//! Orders are lists of indices, most urgent first; equals keep the order in which they were given.

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

/// Order by period, the shortest first.
pub fn rate_monotonic(tasks: &[Sporadic]) -> Vec<usize> {
    sorted(tasks, |task| task.period.as_ns().into())
}

/// Order by deadline, the shortest first.
pub fn deadline_monotonic(tasks: &[Sporadic]) -> Vec<usize> {
    sorted(tasks, |task| task.deadline.as_ns().into())
}

/// Order by deadline minus jitter, the shortest first.
pub fn deadline_minus_jitter_monotonic(tasks: &[Sporadic]) -> Vec<usize> {
    sorted(tasks, |task| i128::from(task.deadline.as_ns()) - i128::from(task.jitter.as_ns()))
}

/// Returns the tasks in this order.
pub fn ordered(tasks: &[Sporadic], order: &[usize]) -> Vec<Sporadic> {
    order.iter().map(|&at| tasks[at]).collect()
}

/// Result of Audsley's algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// An order that passes.
    Found(Vec<usize>),
    /// Tasks of which none can be the least urgent, in any order of the others: no order passes.
    Stuck(Vec<usize>),
}

/// Audsley's algorithm over `count` tasks. `passes(task, above, below)` returns whether `task`
/// meets its deadlines below all of `above` and above all of `below` (both in no particular order).
///
/// # Errors
/// Those of `passes`; then there is no result.
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
/// jitter and blocking. The B of a task stays the same at any priority; recompute it if it depends
/// on the tasks below.
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
