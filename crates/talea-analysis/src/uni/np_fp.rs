//! Response times under non-preemptive fixed priorities.
//!
//! R. I. Davis, A. Burns, R. J. Bril and J. J. Lukkien, "Controller Area Network (CAN)
//! schedulability analysis: refuted, revisited and revised", Real-Time Systems 35(3), 2007, section
//! 3: the job q of the busy period begins after
//!
//! > w(q) = B + q·C + Σ (⌊(w(q) + J_j)/T_j⌋ + 1)·C_j over all more urgent j, the least such w.
//!
//! The job completes C after that start. All jobs of the busy period count, even if D ≤ T, because
//! a job may delay its successor (the error of the earlier analysis). The busy period ends after
//! the least t = B + Σ ⌈(t + J_j)/T_j⌉·C_j over the task itself and the tasks above.
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, no overheads. A job that has begun runs to its end.
//! 3. Distinct fixed priorities; the tasks are given in their order, most urgent first.
//! 4. Sporadic arrivals at least T apart, each released at most J later.
//! 5. Independent tasks.
//! 6. Jobs of one task run in their order. A late job continues.
//! 7. Time is in whole nanoseconds: a less urgent job that blocks has started at least one
//!    nanosecond before. So B = max C − 1 over all tasks below. The tasks' own B (other blocking)
//!    adds to it.
//!
//! *Exact* for sporadic tasks without a B of their own: the least urgent job may start just before
//! all other jobs arrive. For strictly periodic tasks only *sufficient*. Sustainable in C, T, D, J
//! and B (the test, not a concrete schedule).

use super::limited_fp::{self, LongestResponse};
use super::prepared::{MAX_PARAMETER_NS, Scratch};
use super::sections::Sections;
use super::{Bound, conclude};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Release, Verdict, Witness};
use alloc::vec;
use talea_core::{Span, Work};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "np-fp-response-times",
    policy: "FP, non-preemptive",
    platform: Platform::One,
    model: "sporadic, any D, jitter, non-preemptive; with blocking sufficient",
    kind: TestKind::Exact,
    paper: "Davis, Burns, Bril and Lukkien, Real-Time Systems 35(3), 2007, section 3",
    sustainable: "costs, periods, deadlines, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/nonpreemptive.rs::davis_2007_the_third_message_misses_in_its_second_job",
        "crates/talea-analysis/tests/it/nonpreemptive.rs::fp_bounds_are_the_longest_simulated_responses",
        "crates/talea-analysis/tests/it/sandwich.rs::fixed_priorities_preemptive_and_not",
    ],
};

/// Computes the longest response times of `tasks`, most urgent first, into `out`. The result of a
/// task is `None` if the task and the tasks above exceed the CPU. Returns whether every deadline is
/// met.
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
    limited_fp::bounds(tasks, |at| Sections::whole(&tasks[at]), scratch, out)
}

/// Returns the longest response time of the last of `tasks`. `below` is the longest job of less
/// urgent tasks. The other tasks are in any order. The result is `None` if the tasks exceed the
/// CPU, or if there is no task.
///
/// # Errors
/// As [`bounds`].
pub fn lowest_priority_response(
    tasks: &[Sporadic],
    below: Work,
    scratch: &mut Scratch,
) -> Result<Option<Bound>, Inconclusive> {
    scratch.load(tasks)?;
    let (rows, _, left) = scratch.parts();
    let Some((row, above)) = rows.split_last() else { return Ok(None) };
    if below.as_ns() >= MAX_PARAMETER_NS {
        return Err(Inconclusive::Limit);
    }
    let blocking = row.blocking + below.as_ns().saturating_sub(1);
    let utilisation = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.utilisation_up()));
    Ok(match limited_fp::count(tasks, rows, utilisation, blocking, left)? {
        Some(jobs) => {
            Some(limited_fp::longest_response(above, (row, row.cost), blocking, jobs, left)?.bound)
        }
        None => None,
    })
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
        let mut miss = None;
        let whole = |at: usize| Sections::whole(&plain[at]);
        let overload = limited_fp::each(plain, whole, scratch, |at, longest| {
            if !longest.bound.meets(&tasks[at]) && miss.is_none() {
                miss = Some((at, longest));
            }
        })?;
        let missed = miss.map(|(task, longest)| witness(tasks, task, &longest));
        Ok(missed.or(overload.map(|task| Witness::Overload { task })))
    })
}

/// Returns the releases of a worst case: the longest job of the less urgent tasks first, all other
/// jobs a nanosecond later.
fn witness(tasks: &[Sporadic], task: usize, longest: &LongestResponse) -> Witness {
    let below = (task + 1..tasks.len()).max_by_key(|&at| tasks[at].cost);
    let offset = Span::from_ns(u64::from(below.is_some()));
    let releases = tasks.iter().enumerate().map(|(at, task)| Release {
        first: if Some(at) == below { Span::ZERO } else { offset },
        early: task.jitter,
    });
    let response = Span::from_ns(longest.response);
    Witness::Miss { task, job: longest.job, response, releases: releases.collect() }
}
