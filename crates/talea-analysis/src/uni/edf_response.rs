//! Response times under preemptive EDF.
//!
//! M. Spuri, "Analysis of deadline scheduled real-time systems", INRIA research report 2772, 1996,
//! also with release jitter. Preemptive jobs are those of
//! [`super::limited_edf`] with sections of a nanosecond. The fast search and its proof are in
//! `edf_response_search.rs`.
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, preemptive, no overheads.
//! 3. EDF by absolute deadlines, which count from the arrival. Ties are in any order, so adverse to
//!    the analysed task.
//! 4. Sporadic arrivals at least T apart, each released at most J later.
//! 5. Independent tasks, except for blocking: each task is blocked by at most the largest B of all
//!    tasks, once per busy period.
//! 6. Jobs of one task run in their order. A late job continues.
//!
//! *Exact* without blocking, *sufficient* with blocking. Sustainable in C, T, J and B; the verdict
//! is sustainable in D as well. The bound of a task may grow with its own D and as other D shrink,
//! because the deadlines order the jobs.

use super::edf_response_search::LongestResponse;
use super::prepared::Scratch;
use super::sections::Sections;
use super::{Bound, conclude, limited_edf};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Release, Verdict, Witness};
use alloc::vec;
use alloc::vec::Vec;
use talea_core::Span;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "edf-response-times",
    policy: "EDF",
    platform: Platform::One,
    model: "sporadic, any D, jitter, preemptive; with blocking sufficient",
    kind: TestKind::Exact,
    paper: "Spuri, INRIA research report 2772, 1996",
    sustainable: "verdict: costs, periods, deadlines, jitter, blocking; bounds: costs, periods, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/oracle.rs::every_edf_response_time_and_verdict_is_that_of_the_oracle",
        "crates/talea-analysis/tests/it/edf.rs::every_candidate_tried_gives_the_same",
        "crates/talea-analysis/tests/it/sandwich.rs::deadlines_preemptive_and_not_and_in_bands",
    ],
};

/// Computes the longest response times of `tasks`, in any order, into `out`. All results are `None`
/// if the tasks exceed the CPU together. Returns whether every deadline is met.
///
/// # Errors
/// [`Inconclusive::Assumption`] 1. [`Inconclusive::Limit`] for values outside the range of
/// [`super`], or if the scratch has no steps left; then `out` holds no results.
///
/// # Panics
/// If `out` does not have one element per task.
pub fn bounds(
    tasks: &[Sporadic],
    scratch: &mut Scratch,
    out: &mut [Option<Bound>],
) -> Result<bool, Inconclusive> {
    assert_eq!(tasks.len(), out.len(), "a place for each task");
    out.fill(None);
    let mut all_meet = true;
    let fit = each(tasks, scratch, |at, longest| {
        let bound = longest.bound();
        all_meet &= bound.meets(&tasks[at]);
        out[at] = Some(bound);
    })?;
    Ok(fit && all_meet)
}

/// Passes the longest response of every task to `found`. Returns whether the tasks fit on the CPU.
fn each(
    tasks: &[Sporadic],
    scratch: &mut Scratch,
    found: impl FnMut(usize, LongestResponse),
) -> Result<bool, Inconclusive> {
    limited_edf::each(tasks, |_| Sections::PREEMPTIVE, scratch, found)
}

/// Returns the result with its witness: a proof with bounds from the release, a miss, or an
/// overload. The function allocates.
pub fn verdict(tasks: &[Sporadic]) -> Verdict {
    verdict_in(tasks, &mut Scratch::new())
}

/// Returns the result of [`verdict`], computed in `scratch` with its step limit.
pub fn verdict_in(tasks: &[Sporadic], scratch: &mut Scratch) -> Verdict {
    let mut out = vec![None; tasks.len()];
    let bounded = bounds(tasks, scratch, &mut out);
    conclude(tasks, bounded, &out, |plain| {
        let mut miss: Option<(usize, LongestResponse)> = None;
        let fits = each(plain, scratch, |at, longest| {
            if longest.arrival > tasks[at].deadline.as_ns()
                && miss.is_none_or(|(first, _)| at < first)
            {
                miss = Some((at, longest));
            }
        })?;
        if !fits {
            return Ok(Some(Witness::Overload { task: tasks.len() - 1 }));
        }
        Ok(miss.map(|(task, longest)| witness(tasks, task, &longest)))
    })
}

/// Returns the releases that produce the longest response of `task`.
pub(crate) fn witness(tasks: &[Sporadic], task: usize, longest: &LongestResponse) -> Witness {
    let mut releases: Vec<Release> =
        tasks.iter().map(|task| Release { first: Span::ZERO, early: task.jitter }).collect();
    let spec = &tasks[task];
    let (period, jitter) = (spec.period.as_ns(), spec.jitter.as_ns());
    // Its jobs arrive at α − J, α − J − T, …, back to the first that is not before −J.
    let (job, first) = (longest.alpha / period, longest.alpha % period);
    let (first, early) = (first.saturating_sub(jitter), jitter.saturating_sub(first));
    releases[task] = Release { first: Span::from_ns(first), early: Span::from_ns(early) };
    let release = longest.alpha.saturating_sub(jitter).max(first);
    let response = Span::from_ns(longest.completion - release);
    Witness::Miss { task, job, response, releases }
}
