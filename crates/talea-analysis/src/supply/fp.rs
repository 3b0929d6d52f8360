//! Response times under preemptive fixed priorities on any supply.
//!
//! I. Shin and I. Lee, "Periodic resource model for compositional real-time guarantees", RTSS 2003,
//! theorem 2 (∃t ≤ D: rbf(t) ≤ sbf(t)). Here the result is the response time, the least t of the
//! theorem, found with the inverse of sbf. As in [`crate::uni::fp_response`], the test visits the
//! busy window job by job and covers any deadline and jitter:
//!
//! > w(q) = time_for((q + 1)·C + B + Σ ⌈(w(q) + J_j)/T_j⌉·C_j), the least w of this kind.
//!
//! Consider a window [s, s + w) with no pending work of this level at s and pending work until s +
//! w. At least sbf(w) is supplied and used for this level, whatever s is. So job q has completed by
//! w(q), for D > T as well as for D ≤ T.
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU at a time, preemptive, no overheads, supplied as the [`Supply`] states.
//! 3. Distinct fixed priorities; the tasks are given in their order, most urgent first.
//! 4. Sporadic arrivals at least T apart, each released at most J later.
//! 5. Independent tasks, except for the blocking B once per busy window.
//! 6. Jobs of one task run in their order. A late job continues.
//!
//! *Exact* with respect to the supply bound, without blocking, if one pattern of supply is the
//! worst for all lengths ([`Tightness::ByOnePattern`]: Γ, Ω, a CPU). For a concrete server or
//! partition the test is sufficient and does not refute. Sustainable in C, T, D, J and B, and in
//! more supply.

use super::curve::InterferenceCurve;
use super::{Supply, Tightness};
use crate::Sporadic;
use crate::biguint::BigUint;
use crate::demand::Demand;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::uni::{Bound, HORIZON_NS, MAX_PARAMETER_NS};
use crate::verdict::{Inconclusive, Release, Verdict, Witness};
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "fp-on-a-supply",
    policy: "FP",
    platform: Platform::Supply,
    model: "sporadic, any D, jitter, preemptive; exact for the supply bound, with blocking sufficient",
    kind: TestKind::Exact,
    paper: "Shin and Lee, RTSS 2003, theorem 2",
    sustainable: "costs, periods, deadlines, jitter, blocking, supply",
    tests: &[
        "crates/talea-analysis/tests/it/supply/oracle.rs::every_verdict_of_tasks_in_a_periodic_resource_is_that_of_the_oracle",
        "crates/talea-analysis/tests/it/supply/worst.rs::responses_are_those_of_the_worst_supply_and_witnesses_are_misses",
    ],
};

/// Comparison of the demand of a task set with a rate in the long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Below,
    Equal,
    Above,
}

/// Compares ΣC/T with the rate of `supply`, exactly. The result is `Below` if the rate is not
/// known.
pub(crate) fn load(tasks: &[Sporadic], supply: &impl Supply) -> Load {
    let Some(rate) = supply.rate() else { return Load::Below };
    let demands: Vec<Demand> =
        tasks.iter().map(|task| Demand::new(task.cost, task.period)).collect();
    let (work, within) = crate::demand::sum(&demands);
    let asked = work.times(&BigUint::from(u128::from(rate.every.as_ns())));
    let there = within.times(&BigUint::from(u128::from(rate.work.as_ns())));
    match asked.cmp(&there) {
        core::cmp::Ordering::Less => Load::Below,
        core::cmp::Ordering::Equal => Load::Equal,
        core::cmp::Ordering::Greater => Load::Above,
    }
}

/// Checks assumption 1 and the range.
pub(crate) fn check(tasks: &[Sporadic]) -> Result<(), Inconclusive> {
    let mut sum = 0u64;
    for (at, task) in tasks.iter().enumerate() {
        if task.cost.is_zero() || task.period.is_zero() {
            return Err(Inconclusive::Assumption { number: 1, task: at });
        }
        let parts = [task.cost.as_ns(), task.jitter.as_ns(), task.blocking.as_ns()];
        if parts
            .iter()
            .chain(&[task.period.as_ns(), task.deadline.as_ns()])
            .any(|&part| part >= MAX_PARAMETER_NS)
        {
            return Err(Inconclusive::Limit);
        }
        sum = parts.iter().fold(sum, |sum, part| sum.saturating_add(*part));
        if sum >= MAX_PARAMETER_NS {
            return Err(Inconclusive::Limit);
        }
    }
    Ok(())
}

/// Returns the longest response times of `tasks`, most urgent first. The result of a task is `None`
/// if the demand of the task and of the tasks above exceeds the long-run supply.
///
/// # Errors
/// [`Inconclusive::Assumption`] 1. [`Inconclusive::Limit`] for values outside the range, for more
/// than `rounds` iterations, or for a result beyond the horizon.
pub fn bounds(
    tasks: &[Sporadic],
    supply: &impl Supply,
    rounds: u64,
) -> Result<Vec<Option<Bound>>, Inconclusive> {
    check(tasks)?;
    let curves: Vec<InterferenceCurve> = tasks.iter().map(curve).collect();
    let mut left = rounds;
    let mut out = Vec::with_capacity(tasks.len());
    for (at, task) in tasks.iter().enumerate() {
        if load(&tasks[..=at], supply) == Load::Above {
            out.resize(tasks.len(), None);
            break;
        }
        let mut bound = Bound { release: Span::ZERO, arrival: Span::ZERO };
        for_each_job(task, &curves[..at], supply, &mut left, |_, one| {
            bound = bound.max(one);
            // With equal loads the busy window may be endless; then the limit ends the search.
            false
        })?;
        out.push(Some(bound));
    }
    Ok(out)
}

/// Returns the interference curve of a task.
pub(crate) fn curve(task: &Sporadic) -> InterferenceCurve {
    InterferenceCurve { cost: task.cost, period: task.period, jitter: task.jitter }
}

/// Iterates over the jobs in the busy window of `task` below `above`. The iteration ends when
/// `stop` returns `true` or the window ends.
pub(crate) fn for_each_job(
    task: &Sporadic,
    above: &[InterferenceCurve],
    supply: &impl Supply,
    left: &mut u64,
    mut stop: impl FnMut(u64, Bound) -> bool,
) -> Result<(), Inconclusive> {
    let (period, jitter) = (task.period.as_ns(), task.jitter.as_ns());
    let mut own = task.cost.as_ns() + task.blocking.as_ns();
    let mut window = 1;
    let mut job = 0u64;
    loop {
        loop {
            *left = left.checked_sub(1).ok_or(Inconclusive::Limit)?;
            let asked = own.saturating_add(super::curve::all_within(above, window));
            let next = supply
                .time_for(Work::from_ns(asked.min(HORIZON_NS + 1)))
                .ok_or(Inconclusive::Limit)?
                .as_ns();
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
        own = own.checked_add(task.cost.as_ns()).ok_or(Inconclusive::Limit)?;
    }
}

/// Returns the result with its witness: a proof with bounds from the release, a miss, or an
/// overload. A miss is refuted only if one pattern of supply is the worst for all lengths.
pub fn verdict(tasks: &[Sporadic], supply: &impl Supply, rounds: u64) -> Verdict {
    if let Err(why) = check(tasks) {
        return Verdict::Unknown { why };
    }
    let curves: Vec<InterferenceCurve> = tasks.iter().map(curve).collect();
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
        let walked = for_each_job(spec, &curves[..task], supply, &mut left, |job, bound| {
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
            // Blocking is not caused by a given task, so it refutes nothing.
            late = None;
            let walked = for_each_job(&plain, &curves[..task], supply, &mut left, |job, bound| {
                if bound.arrival > spec.deadline {
                    late = Some((job, bound.release));
                }
                late.is_some()
            });
            match (walked, late) {
                (Err(why), _) => return Verdict::Unknown { why },
                (Ok(()), None) => {
                    return Verdict::Unknown { why: Inconclusive::Insufficient { task } };
                }
                _ => {}
            }
        }
        if late.is_some() && supply.tightness() != Tightness::ByOnePattern {
            return Verdict::Unknown { why: Inconclusive::Insufficient { task } };
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
