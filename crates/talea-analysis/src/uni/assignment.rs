//! Who gets which fixed priority.
//!
//! Rate monotonic (C. L. Liu and J. W. Layland, J. ACM 20(1), 1973, theorem 2: optimal for D = T),
//! deadline monotonic (J. Y.-T. Leung and J. Whitehead, Performance Evaluation 2(4), 1982: optimal
//! for D ≤ T), D − J monotonic (A. Zuhily and A. Burns, Information Processing Letters 103(6),
//! 2007: optimal for D ≤ T with jitter); all of them for preemptive tasks without blocking that can
//! be released together. For everything else N. C. Audsley, "On priority assignment in fixed
//! priority scheduling", Information Processing Letters 79(1), 2001: level by level from the
//! lowest, whoever passes the test there may stay there.
//!
//! Assumptions of Audsley's algorithm (R. I. Davis and A. Burns, Real-Time Systems 47(1), 2011:
//! compatible tests): 1. what the test says of a task depends on which tasks are above and below
//! it, not on their order; 2. a task that passes still does when some of those above move below it.
//! Then it finds an order if there is one, with n(n + 1)/2 tests at most. Exact if the test is.
//!
//! Orders are lists of indices, most urgent first; equals keep the order in which they were given.

use super::rows::Scratch;
use super::{fp_response, np_fp};
use crate::Sporadic;
use crate::verdict::Why;
use alloc::vec::Vec;
use talea_core::Work;
use talea_core::mutate;

fn sorted(tasks: &[Sporadic], key: impl Fn(&Sporadic) -> i128) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&at| key(&tasks[at]));
    order
}

/// The shorter the period.
pub fn rate_monotonic(tasks: &[Sporadic]) -> Vec<usize> {
    sorted(tasks, |task| task.period.as_ns().into())
}

/// The shorter the deadline.
pub fn deadline_monotonic(tasks: &[Sporadic]) -> Vec<usize> {
    sorted(tasks, |task| task.deadline.as_ns().into())
}

/// The shorter what jitter leaves of the deadline.
pub fn deadline_minus_jitter_monotonic(tasks: &[Sporadic]) -> Vec<usize> {
    sorted(tasks, |task| i128::from(task.deadline.as_ns()) - i128::from(task.jitter.as_ns()))
}

/// The tasks in this order.
pub fn ordered(tasks: &[Sporadic], order: &[usize]) -> Vec<Sporadic> {
    order.iter().map(|&at| tasks[at]).collect()
}

/// What Audsley's algorithm finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// This order passes.
    Found(Vec<usize>),
    /// None of these can be the least urgent of them, whatever their order: no order passes.
    Stuck(Vec<usize>),
}

/// Audsley's algorithm over `count` tasks: `passes(task, above, below)` says whether `task` meets
/// its deadlines below all of `above` and above all of `below` (both in no particular order).
///
/// # Errors
/// Those of `passes`: then there is no answer.
pub fn audsley(
    count: usize,
    mut passes: impl FnMut(usize, &[usize], &[usize]) -> Result<bool, Why>,
) -> Result<Assignment, Why> {
    let mut open: Vec<usize> = (0..count).collect();
    let mut below = Vec::with_capacity(count);
    while !open.is_empty() {
        // The last first, so that an order which is right already is found at once.
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

/// An order in which preemptive `tasks` meet their deadlines, by [`fp_response`]: any D, jitter and
/// blocking. A task's B stays with it, whatever its priority: recompute it where it depends on who
/// is below.
///
/// # Errors
/// Those of [`fp_response::bounds`].
pub fn preemptive(tasks: &[Sporadic], scratch: &mut Scratch) -> Result<Assignment, Why> {
    let mut list = Vec::with_capacity(tasks.len());
    audsley(tasks.len(), |task, above, _| {
        list.clear();
        list.extend(above.iter().chain([&task]).map(|&at| tasks[at]));
        Ok(fp_response::lowest(&list, scratch)?.is_some_and(|bound| bound.meets(&tasks[task])))
    })
}

/// An order in which non-preemptive `tasks` meet their deadlines, by [`np_fp`].
///
/// # Errors
/// Those of [`np_fp::bounds`].
pub fn non_preemptive(tasks: &[Sporadic], scratch: &mut Scratch) -> Result<Assignment, Why> {
    let mut list = Vec::with_capacity(tasks.len());
    audsley(tasks.len(), |task, above, below| {
        list.clear();
        list.extend(above.iter().chain([&task]).map(|&at| tasks[at]));
        let longest = below.iter().map(|&at| tasks[at].cost).max().unwrap_or(Work::ZERO);
        Ok(np_fp::lowest(&list, longest, scratch)?.is_some_and(|bound| bound.meets(&tasks[task])))
    })
}
