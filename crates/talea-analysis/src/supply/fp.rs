//! Response times under preemptive fixed priorities on any supply.
//!
//! I. Shin and I. Lee, "Periodic resource model for compositional real-time guarantees", RTSS 2003,
//! theorem 2 (∃t ≤ D: rbf(t) ≤ sbf(t)), as a response time (the least such t, found with the
//! inverse of sbf) and, job by job through the busy window, for any deadline and jitter as in
//! [`crate::uni::fp_response`]:
//!
//! > w(q) = time_for((q + 1)·C + B + Σ ⌈(w(q) + J_j)/T_j⌉·C_j), the least such w.
//!
//! In a window [s, s + w) in which nothing of this level pends at s and something does until s + w,
//! at least sbf(w) is supplied and used for this level, wherever s lies: so job q has ended by
//! w(q), with D > T as with D ≤ T.
//!
//! Assumptions: 1. C ≥ 1, T ≥ 1, all integers; 2. one CPU at a time, preemptive, no overheads,
//! supplied as the [`Supply`] says; 3. distinct fixed priorities, the tasks given in their order,
//! most urgent first; 4. sporadic arrivals at least T apart, each released at most J later; 5.
//! independent, but for the blocking B once per busy window; 6. jobs of one task run in their
//! order; a late job runs on.
//!
//! *Exact* with respect to the supply bound, without blocking, where one pattern of supply is the
//! worst for all lengths ([`Reached::ByOnePattern`]: Γ, Ω, a CPU); sufficient for a concrete server
//! or partition, which it does not refute. Sustainable in C, T, D, J and B, and in more supply.

use super::curve::Curve;
use super::{Reached, Supply};
use crate::Sporadic;
use crate::card::{Card, Kind, Platform};
use crate::demand::Demand;
use crate::natural::Natural;
use crate::uni::{Bound, HORIZON, LONGEST};
use crate::verdict::{Release, Verdict, Why, Witness};
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Its catalogue entry.
pub const CARD: Card = Card {
    name: "fp-on-a-supply",
    policy: "FP",
    platform: Platform::Supply,
    model: "sporadic, any D, jitter, preemptive; exact for the supply bound, with blocking sufficient",
    kind: Kind::Exact,
    paper: "Shin and Lee, RTSS 2003, theorem 2",
    sustainable: "costs, periods, deadlines, jitter, blocking, supply",
    tests: &[
        "crates/talea-analysis/tests/it/supply/oracle.rs::every_verdict_of_tasks_in_a_periodic_resource_is_that_of_the_oracle",
        "crates/talea-analysis/tests/it/supply/worst.rs::responses_are_those_of_the_worst_supply_and_witnesses_are_misses",
    ],
};

/// How a set of tasks compares with a rate in the long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Below,
    Equal,
    Above,
}

/// ΣC/T against the rate of `supply`, exactly; `Below` where the rate is not known.
pub(crate) fn load(tasks: &[Sporadic], supply: &impl Supply) -> Load {
    let Some(rate) = supply.rate() else { return Load::Below };
    let demands: Vec<Demand> =
        tasks.iter().map(|task| Demand::new(task.cost, task.period)).collect();
    let (work, within) = crate::demand::sum(&demands);
    let asked = work.times(&Natural::from(u128::from(rate.every.as_ns())));
    let there = within.times(&Natural::from(u128::from(rate.work.as_ns())));
    match asked.cmp(&there) {
        core::cmp::Ordering::Less => Load::Below,
        core::cmp::Ordering::Equal => Load::Equal,
        core::cmp::Ordering::Greater => Load::Above,
    }
}

/// Assumption 1 and the range.
pub(crate) fn check(tasks: &[Sporadic]) -> Result<(), Why> {
    let mut sum = 0u64;
    for (at, task) in tasks.iter().enumerate() {
        if task.cost.is_zero() || task.period.is_zero() {
            return Err(Why::Assumption { number: 1, task: at });
        }
        let parts = [task.cost.as_ns(), task.jitter.as_ns(), task.blocking.as_ns()];
        if parts
            .iter()
            .chain(&[task.period.as_ns(), task.deadline.as_ns()])
            .any(|&part| part >= LONGEST)
        {
            return Err(Why::Limit);
        }
        sum = parts.iter().fold(sum, |sum, part| sum.saturating_add(*part));
        if sum >= LONGEST {
            return Err(Why::Limit);
        }
    }
    Ok(())
}

/// The longest response times of `tasks`, most urgent first: `None` where a task and those above it
/// ask for more than is supplied in the long run.
///
/// # Errors
/// [`Why::Assumption`] 1, or [`Why::Limit`]: outside the range, more than `rounds` approximations,
/// or an answer beyond the horizon.
pub fn bounds(
    tasks: &[Sporadic],
    supply: &impl Supply,
    rounds: u64,
) -> Result<Vec<Option<Bound>>, Why> {
    check(tasks)?;
    let curves: Vec<Curve> = tasks.iter().map(curve).collect();
    let mut left = rounds;
    let mut out = Vec::with_capacity(tasks.len());
    for (at, task) in tasks.iter().enumerate() {
        if load(&tasks[..=at], supply) == Load::Above {
            out.resize(tasks.len(), None);
            break;
        }
        let mut bound = Bound { release: Span::ZERO, arrival: Span::ZERO };
        walk(task, &curves[..at], supply, &mut left, |_, one| {
            bound = bound.max(one);
            // Equal loads need not end; a response beyond the deadline decides as well as the
            // longest.
            false
        })?;
        out.push(Some(bound));
    }
    Ok(out)
}

/// As interference.
pub(crate) fn curve(task: &Sporadic) -> Curve {
    Curve { cost: task.cost, period: task.period, jitter: task.jitter }
}

/// Job by job through the busy window of `task` below `above`, until `stop` or its end.
pub(crate) fn walk(
    task: &Sporadic,
    above: &[Curve],
    supply: &impl Supply,
    left: &mut u64,
    mut stop: impl FnMut(u64, Bound) -> bool,
) -> Result<(), Why> {
    let (period, jitter) = (task.period.as_ns(), task.jitter.as_ns());
    let mut own = task.cost.as_ns() + task.blocking.as_ns();
    let mut window = 1;
    let mut job = 0u64;
    loop {
        loop {
            *left = left.checked_sub(1).ok_or(Why::Limit)?;
            let asked = own.saturating_add(super::curve::all_within(above, window));
            let next =
                supply.time_for(Work::from_ns(asked.min(HORIZON + 1))).ok_or(Why::Limit)?.as_ns();
            if next <= window {
                break;
            }
            window = next;
        }
        let due = job.saturating_mul(period);
        let bound = Bound {
            release: Span::from_ns(window - due.saturating_sub(jitter)),
            arrival: Span::from_ns(window + jitter - due),
        };
        job += 1;
        if stop(job - 1, bound)
            || mutate!("supply-fp-jobs", window + jitter <= job.saturating_mul(period), job > 0)
        {
            return Ok(());
        }
        own = own.checked_add(task.cost.as_ns()).ok_or(Why::Limit)?;
    }
}

/// The answer with its witness: a proof with bounds from the release, a job that misses under the
/// worst supply where one pattern is that for all lengths, or an overload.
pub fn verdict(tasks: &[Sporadic], supply: &impl Supply, rounds: u64) -> Verdict {
    if let Err(why) = check(tasks) {
        return Verdict::Unknown { why };
    }
    let curves: Vec<Curve> = tasks.iter().map(curve).collect();
    let mut left = rounds;
    let mut bounds = Vec::with_capacity(tasks.len());
    for (task, spec) in tasks.iter().enumerate() {
        let plain = Sporadic { blocking: Work::ZERO, ..*spec };
        let is_above = load(&tasks[..=task], supply) == Load::Above;
        if is_above {
            return Verdict::Refuted { witness: Witness::Overload { task } };
        }
        let mut late = None;
        let mut longest = Span::ZERO;
        let walked = walk(spec, &curves[..task], supply, &mut left, |job, bound| {
            longest = longest.max(bound.release);
            if bound.arrival > spec.deadline {
                late = Some((job, bound.release));
            }
            late.is_some()
        });
        if let Err(why) = walked {
            return Verdict::Unknown { why };
        }
        if late.is_some() && !spec.blocking.is_zero() {
            // What blocks is no task, so that it refutes nothing.
            late = None;
            let walked = walk(&plain, &curves[..task], supply, &mut left, |job, bound| {
                if bound.arrival > spec.deadline {
                    late = Some((job, bound.release));
                }
                late.is_some()
            });
            match (walked, late) {
                (Err(why), _) => return Verdict::Unknown { why },
                (Ok(()), None) => return Verdict::Unknown { why: Why::Insufficient { task } },
                _ => {}
            }
        }
        if late.is_some() && supply.reached() != Reached::ByOnePattern {
            return Verdict::Unknown { why: Why::Insufficient { task } };
        }
        if let Some((job, response)) = late {
            let releases = tasks
                .iter()
                .map(|task| Release { first: Span::ZERO, early: task.jitter })
                .collect();
            return Verdict::Refuted { witness: Witness::Miss { task, job, response, releases } };
        }
        bounds.push(longest);
    }
    Verdict::Proved { bounds }
}
