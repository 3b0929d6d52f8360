//! Response times under non-preemptive fixed priorities.
//!
//! R. I. Davis, A. Burns, R. J. Bril and J. J. Lukkien, "Controller Area Network (CAN)
//! schedulability analysis: refuted, revisited and revised", Real-Time Systems 35(3), 2007, section
//! 3: the job q of the busy period begins after
//!
//! > w(q) = B + q·C + Σ (⌊(w(q) + J_j)/T_j⌋ + 1)·C_j over all more urgent j, the least such w,
//!
//! and ends C later; all jobs of the busy period count, even where D ≤ T, since a job may push its
//! successor (the error of the earlier analysis). The period ends after the least t = B + Σ ⌈(t +
//! J_j)/T_j⌉·C_j over the task itself and those above.
//!
//! Assumptions: 1. C ≥ 1, T ≥ 1, all integers; 2. one CPU, no overheads; a job that has begun runs
//! to its end; 3. distinct fixed priorities, the tasks given in their order, most urgent first; 4.
//! sporadic arrivals at least T apart, each released at most J later; 5. independent; 6. jobs of
//! one task run in their order; a late job runs on; 7. time is in whole nanoseconds: a less urgent
//! job that is in the way has begun at least one before, so B = max C − 1 over all below; the
//! tasks' own B (what else holds them up) adds to it.
//!
//! *Exact* for sporadic tasks without a B of their own: the least urgent job may begin just before
//! all others come. For strictly periodic ones only *sufficient*. Sustainable in C, T, D, J and B
//! (as a test: a concrete schedule is not).

use super::rows::{HORIZON, LONGEST, Row, Scratch, fits, hyperperiod, spend};
use super::{Bound, conclude};
use crate::Sporadic;
use crate::card::{Card, Kind, Platform};
use crate::verdict::{Release, Verdict, Why, Witness};
use alloc::vec;
use talea_core::{Span, Work};

/// Its catalogue entry.
pub const CARD: Card = Card {
    name: "np-fp-response-times",
    policy: "FP, non-preemptive",
    platform: Platform::One,
    model: "sporadic, any D, jitter, non-preemptive; with blocking sufficient",
    kind: Kind::Exact,
    paper: "Davis, Burns, Bril and Lukkien, Real-Time Systems 35(3), 2007, section 3",
    sustainable: "costs, periods, deadlines, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/nonpreemptive.rs::davis_2007_the_third_message_misses_in_its_second_job",
        "crates/talea-analysis/tests/it/nonpreemptive.rs::fp_bounds_are_the_longest_simulated_responses",
        "crates/talea-analysis/tests/it/sandwich.rs::fixed_priorities_preemptive_and_not",
    ],
};

/// The longest response of a task: its bound, and the job from whose arrival it is.
#[derive(Clone, Copy, Debug)]
struct Longest {
    bound: Bound,
    job: u64,
    /// Of that job, from its release.
    response: u64,
}

/// The longest response times of `tasks`, most urgent first, into `out`: `None` where there is none
/// because a task and those above it ask for more than the CPU. Says whether every deadline is met.
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
    let overload = each(tasks, scratch, |at, longest| {
        all_meet &= longest.bound.meets(&tasks[at]);
        out[at] = Some(longest.bound);
    })?;
    Ok(overload.is_none() && all_meet)
}

/// The longest response time of the last of `tasks`, where the longest job below it takes `below`;
/// the others in any order. `None` if they ask for more than the CPU, or if there is no task.
///
/// # Errors
/// As [`bounds`].
pub fn lowest(
    tasks: &[Sporadic],
    below: Work,
    scratch: &mut Scratch,
) -> Result<Option<Bound>, Why> {
    scratch.load(tasks)?;
    let (rows, _, left) = scratch.parts();
    let Some((row, above)) = rows.split_last() else { return Ok(None) };
    if below.as_ns() >= LONGEST {
        return Err(Why::Limit);
    }
    let blocking = row.blocking + below.as_ns().saturating_sub(1);
    let utilisation = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.utilisation_up()));
    Ok(match count(tasks, rows, utilisation, blocking, left)? {
        Some(jobs) => Some(walk(above, row, blocking, jobs, left)?.bound),
        None => None,
    })
}

/// How many jobs of the last of `rows` matter, whose utilisation is known; `None` in overload.
fn count(
    tasks: &[Sporadic],
    rows: &[Row],
    utilisation: u64,
    blocking: u64,
    left: &mut u64,
) -> Result<Option<u64>, Why> {
    if utilisation < u64::MAX {
        return jobs(rows, blocking, left).map(Some);
    }
    if !fits(tasks) {
        return Ok(None);
    }
    // As for preemptive tasks: a hyperperiod beyond the first jitter shows all.
    let all = hyperperiod(rows.iter()).ok_or(Why::Limit)?;
    let row = rows.last().expect("a task of this utilisation");
    Ok(Some(all / row.period + row.jitter / row.period + 1))
}

/// Tells `found` of every task its longest response, up to the first that overloads the CPU with
/// those above it.
fn each(
    tasks: &[Sporadic],
    scratch: &mut Scratch,
    mut found: impl FnMut(usize, Longest),
) -> Result<Option<usize>, Why> {
    scratch.load(tasks)?;
    let (rows, longest_below, left) = scratch.parts();
    longest_below.clear();
    longest_below.resize(rows.len(), 0);
    let mut longest = 0;
    for (at, row) in rows.iter().enumerate().rev() {
        longest_below[at] = longest;
        longest = longest.max(row.cost);
    }
    let mut utilisation = 0u64;
    for at in 0..rows.len() {
        let row = &rows[at];
        let blocking = row.blocking + longest_below[at].saturating_sub(1);
        utilisation = utilisation.saturating_add(row.utilisation_up());
        let Some(jobs) = count(&tasks[..=at], &rows[..=at], utilisation, blocking, left)? else {
            return Ok(Some(at));
        };
        found(at, walk(&rows[..at], row, blocking, jobs, left)?);
    }
    Ok(None)
}

/// Through the first `jobs` jobs of `row` below `above` in a busy period.
fn walk(
    above: &[Row],
    row: &Row,
    blocking: u64,
    jobs: u64,
    left: &mut u64,
) -> Result<Longest, Why> {
    let mut longest =
        Longest { bound: Bound { release: Span::ZERO, arrival: Span::ZERO }, job: 0, response: 0 };
    let (mut begin, mut earlier) = (blocking, blocking);
    for job in 0..jobs {
        loop {
            spend(left, above.len() + 1)?;
            // Up to and at w: ⌊(w + J)/T⌋ + 1 jobs.
            let more =
                |sum: u64, row: &Row| sum.wrapping_add(row.work(begin.wrapping_add(row.jitter)));
            let next = above.iter().fold(earlier, more);
            if next > HORIZON {
                return Err(Why::Limit);
            }
            if next == begin {
                break;
            }
            begin = next;
        }
        let end = begin + row.cost;
        let due = job * row.period;
        if end + row.jitter <= due {
            // The period was over before this job.
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

/// How many jobs of the last of `rows` its busy period has.
fn jobs(rows: &[Row], blocking: u64, left: &mut u64) -> Result<u64, Why> {
    let Some(row) = rows.last() else { return Ok(0) };
    let mut period = 1u64;
    loop {
        spend(left, rows.len())?;
        let last = period - 1;
        let more = |sum: u64, row: &Row| sum.wrapping_add(row.work(last.wrapping_add(row.jitter)));
        let next = rows.iter().fold(blocking, more);
        if next > HORIZON {
            return Err(Why::Limit);
        }
        if next == period {
            return Ok(row.quotient(last + row.jitter) + 1);
        }
        period = next;
    }
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
        let mut miss = None;
        let overload = each(plain, scratch, |at, longest| {
            if !longest.bound.meets(&tasks[at]) && miss.is_none() {
                miss = Some((at, longest));
            }
        })?;
        let missed = miss.map(|(task, longest)| witness(tasks, task, &longest));
        Ok(missed.or(overload.map(|task| Witness::Overload { task })))
    })
}

/// The longest of those below comes first, everybody else a nanosecond later.
fn witness(tasks: &[Sporadic], task: usize, longest: &Longest) -> Witness {
    let below = (task + 1..tasks.len()).max_by_key(|&at| tasks[at].cost);
    let offset = Span::from_ns(u64::from(below.is_some()));
    let releases = tasks.iter().enumerate().map(|(at, task)| Release {
        first: if Some(at) == below { Span::ZERO } else { offset },
        early: task.jitter,
    });
    let response = Span::from_ns(longest.response);
    Witness::Miss { task, job: longest.job, response, releases: releases.collect() }
}
