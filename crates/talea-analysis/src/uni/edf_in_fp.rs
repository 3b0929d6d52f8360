//! EDF within fixed priorities: each priority level of a CPU orders its own tasks by deadline
//! (PikeOS' EDF bands). M. González Harbour and J. C. Palencia, "Response time analysis for tasks
//! scheduled under EDF within fixed priorities", RTSS 2003; without offsets. The fast search is in
//! `edf_response_search.rs`. The search adds the tasks of higher levels unchanged, because their
//! work in a window does not depend on any deadline.
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, preemptive, no overheads.
//! 3. A job of a higher level runs before any job of a lower level. Within a level jobs run by EDF
//!    with absolute deadlines, which count from the arrival, ties in any way.
//! 4. Sporadic arrivals at least T apart, each released at most J later.
//! 5. Independent tasks, except for blocking: the tasks of a level are blocked by at most the
//!    largest B of the level, once per busy period.
//! 6. Jobs of one task run in their order. A late job continues.
//! 7. `levels` does not decrease along the list: tasks are given level by level, the most urgent
//!    level first.
//!
//! *Exact* without blocking. The busy period of a level begins when all tasks of this level and of
//! the levels above are released together after their jitter. This is the worst case for each
//! window at once, and within the busy period Spuri's argument holds. *Sufficient* with blocking.
//! One task in each level is fixed priorities; one level is EDF. The verdict is sustainable in C,
//! T, D, J and B. A bound may grow with its own D and as other D of its level shrink.

use super::edf_response::witness;
use super::edf_response_search::{self, EdfLevel, LevelSections, LongestResponse};
use super::prepared::{Scratch, fits};
use super::{Bound, conclude};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict, Witness};
use alloc::vec;
use talea_core::Span;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "edf-in-fp-response-times",
    policy: "EDF within FP",
    platform: Platform::One,
    model: "sporadic, any D, jitter, preemptive; with blocking sufficient",
    kind: TestKind::Exact,
    paper: "González Harbour and Palencia, RTSS 2003",
    sustainable: "verdict: costs, periods, deadlines, jitter, blocking; bounds: costs, periods, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/edf_in_fp.rs::one_level_is_edf_and_a_level_for_each_is_fixed_priorities",
        "crates/talea-analysis/tests/it/edf_in_fp.rs::bounds_are_the_longest_simulated_responses",
        "crates/talea-analysis/tests/it/sandwich.rs::deadlines_preemptive_and_not_and_in_bands",
    ],
};

/// Computes the longest response times of `tasks` into `out`. `levels` has the level of each task
/// (assumption 7 of this module). The results are `None` from the first level on that exceeds the
/// CPU together with the levels above. Returns whether every deadline is met.
///
/// # Errors
/// [`Inconclusive::Assumption`] 1 or 7. [`Inconclusive::Limit`] for values outside the range of
/// [`super`], or if the scratch has no steps left; then `out` holds no results.
///
/// # Panics
/// If `out` and `levels` do not have one element per task.
pub fn bounds(
    tasks: &[Sporadic],
    levels: &[u32],
    scratch: &mut Scratch,
    out: &mut [Option<Bound>],
) -> Result<bool, Inconclusive> {
    assert_eq!(tasks.len(), out.len(), "a place for each task");
    out.fill(None);
    let mut all_meet = true;
    let overload = each(tasks, levels, scratch, |at, longest| {
        let bound = Bound {
            release: Span::from_ns(longest.release),
            arrival: Span::from_ns(longest.arrival),
        };
        all_meet &= bound.meets(&tasks[at]);
        out[at] = Some(bound);
    })?;
    Ok(overload.is_none() && all_meet)
}

/// Passes the longest response of every task to `found`, up to the first level that overloads the
/// CPU. Returns the last task of that level; `None` if no level overloads the CPU.
fn each(
    tasks: &[Sporadic],
    levels: &[u32],
    scratch: &mut Scratch,
    mut found: impl FnMut(usize, LongestResponse),
) -> Result<Option<usize>, Inconclusive> {
    assert_eq!(tasks.len(), levels.len(), "a level for each task");
    if let Some(at) = levels.windows(2).position(|pair| pair[0] > pair[1]) {
        return Err(Inconclusive::Assumption { number: 7, task: at + 1 });
    }
    scratch.load(tasks)?;
    let (rows, order, left) = scratch.parts();
    order.clear();
    order.extend(0..rows.len() as u64);
    let mut utilisation = 0u64;
    let mut begin = 0;
    while begin < rows.len() {
        let end = begin + levels[begin..].partition_point(|&level| level == levels[begin]);
        let (above, rest) = rows.split_at_mut(begin);
        let same = &mut rest[..end - begin];
        utilisation =
            same.iter().fold(utilisation, |sum, row| sum.saturating_add(row.utilisation_up()));
        if utilisation == u64::MAX && !fits(&tasks[..end]) {
            return Ok(Some(end - 1));
        }
        let blocking = same.iter().map(|row| row.blocking).max().unwrap_or(0);
        edf_response_search::sort_by_deadline(same, &mut order[begin..end]);
        let level = EdfLevel::new(above, same, blocking, LevelSections::NONE, utilisation, left)?;
        for at in 0..same.len() {
            found(order[begin + at] as usize, level.longest(at, left)?);
        }
        begin = end;
    }
    Ok(None)
}

/// Returns the result with its witness: a proof with bounds from the release, a miss, or an
/// overload. The function allocates.
pub fn verdict(tasks: &[Sporadic], levels: &[u32]) -> Verdict {
    verdict_in(tasks, levels, &mut Scratch::new())
}

/// Returns the result of [`verdict`], computed in `scratch` with its step limit.
pub fn verdict_in(tasks: &[Sporadic], levels: &[u32], scratch: &mut Scratch) -> Verdict {
    let mut out = vec![None; tasks.len()];
    let bounded = bounds(tasks, levels, scratch, &mut out);
    conclude(tasks, bounded, &out, |plain| {
        let mut miss: Option<(usize, LongestResponse)> = None;
        let overload = each(plain, levels, scratch, |at, longest| {
            if longest.arrival > tasks[at].deadline.as_ns()
                && miss.is_none_or(|(first, _)| at < first)
            {
                miss = Some((at, longest));
            }
        })?;
        let missed = miss.map(|(task, longest)| witness(tasks, task, &longest));
        Ok(missed.or(overload.map(|task| Witness::Overload { task })))
    })
}
