//! Response times under preemptive EDF.
//!
//! M. Spuri, "Analysis of deadline scheduled real-time systems", INRIA research report 2772, 1996,
//! also with release jitter. How the search is made fast is in `sweep.rs`, with its proof.
//!
//! Assumptions: 1. C ≥ 1, T ≥ 1, all integers; 2. one CPU, preemptive, no overheads; 3. EDF by
//! absolute deadlines, which count from the arrival; ties in any way, so adverse to the task that
//! is looked at; 4. sporadic arrivals at least T apart, each released at most J later; 5.
//! independent, but for blocking: each task is held up by at most the largest B of all once per
//! busy period; 6. jobs of one task run in their order; a late job runs on.
//!
//! *Exact* without blocking, *sufficient* with it. Sustainable in C, T, J and B, and as a verdict
//! in D as well; the bound of a task may grow with its own D and as other D shrink, for these order
//! the jobs.

use super::rows::{Scratch, fits};
use super::sweep::{self, Level, Longest};
use super::{Bound, conclude};
use crate::Sporadic;
use crate::card::{Card, Kind, Platform};
use crate::verdict::{Release, Verdict, Why, Witness};
use alloc::vec;
use alloc::vec::Vec;
use talea_core::Span;

/// Its catalogue entry.
pub const CARD: Card = Card {
    name: "edf-response-times",
    policy: "EDF",
    platform: Platform::One,
    model: "sporadic, any D, jitter, preemptive; with blocking sufficient",
    kind: Kind::Exact,
    paper: "Spuri, INRIA research report 2772, 1996",
    sustainable: "verdict: costs, periods, deadlines, jitter, blocking; bounds: costs, periods, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/oracle.rs::every_edf_response_time_and_verdict_is_that_of_the_oracle",
        "crates/talea-analysis/tests/it/edf.rs::every_candidate_tried_gives_the_same",
        "crates/talea-analysis/tests/it/sandwich.rs::deadlines_preemptive_and_not_and_in_bands",
    ],
};

/// The longest response times of `tasks`, in any order, into `out`; `None` for all of them if
/// together they ask for more than the CPU. Says whether every deadline is met.
///
/// # Errors
/// [`Why::Assumption`] 1, or [`Why::Limit`] outside the range of [`super`] or of the scratch's
/// steps; then `out` holds no answers.
///
/// # Panics
/// If `out` has not one place for each task.
pub fn bounds(
    tasks: &[Sporadic],
    scratch: &mut Scratch,
    out: &mut [Option<Bound>],
) -> Result<bool, Why> {
    assert_eq!(tasks.len(), out.len(), "a place for each task");
    out.fill(None);
    let mut all_meet = true;
    let fit = each(tasks, scratch, |at, longest| {
        let bound = Bound {
            release: Span::from_ns(longest.release),
            arrival: Span::from_ns(longest.arrival),
        };
        all_meet &= bound.meets(&tasks[at]);
        out[at] = Some(bound);
    })?;
    Ok(fit && all_meet)
}

/// Tells `found` of every task its longest response; says whether they fit on the CPU at all.
fn each(
    tasks: &[Sporadic],
    scratch: &mut Scratch,
    mut found: impl FnMut(usize, Longest),
) -> Result<bool, Why> {
    scratch.load(tasks)?;
    let (rows, order, left) = scratch.parts();
    if rows.is_empty() {
        return Ok(true);
    }
    let utilisation = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.utilisation_up()));
    if utilisation == u64::MAX && !fits(tasks) {
        return Ok(false);
    }
    order.clear();
    order.extend(0..rows.len() as u64);
    let blocking = rows.iter().map(|row| row.blocking).max().unwrap_or(0);
    sweep::sort(rows, order);
    let level = Level::new(&[], rows, blocking, utilisation, left)?;
    for (at, &index) in order.iter().enumerate() {
        found(index as usize, level.longest(at, left)?);
    }
    Ok(true)
}

/// The answer with its witness: a proof with bounds from the release, a miss, or an overload.
/// Allocates.
pub fn verdict(tasks: &[Sporadic]) -> Verdict {
    verdict_in(tasks, &mut Scratch::new())
}

/// The same, in a scratch with its limit.
pub fn verdict_in(tasks: &[Sporadic], scratch: &mut Scratch) -> Verdict {
    let mut out = vec![None; tasks.len()];
    let bounded = bounds(tasks, scratch, &mut out);
    conclude(tasks, bounded, &out, |plain| {
        let mut miss: Option<(usize, Longest)> = None;
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

/// How the longest response of `task` comes about.
pub(crate) fn witness(tasks: &[Sporadic], task: usize, longest: &Longest) -> Witness {
    let mut releases: Vec<Release> =
        tasks.iter().map(|task| Release { first: Span::ZERO, early: task.jitter }).collect();
    let spec = &tasks[task];
    let (period, jitter) = (spec.period.as_ns(), spec.jitter.as_ns());
    // Its jobs arrive at α − J, α − J − T, …, back to the first that is not before −J.
    let (job, first) = (longest.alpha / period, longest.alpha % period);
    let (first, early) = (first.saturating_sub(jitter), jitter.saturating_sub(first));
    releases[task] = Release { first: Span::from_ns(first), early: Span::from_ns(early) };
    let release = longest.alpha.saturating_sub(jitter).max(first);
    let response = Span::from_ns(longest.window - release);
    Witness::Miss { task, job, response, releases }
}
