//! The processor demand test for EDF, by QPA.
//!
//! S. K. Baruah, L. E. Rosier and R. R. Howell, "Algorithms and complexity concerning the
//! preemptive scheduling of periodic, real-time tasks on one processor", Real-Time Systems 2(4),
//! 1990: schedulable if and only if in every window t the jobs that are released and due within it
//! fit,
//!
//! > h(t) = Σ_{D_j ≤ t} (⌊(t − D_j)/T_j⌋ + 1)·C_j ≤ t for all t.
//!
//! F. Zhang and A. Burns, "Schedulability analysis for real-time systems with EDF scheduling", IEEE
//! Trans. Computers 58(9), 2009 (QPA): h does not shrink as t grows. So h(t) ≤ t proves all windows
//! from h(t) up to t, and a few steps down from the last relevant instant prove all. Jitter: D − J
//! replaces D (Spuri 1996). Blocking: h(t) + b(t) ≤ t (S. K. Baruah, "Resource sharing in
//! EDF-scheduled systems: a closer look", RTSS 2006).
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, preemptive, no overheads.
//! 3. EDF by absolute deadlines, which count from the arrival.
//! 4. Sporadic arrivals at least T apart, each released at most J later.
//! 5. Independent tasks, except for blocking under the stack resource policy (or a ceiling
//!    protocol, or non-preemptable sections). B_k is the longest section of tasks with longer
//!    deadlines that can block a task with the deadline of k or a shorter one. So b(t) is B_k of
//!    the longest D_k ≤ t.
//! 6. Jobs of one task run in their order.
//!
//! *Exact* without blocking, and for non-preemptive jobs ([`super::np_edf`]). *Sufficient* with
//! sections. Sustainable in C, T, D, J, B.
//!
//! *With blocking* h + b need not grow with t, because b shrinks at each deadline. Between two
//! neighbouring deadlines h + b grows. So a step down ends at the lower deadline at the latest, and
//! below that deadline the next b applies.
//!
//! *The last instant.* If U < 1 and all D ≤ t + T, h(t) ≤ U·t + Σ max(T − D, 0)·U. So no t from (Σ
//! max(T − D, 0)·U + B)/(1 − U) on fails. If U = 1, the last instant is the end of the synchronous
//! busy period, unless jitter or blocking may keep that period from ending.
//!
//! *The hyperperiod H.* From the longest D on, h(t + H) = h(t) + U·H ≤ h(t) + H, and b no longer
//! changes. So no t after H and the longest D is the first that fails. This instant replaces the
//! endless busy period, and any instant above that is much later.

use super::prepared::{
    HORIZON_NS, PreparedTask, Scratch, count_steps, fits, hyperperiod, scaled_up,
};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Release, Verdict, Witness};
use alloc::vec;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "edf-demand",
    policy: "EDF",
    platform: Platform::One,
    model: "sporadic, any D, jitter, preemptive; with blocking sufficient",
    kind: TestKind::Exact,
    paper: "Baruah, Rosier and Howell, Real-Time Systems 2(4), 1990; Zhang and Burns, IEEE Trans. Computers 58(9), 2009",
    sustainable: "costs, periods, deadlines, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/oracle.rs::every_edf_response_time_and_verdict_is_that_of_the_oracle",
        "crates/talea-analysis/tests/it/edf.rs::demand_at_every_instant_gives_the_same",
    ],
};

/// Result of [`find`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Demand never exceeds the supply.
    Fits,
    /// The utilisation exceeds the CPU: ΣU > 1.
    Overload,
    /// A job of this task cannot meet its deadline even alone: D < J + C.
    Alone {
        /// Index of the task.
        task: usize,
    },
    /// Demand and blocking exceed a window: h(t) + b(t) > t.
    Exceeds {
        /// Length t of the window.
        at: Span,
        /// Demand h(t).
        demand: Work,
        /// Blocking b(t).
        blocking: Work,
    },
}

/// Searches for a time at which the demand of `tasks`, in any order, exceeds the supply.
///
/// # Errors
/// [`Inconclusive::Assumption`] 1. [`Inconclusive::Limit`] for values outside the range of
/// [`super`], or if the scratch has no steps left.
pub fn find(tasks: &[Sporadic], scratch: &mut Scratch) -> Result<Finding, Inconclusive> {
    scratch.load(tasks)?;
    let (rows, _, left) = scratch.parts();
    let mut utilisation = 0u64;
    let (mut earliest, mut latest, mut last_blocking, mut blocks) = (u64::MAX, 0, 0, false);
    let (mut slack, mut beyond, mut jitter) = (0u64, 0, false);
    for (at, row) in rows.iter_mut().enumerate() {
        if row.deadline < row.jitter + row.cost {
            return Ok(Finding::Alone { task: at });
        }
        row.deadline -= row.jitter;
        let share = row.utilisation_up();
        utilisation = utilisation.saturating_add(share);
        earliest = earliest.min(row.deadline);
        if row.deadline >= latest {
            let same = row.deadline == latest;
            last_blocking = if same { row.blocking.max(last_blocking) } else { row.blocking };
            latest = row.deadline;
        }
        blocks |= row.blocking != 0;
        jitter |= row.jitter != 0;
        match row.period.checked_sub(row.deadline) {
            // At most T·U = C each, plus one: the sum fits.
            Some(spare) => slack += scaled_up(spare, share),
            None => beyond = beyond.max(row.deadline - row.period),
        }
    }
    let is_full = utilisation == u64::MAX;
    if is_full && !fits(tasks) {
        return Ok(Finding::Overload);
    }
    let far = if is_full {
        last_instant_when_full(rows, latest, jitter || last_blocking != 0, left)?
    } else {
        let far =
            (u128::from(slack + last_blocking) << 64) / u128::from(u64::MAX - utilisation) + 1;
        match u64::try_from(far) {
            Ok(far) if far <= HORIZON_NS => {
                let far = far.max(beyond);
                mutate!("analysis-qpa-hyperperiod", within_hyperperiod(rows, latest, far), far)
            }
            _ => last_instant_when_full(rows, latest, jitter || last_blocking != 0, left)?,
        }
    };
    if blocks {
        return with_blocking(rows, far.max(latest), earliest, left);
    }
    let mut at = far;
    loop {
        count_steps(left, rows.len())?;
        let demand = demand(rows, at);
        mutate!(
            "analysis-dominance",
            if demand > at {
                return Ok(exceeds(at, demand, 0));
            },
            if demand > at / 5 * 4 {
                return Ok(exceeds(at, demand, 0));
            }
        );
        if demand <= earliest {
            return Ok(Finding::Fits);
        }
        // At a standstill the next instant down is as good as the next deadline, and often better.
        at = if demand < at {
            demand
        } else {
            mutate!("analysis-qpa-standstill", at - 1, return Ok(Finding::Fits))
        };
    }
}

/// Returns the demand h(t) for t = `at`.
#[inline]
fn demand(rows: &[PreparedTask], at: u64) -> u64 {
    let due = |row: &PreparedTask| at.checked_sub(row.deadline).map_or(0, |span| row.work(span));
    rows.iter().fold(0u64, |sum, row| sum.wrapping_add(due(row)))
}

fn exceeds(at: u64, demand: u64, blocking: u64) -> Finding {
    Finding::Exceeds {
        at: Span::from_ns(at),
        demand: Work::from_ns(demand),
        blocking: Work::from_ns(blocking),
    }
}

/// Searches as [`find`] does, with the blocking b(t). The steps of b are at the deadlines.
fn with_blocking(
    rows: &[PreparedTask],
    far: u64,
    earliest: u64,
    left: &mut u64,
) -> Result<Finding, Inconclusive> {
    let mut at = far;
    while at >= earliest {
        count_steps(left, rows.len())?;
        let (mut from, mut blocking) = (0, 0);
        for row in rows.iter().filter(|row| row.deadline <= at) {
            if row.deadline > from {
                (from, blocking) = (row.deadline, row.blocking);
            } else if row.deadline == from {
                blocking = blocking.max(row.blocking);
            }
        }
        let demand = demand(rows, at);
        let total = demand + blocking;
        if total > at {
            return Ok(exceeds(at, demand, blocking));
        }
        let Some(before) = at.checked_sub(1) else { break };
        // Nothing from `total` up to here fails, as long as b is the same.
        let next = total.min(before);
        at = mutate!(
            "analysis-qpa-blocking",
            if next >= from {
                next
            } else {
                match from.checked_sub(1) {
                    Some(below) => below,
                    None => break,
                }
            },
            if next >= from || total > 0 {
                next
            } else {
                match from.checked_sub(1) {
                    Some(below) => below,
                    None => break,
                }
            }
        );
    }
    Ok(Finding::Fits)
}

/// Continues down from a time at which demand exceeds the supply. Returns the earliest time of this
/// kind within `steps` steps: a deadline, which is easier to verify.
fn earlier(rows: &[PreparedTask], found: u64, mut steps: u32) -> (u64, u64) {
    let mut at = found;
    let mut least = (found, demand(rows, found));
    let earliest = rows.iter().map(|row| row.deadline).min().unwrap_or(0);
    while at >= earliest && steps > 0 {
        steps -= 1;
        let demand = demand(rows, at);
        at = if demand > at {
            let due = |row: &PreparedTask| {
                Some(row.quotient(at.checked_sub(row.deadline)?) * row.period + row.deadline)
            };
            let deadline = rows.iter().filter_map(due).max().unwrap_or(at);
            least = mutate!("analysis-qpa-witness", (deadline, demand), (deadline - 1, demand));
            deadline
        } else {
            demand.saturating_add(1).min(at)
        };
        let Some(below) = at.checked_sub(1) else { break };
        at = below;
    }
    least
}

/// Returns `far`, or the longest deadline `latest` plus a hyperperiod if that is earlier. A walk
/// from a near `far` takes fewer steps than the hyperperiod itself.
fn within_hyperperiod(rows: &[PreparedTask], latest: u64, far: u64) -> u64 {
    if far / 64 < latest {
        return far;
    }
    let cycle = hyperperiod(rows.iter()).and_then(|all| all.checked_add(latest));
    cycle.map_or(far, |cycle| cycle.min(far))
}

/// Returns the last instant that has to be evaluated, for any U ≤ 1.
fn last_instant_when_full(
    rows: &[PreparedTask],
    latest: u64,
    endless: bool,
    left: &mut u64,
) -> Result<u64, Inconclusive> {
    if endless {
        let all = hyperperiod(rows.iter()).ok_or(Inconclusive::Limit)?;
        return latest.checked_add(all).filter(|&far| far <= HORIZON_NS).ok_or(Inconclusive::Limit);
    }
    let mut window: u64 = rows.iter().map(|row| row.cost).sum();
    loop {
        count_steps(left, rows.len())?;
        let next = rows.iter().fold(0u64, |sum, row| sum.wrapping_add(row.work(window - 1)));
        if next > HORIZON_NS {
            return Err(Inconclusive::Limit);
        }
        if next == window {
            return Ok(window);
        }
        window = next;
    }
}

/// Returns the result with its witness: a proof (without bounds), an overfull window, a miss, or an
/// overload. The window is the shortest, or a short one. The function allocates.
pub fn verdict(tasks: &[Sporadic]) -> Verdict {
    verdict_in(tasks, &mut Scratch::new())
}

/// Returns the result of [`verdict`], computed in `scratch` with its step limit.
pub fn verdict_in(tasks: &[Sporadic], scratch: &mut Scratch) -> Verdict {
    let releases =
        || tasks.iter().map(|task| Release { first: Span::ZERO, early: task.jitter }).collect();
    let finding = match find(tasks, scratch) {
        Err(why) => return Verdict::Unknown { why },
        // Blocking is not caused by a given task, so it refutes nothing.
        Ok(Finding::Exceeds { blocking, .. }) if !blocking.is_zero() => {
            let plain: Vec<Sporadic> =
                tasks.iter().map(|task| Sporadic { blocking: Work::ZERO, ..*task }).collect();
            match find(&plain, scratch) {
                Err(why) => return Verdict::Unknown { why },
                Ok(Finding::Fits) => {
                    return Verdict::Unknown {
                        why: Inconclusive::Insufficient { task: first_blocked(tasks) },
                    };
                }
                Ok(other) => other,
            }
        }
        Ok(finding) => finding,
    };
    let witness = match finding {
        Finding::Fits => return Verdict::Proved { bounds: Vec::new() },
        Finding::Overload => Witness::Overload { task: tasks.len() - 1 },
        Finding::Alone { task } => {
            // The others arrive when it has completed.
            let response = Span::from_ns(tasks[task].cost.as_ns());
            let mut releases = vec![Release { first: response, early: Span::ZERO }; tasks.len()];
            releases[task] = Release { first: Span::ZERO, early: tasks[task].jitter };
            Witness::Miss { task, job: 0, response, releases }
        }
        Finding::Exceeds { at, .. } => {
            let (at, demand) = earlier(&scratch.rows, at.as_ns(), 1 << 16);
            let (supply, demand) = (Work::from_ns(at), Work::from_ns(demand));
            Witness::Demand { at: Span::from_ns(at), demand, supply, releases: releases() }
        }
    };
    Verdict::Refuted { witness }
}

fn first_blocked(tasks: &[Sporadic]) -> usize {
    tasks.iter().position(|task| !task.blocking.is_zero()).unwrap_or(0)
}
