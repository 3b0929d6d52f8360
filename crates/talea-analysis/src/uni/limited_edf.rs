//! Response times under EDF with limited preemption.
//!
//! L. George, N. Rivierre and M. Spuri, "Preemptive and non-preemptive real-time uniprocessor
//! scheduling", INRIA research report 2966, 1996, for non-preemptive jobs; S. K. Baruah, "The
//! limited-preemption uniprocessor scheduling of sporadic task systems", ECRTS 2005, for sections;
//! S. Bozhko and B. B. Brandenburg, "Abstract response-time analysis", ECRTS 2020,
//! for the last section. The search and its proof are in `edf_response_search.rs`.
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, no overheads.
//! 3. EDF by absolute deadlines, which count from the arrival. Ties are in any order, so adverse to
//!    the analysed task. The CPU chooses a job at the end of each section, and never idles while a
//!    job waits.
//! 4. Sporadic arrivals at least T apart, each released at most J later.
//! 5. Independent tasks, except for blocking: each task is blocked by at most the largest B of all
//!    tasks, once per busy period, beside the blocking by sections.
//! 6. Jobs of one task run in their order. A late job continues.
//! 7. Time is in whole nanoseconds: a section of a job with a later deadline has begun at least one
//!    nanosecond before.
//! 8. Sections are between 1 ns and C, and the last one is not longer than the longest.
//!
//! *Exact* without B, if every job is either preemptive or non-preemptive; *sufficient* for other
//! sections and with B. Sustainable in C, T, J, B and
//! the longest sections. Longer last sections shorten the task's own bound.

use super::Bound;
use super::edf_response_search::{self, EdfLevel, LevelSections, LongestResponse};
use super::prepared::{Scratch, fits};
use super::sections::Sections;
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::Inconclusive;
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "limited-edf-response-times",
    policy: "EDF, limited preemption",
    platform: Platform::One,
    model: "sporadic, any D, jitter; preemptive, non-preemptive, preemption points, floating sections",
    kind: TestKind::Sufficient,
    paper: "George, Rivierre and Spuri, INRIA research report 2966, 1996; Baruah, ECRTS 2005; Bozhko and Brandenburg, ECRTS 2020",
    sustainable: "bounds: costs, periods, jitter, blocking, longest sections",
    tests: &[
        "crates/talea-analysis/tests/it/sections.rs::edf_bounds_are_the_longest_simulated_responses",
        "crates/talea-analysis/tests/it/sections.rs::every_candidate_tried_gives_the_same",
    ],
};

/// Computes the longest response times of `tasks`, in any order, into `out`. `sections` returns the
/// sections of a task by its index. All results are `None` if the tasks exceed the CPU together.
/// Returns whether every deadline is met.
///
/// # Errors
/// [`Inconclusive::Assumption`] 1 or 8. [`Inconclusive::Limit`] for values outside the range of
/// [`super`], or if the scratch has no steps left; then `out` holds no results.
///
/// # Panics
/// If `out` does not have one element per task.
pub fn bounds(
    tasks: &[Sporadic],
    sections: impl Fn(usize) -> Sections,
    scratch: &mut Scratch,
    out: &mut [Option<Bound>],
) -> Result<bool, Inconclusive> {
    assert_eq!(tasks.len(), out.len(), "a place for each task");
    out.fill(None);
    let mut all_meet = true;
    let fit = each(tasks, sections, scratch, |at, longest| {
        let bound = longest.bound();
        all_meet &= bound.meets(&tasks[at]);
        out[at] = Some(bound);
    })?;
    Ok(fit && all_meet)
}

/// Passes the longest response of every task to `found`. Returns whether the tasks fit on the CPU.
pub(super) fn each(
    tasks: &[Sporadic],
    sections: impl Fn(usize) -> Sections,
    scratch: &mut Scratch,
    mut found: impl FnMut(usize, LongestResponse),
) -> Result<bool, Inconclusive> {
    scratch.load(tasks)?;
    let (rows, spare, left) = scratch.parts();
    let count = rows.len();
    if count == 0 {
        return Ok(true);
    }
    let utilisation = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.utilisation_up()));
    if utilisation == u64::MAX && !fits(tasks) {
        return Ok(false);
    }
    for (at, row) in rows.iter().enumerate() {
        sections(at).check(row.cost, at)?;
    }
    // The order, the tails, and the longest sections from each task on.
    spare.clear();
    spare.extend(0..count as u64);
    spare.resize(3 * count + 1, 0);
    let (order, rest) = spare.split_at_mut(count);
    let (tails, longest_from) = rest.split_at_mut(count);
    let blocking = rows.iter().map(|row| row.blocking).max().unwrap_or(0);
    edf_response_search::sort_by_deadline(rows, order);
    for (at, &index) in order.iter().enumerate().rev() {
        let sections = sections(index as usize);
        tails[at] = mutate!("analysis-last-section", sections.tail(), sections.blocking());
        let longest = mutate!("analysis-longest-section", sections.blocking(), sections.tail());
        longest_from[at] = longest_from[at + 1].max(longest);
    }
    let sections = LevelSections { tails, longest_from };
    let level = EdfLevel::new(&[], rows, blocking, sections, utilisation, left)?;
    for (at, &index) in order.iter().enumerate() {
        found(index as usize, level.longest(at, left)?);
    }
    Ok(true)
}
