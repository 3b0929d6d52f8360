//! Response times under fixed priorities with limited preemption.
//!
//! R. J. Bril, J. J. Lukkien and W. F. J. Verhaegh, "Worst-case response time analysis of real-time
//! tasks under fixed-priority scheduling with deferred preemption", Real-Time Systems 42, 2009:
//! the last section of job q, of the length l, begins after the least w(q) with
//!
//! > w(q) = B + (q + 1)·C − l + Σ (⌊(w(q) + J_j)/T_j⌋ + 1)·C_j over all more urgent j.
//!
//! The job completes l after that. All jobs of the busy period count, even if D ≤ T, because a job
//! may delay its successor. The busy period ends after the least t = B + Σ ⌈(t + J_j)/T_j⌉·C_j over
//! the task itself and the tasks above. With l = C this is the analysis of
//! [`super::np_fp`], with l = 1 ns and no blocking the one of [`super::fp_response`].
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, no overheads. The CPU chooses a job at the end of each section.
//! 3. Distinct fixed priorities; the tasks are given in their order, most urgent first.
//! 4. Sporadic arrivals at least T apart, each released at most J later.
//! 5. Independent tasks, except for the tasks' own B, which adds to the blocking by sections.
//! 6. Jobs of one task run in their order. A late job continues.
//! 7. Time is in whole nanoseconds: a section of a less urgent job has begun at least one
//!    nanosecond before. So it blocks for its length less a nanosecond.
//! 8. Sections are between 1 ns and C, and the last one is not longer than the longest.
//!
//! *Exact* without B, if every job is either preemptive or non-preemptive; *sufficient* for other
//! sections and with B. Sustainable in C, T, D, J, B and the longest sections. Longer last sections
//! shorten the task's own bound.

use super::Bound;
use super::prepared::{HORIZON_NS, PreparedTask, Scratch, count_steps, fits, hyperperiod};
use super::sections::Sections;
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::Inconclusive;
use talea_core::{Span, mutate};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "limited-fp-response-times",
    policy: "FP, limited preemption",
    platform: Platform::One,
    model: "sporadic, any D, jitter; preemptive, non-preemptive, preemption points, floating sections",
    kind: TestKind::Sufficient,
    paper: "Bril, Lukkien and Verhaegh, Real-Time Systems 42, 2009",
    sustainable: "costs, periods, deadlines, jitter, blocking, longest sections",
    tests: &[
        "crates/talea-analysis/tests/it/sections.rs::fixed_priority_equations_as_printed_give_the_same",
        "crates/talea-analysis/tests/it/sections.rs::no_job_with_sections_takes_longer_than_its_bound",
    ],
};

/// Longest response of a task: its bound, and the job that attains it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongestResponse {
    pub(super) bound: Bound,
    pub(super) job: u64,
    /// Response of that job, from its release.
    pub(super) response: u64,
}

/// Computes the longest response times of `tasks`, most urgent first, into `out`. `sections`
/// returns the sections of a task by its index. The result of a task is `None` if the task and the
/// tasks above exceed the CPU. Returns whether every deadline is met.
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
    let overload = each(tasks, sections, scratch, |at, longest| {
        all_meet &= longest.bound.meets(&tasks[at]);
        out[at] = Some(longest.bound);
    })?;
    Ok(overload.is_none() && all_meet)
}

/// Returns the number of relevant jobs of the last of `rows`, whose utilisation is known; `None` in
/// overload.
pub(super) fn count(
    tasks: &[Sporadic],
    rows: &[PreparedTask],
    utilisation: u64,
    blocking: u64,
    left: &mut u64,
) -> Result<Option<u64>, Inconclusive> {
    if utilisation < u64::MAX {
        return jobs(rows, blocking, left).map(Some);
    }
    if !fits(tasks) {
        return Ok(None);
    }
    // As for preemptive tasks: a hyperperiod beyond the first jitter covers all.
    let all = hyperperiod(rows.iter()).ok_or(Inconclusive::Limit)?;
    let row = rows.last().expect("a task of this utilisation");
    Ok(Some(all / row.period + row.jitter / row.period + 1))
}

/// Passes the longest response of every task to `found`. Stops at the first task that overloads the
/// CPU together with the tasks above, and returns that task; `None` if no task does.
pub(super) fn each(
    tasks: &[Sporadic],
    sections: impl Fn(usize) -> Sections,
    scratch: &mut Scratch,
    mut found: impl FnMut(usize, LongestResponse),
) -> Result<Option<usize>, Inconclusive> {
    scratch.load(tasks)?;
    let (rows, longest_below, left) = scratch.parts();
    longest_below.clear();
    longest_below.resize(rows.len(), 0);
    let mut longest = 0;
    for (at, row) in rows.iter().enumerate().rev() {
        longest_below[at] = longest;
        longest = longest.max(sections(at).check(row.cost, at)?.blocking());
    }
    let mut utilisation = 0u64;
    for at in 0..rows.len() {
        let row = &rows[at];
        let blocking = row.blocking + longest_below[at];
        utilisation = utilisation.saturating_add(row.utilisation_up());
        let Some(jobs) = count(&tasks[..=at], &rows[..=at], utilisation, blocking, left)? else {
            return Ok(Some(at));
        };
        let last = sections(at).last.as_ns();
        found(at, longest_response(&rows[..at], (row, last), blocking, jobs, left)?);
    }
    Ok(None)
}

/// Returns the longest response of the first `jobs` jobs of a task below `above` in a busy period.
/// The pair is the task with the length of its last section.
pub(super) fn longest_response(
    above: &[PreparedTask],
    (row, last): (&PreparedTask, u64),
    blocking: u64,
    jobs: u64,
    left: &mut u64,
) -> Result<LongestResponse, Inconclusive> {
    let mut longest = LongestResponse {
        bound: Bound { release: Span::ZERO, arrival: Span::ZERO },
        job: 0,
        response: 0,
    };
    let mut earlier = blocking + row.cost - mutate!("analysis-last-section-fp", last, 1);
    let mut begin = earlier;
    for job in 0..mutate!("analysis-np-fp-jobs", jobs, jobs.min(1)) {
        loop {
            count_steps(left, above.len() + 1)?;
            // Up to and at w: ⌊(w + J)/T⌋ + 1 jobs.
            let more = |sum: u64, row: &PreparedTask| {
                sum.wrapping_add(row.work(begin.wrapping_add(row.jitter)))
            };
            let next = above.iter().fold(earlier, more);
            if next > HORIZON_NS {
                return Err(Inconclusive::Limit);
            }
            if next == begin {
                break;
            }
            begin = next;
        }
        let end = begin + last;
        let due = job * row.period;
        if end + row.jitter <= due {
            // The busy period ended before this job.
            break;
        }
        let bound = Bound {
            release: Span::from_ns(end - due.saturating_sub(row.jitter)),
            arrival: Span::from_ns(end + row.jitter - due),
        };
        if bound.arrival > longest.bound.arrival {
            (longest.job, longest.response) = (job, bound.release.as_ns());
        }
        longest.bound = longest.bound.max(bound);
        earlier += row.cost;
        begin += row.cost;
    }
    Ok(longest)
}

/// Returns the number of jobs of the last of `rows` in its busy period.
fn jobs(rows: &[PreparedTask], blocking: u64, left: &mut u64) -> Result<u64, Inconclusive> {
    let Some(row) = rows.last() else { return Ok(0) };
    let mut period = 1u64;
    loop {
        count_steps(left, rows.len())?;
        let last = period - 1;
        let more = |sum: u64, row: &PreparedTask| {
            sum.wrapping_add(row.work(last.wrapping_add(row.jitter)))
        };
        let next = rows.iter().fold(blocking, more);
        if next > HORIZON_NS {
            return Err(Inconclusive::Limit);
        }
        if next == period {
            return Ok(row.quotient(last + row.jitter) + 1);
        }
        period = next;
    }
}
