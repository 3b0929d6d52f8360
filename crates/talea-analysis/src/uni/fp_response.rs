//! Response times under preemptive fixed priorities.
//!
//! M. Joseph and P. Pandya, "Finding response times in a real-time system", The Computer Journal
//! 29(5), 1986, and N. Audsley et al., Software Engineering Journal 8(5), 1993 (jitter, blocking)
//! for D ≤ T; J. P. Lehoczky, "Fixed priority scheduling of periodic task sets with arbitrary
//! deadlines", RTSS 1990, and K. Tindell, A. Burns and A. Wellings, Real-Time Systems 6(2), 1994
//! (jitter), for any deadline:
//!
//! > w(q) = (q + 1)·C + B + Σ ⌈(w(q) + J_j) / T_j⌉·C_j over all more urgent j, the least such w;
//! > response from arrival max w(q) + J − q·T, over the jobs q = 0, 1, … of the busy window,
//! > which ends with the first job that has w(q) + J ≤ (q + 1)·T.
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, preemptive, no overheads.
//! 3. Distinct fixed priorities; the tasks are given in their order, most urgent first.
//! 4. Sporadic arrivals at least T apart, each released at most J later.
//! 5. Independent tasks, except for the blocking B once per busy window.
//! 6. Jobs of one task run in their order. A late job continues.
//!
//! *Exact* without blocking: the worst case releases all tasks together, each after its jitter.
//! *Sufficient* with blocking, because the blocking need not coincide with this release.
//! Sustainable in C, T, D, J and B.
//!
//! *U = 1.* If a task and the tasks above have U = 1, the window may never end (with blocking, or
//! jitter). One hyperperiod H is enough: w(q) + H satisfies the equation of job q + H/T as ≥ for
//! every U ≤ 1. So w(q + H/T) ≤ w(q) + H. The first ⌈J/T⌉ jobs, which are released together, are
//! evaluated in addition.
//!
//! *Start of the iteration.* The least solution of task i is at least that of task i − 1 plus C_i +
//! B_i − B_(i−1), if that sum is not negative. The right side of i's equation exceeds that of i − 1
//! by at least this sum for every w ≥ 1.

use super::prepared::{
    HORIZON_NS, PreparedTask, Scratch, count_steps, fits, hyperperiod, scaled_down, scaled_up,
};
use super::{Bound, conclude};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Release, Verdict, Witness};
use alloc::vec;
use core::ops::ControlFlow;
use talea_core::Span;
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "fp-response-times",
    policy: "FP",
    platform: Platform::One,
    model: "sporadic, any D, jitter, preemptive; with blocking sufficient",
    kind: TestKind::Exact,
    paper: "Joseph and Pandya, The Computer Journal 29(5), 1986; Lehoczky, RTSS 1990; Tindell, Burns and Wellings, Real-Time Systems 6(2), 1994",
    sustainable: "costs, periods, deadlines, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/oracle.rs::every_fixed_priority_response_time_and_verdict_is_that_of_the_oracle",
        "crates/talea-analysis/tests/it/fp.rs::bounds_are_the_simulated_responses_where_the_worst_case_is_known",
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
    assert_eq!(tasks.len(), out.len(), "a place for each task");
    out.fill(None);
    scratch.load(tasks)?;
    let (rows, _, left) = scratch.parts();
    let mut all_meet = true;
    let mut utilisation = 0u64;
    let (mut start, mut blocking) = (0, 0);
    for at in 0..rows.len() {
        let (above, row) = (&rows[..at], &rows[at]);
        utilisation = utilisation.saturating_add(row.utilisation_up());
        // In overload all less urgent tasks have no bound either.
        let Some(jobs) = count(&tasks[..=at], &rows[..=at], utilisation) else { return Ok(false) };
        let own = row.cost + row.blocking;
        start = own.checked_sub(blocking).map_or(own, |more| start + more);
        blocking = row.blocking;
        let mut bound = Bound { release: Span::ZERO, arrival: Span::ZERO };
        let mut first = 0;
        for_each_job::<()>(above, row, (start, jobs), left, |job, window| {
            if job == 0 {
                first = window;
            }
            bound = bound.max(response(row, job, window));
            ControlFlow::Continue(())
        })?;
        start = first;
        all_meet &= bound.arrival.as_ns() <= row.deadline;
        out[at] = Some(bound);
    }
    Ok(all_meet)
}

/// Returns the longest response time of the last of `tasks`. The other tasks are in any order. The
/// result is `None` if the tasks exceed the CPU, or if there is no task.
///
/// # Errors
/// As [`bounds`].
pub fn lowest_priority_response(
    tasks: &[Sporadic],
    scratch: &mut Scratch,
) -> Result<Option<Bound>, Inconclusive> {
    scratch.load(tasks)?;
    let (rows, _, left) = scratch.parts();
    let Some((row, above)) = rows.split_last() else { return Ok(None) };
    let utilisation = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.utilisation_up()));
    let Some(jobs) = count(tasks, rows, utilisation) else { return Ok(None) };
    let mut bound = Bound { release: Span::ZERO, arrival: Span::ZERO };
    for_each_job::<()>(above, row, (row.cost + row.blocking, jobs), left, |job, window| {
        bound = bound.max(response(row, job, window));
        ControlFlow::Continue(())
    })?;
    Ok(Some(bound))
}

/// Whether every deadline of `tasks`, most urgent first, is met. If both functions return a value,
/// it equals that of [`bounds`]; this function is faster.
///
/// An upper bound of the response proves a task if it is within the deadline (E. Bini, T. H. C.
/// Nguyen, P. Richard and S. K. Baruah, "A response-time bound in fixed-priority scheduling with
/// arbitrary deadlines", IEEE Trans. Computers 58(2), 2009, here with blocking and jitter). A more
/// urgent task has executed at most U·(t + J) + C·(1 − U) within t, because it executes at the
/// speed of the CPU, so that
///
/// > R ≤ J_i + (C_i + B_i + Σ (C_j·(1 − U_j) + U_j·J_j)) / (1 − ΣU_j).
///
/// Otherwise the function computes the responses of the jobs, up to the first job that misses its
/// deadline.
///
/// # Errors
/// As [`bounds`].
pub fn meets(tasks: &[Sporadic], scratch: &mut Scratch) -> Result<bool, Inconclusive> {
    scratch.load(tasks)?;
    let (rows, _, left) = scratch.parts();
    // ΣU_j rounded up, and the sum of the numerator, also rounded up.
    let (mut utilisation, mut carried) = (0u64, 0u64);
    // Lower bound of the next task's least window, and the blocking in it.
    let (mut start, mut blocking) = (0, 0);
    for at in 0..rows.len() {
        let (above, row) = (&rows[..at], &rows[at]);
        let share = row.utilisation_up();
        let idle = u64::MAX - utilisation;
        let own = row.cost + row.blocking;
        start = own.checked_sub(blocking).map_or(own, |more| start + more);
        blocking = row.blocking;
        let Some(room) = row.deadline.checked_sub(row.jitter) else { return Ok(false) };
        // (own + carried) / (1 − ΣU_j) ≤ room, where with its own U there is not more than one CPU.
        let is_bounded = (mutate!(
            "analysis-fp-meets",
            u128::from(own + carried),
            u128::from(own + carried / 2)
        ) << 64)
            <= u128::from(room) * u128::from(idle);
        utilisation = utilisation.saturating_add(share);
        if utilisation == u64::MAX || !is_bounded {
            let Some(jobs) = count(&tasks[..=at], &rows[..=at], utilisation) else {
                return Ok(false);
            };
            let mut first = 0;
            let late = for_each_job(above, row, (start, jobs), left, |job, window| {
                if job == 0 {
                    first = window;
                }
                let is_late = response(row, job, window).arrival.as_ns() > row.deadline;
                if is_late { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if late.is_some() {
                return Ok(false);
            }
            start = first;
        }
        // `share` exceeds U by at most eight parts, so C·(1 − U) is not underestimated.
        carried += row.cost - scaled_down(row.cost, share.saturating_sub(8))
            + scaled_up(row.jitter, share);
    }
    Ok(true)
}

/// Returns the number of relevant jobs of the last of `rows`, whose utilisation is known; `None` in
/// overload. The result is `u64::MAX` if the busy window ends by itself.
fn count(tasks: &[Sporadic], rows: &[PreparedTask], utilisation: u64) -> Option<u64> {
    if utilisation < u64::MAX {
        return Some(u64::MAX);
    }
    if !fits(tasks) {
        return None;
    }
    let row = rows.last()?;
    let jobs = |all: u64| all / row.period + row.jitter / row.period + 1;
    Some(hyperperiod(rows.iter()).map_or(u64::MAX, jobs))
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
        let mut out = vec![None; plain.len()];
        if bounds(plain, scratch, &mut out)? {
            return Ok(None);
        }
        let misses = |(bound, task): (&Option<Bound>, &Sporadic)| {
            bound.is_none_or(|bound| !bound.meets(task))
        };
        let task = out.iter().zip(plain).position(misses).expect("a task misses its deadline");
        if out[task].is_none() {
            return Ok(Some(Witness::Overload { task }));
        }
        let (rows, _, left) = scratch.parts();
        let (above, row) = (&rows[..task], &rows[task]);
        let missed = for_each_job(above, row, (row.cost, u64::MAX), left, |job, window| {
            let bound = response(row, job, window);
            if bound.arrival.as_ns() > row.deadline {
                return ControlFlow::Break((job, bound.release));
            }
            ControlFlow::Continue(())
        })?;
        let (job, response) = missed.expect("the same busy window contained a miss before");
        let releases = tasks.iter().map(|task| Release { first: Span::ZERO, early: task.jitter });
        Ok(Some(Witness::Miss { task, job, response, releases: releases.collect() }))
    })
}

/// Iterates over the jobs of the busy window of `row` below `above`. `visit` receives the number of
/// each job and the length of the window up to its completion. The search starts at the window
/// length `from.0` and ends after `from.1` jobs.
fn for_each_job<T>(
    above: &[PreparedTask],
    row: &PreparedTask,
    from: (u64, u64),
    left: &mut u64,
    mut visit: impl FnMut(u64, u64) -> ControlFlow<T>,
) -> Result<Option<T>, Inconclusive> {
    let (mut window, jobs) = from;
    let mut own = row.cost + row.blocking;
    let mut job = 0;
    loop {
        loop {
            count_steps(left, above.len() + 1)?;
            let next = demand(above, own, window);
            if next == window {
                break;
            }
            if next > HORIZON_NS {
                return Err(Inconclusive::Limit);
            }
            window = next;
        }
        if let ControlFlow::Break(found) = visit(job, window) {
            return Ok(Some(found));
        }
        job += 1;
        // At most 2^61 + 2^60 and, since the last job began before the window's end, 2^60 more.
        if mutate!(
            "analysis-fp-window",
            window + row.jitter <= job * row.period || job >= jobs,
            job >= jobs.min(1)
        ) {
            return Ok(None);
        }
        own += row.cost;
        window += row.cost;
    }
}

/// Returns the demand of `own` and `above` in a non-empty window of length `window` that begins
/// with their releases.
#[inline]
pub(super) fn demand(above: &[PreparedTask], own: u64, window: u64) -> u64 {
    let last = window - 1;
    // ⌈(w + J) / T⌉ = ⌊(w − 1 + J) / T⌋ + 1; the sum is below 2^61 + 2^61 + 2^60 + 2^60.
    let work = |row: &PreparedTask| {
        row.work(mutate!("analysis-fp-jitter", last.wrapping_add(row.jitter), last))
    };
    // By fours: fewer mispredicted loop exits, a tenth of the time for twenty tasks.
    let (fours, rest) = above.as_chunks::<4>();
    let mut sums = [own, 0];
    for [a, b, c, d] in fours {
        sums[0] = sums[0].wrapping_add(work(a)).wrapping_add(work(b));
        sums[1] = sums[1].wrapping_add(work(c)).wrapping_add(work(d));
    }
    rest.iter().fold(sums[0].wrapping_add(sums[1]), |sum, row| sum.wrapping_add(work(row)))
}

/// Returns the response bound of job `job`, which completes at the end of the window.
fn response(row: &PreparedTask, job: u64, window: u64) -> Bound {
    // It arrives at q·T − J, and is released then, or with the window.
    let due = job * row.period;
    Bound {
        release: Span::from_ns(window - due.saturating_sub(row.jitter)),
        arrival: Span::from_ns(window + row.jitter - due),
    }
}
