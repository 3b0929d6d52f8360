//! The demand test for EDF on any supply.
//!
//! I. Shin and I. Lee, "Periodic resource model for compositional real-time guarantees", RTSS 2003,
//! theorem 1: schedulable if
//!
//! > dbf(t) = Σ_{D_j − J_j ≤ t} (⌊(t − D_j + J_j)/T_j⌋ + 1)·C_j ≤ sbf(t) for all t.
//!
//! The test evaluates the condition downwards as in F. Zhang and A. Burns, IEEE Trans. Computers
//! 58(9), 2009 (QPA). Let x = time_for(dbf(t)) be the least window that supplies dbf(t). Because
//! dbf does not shrink as t grows, dbf(t) ≤ sbf(t) proves the condition from x to t. The next t is
//! x − 1.
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU at a time, preemptive, no overheads, supplied as the [`Supply`] states.
//! 3. EDF by absolute deadlines, which count from the arrival.
//! 4. Sporadic arrivals at least T apart, each released at most J later.
//! 5. Independent tasks: no blocking.
//! 6. Jobs of one task run in their order.
//!
//! *Exact* with respect to the supply bound if for each t some pattern supplies no more than
//! sbf(t). [`Tightness`] states for which supplies this holds: all except servers and remaining
//! supplies, for which the test is sufficient. Sustainable in C, T, D and J, and in more supply.
//!
//! *The last t.* A job that misses at d belongs to a window that begins when no work due by d is
//! pending, and in which the whole supply is used. The window is no longer than the longest busy
//! window, the least w with time_for(Σ ⌈(w + J)/T⌉·C) ≤ w. The busy window ends if ΣC/T is below
//! the rate of supply. (The horizon of a dedicated CPU is too short here.)
//!
//! If ΣC/T equals the rate, the last t is the longest D plus twice the supply's period plus the
//! least common multiple of all periods. In this multiple dbf and sbf grow by the same amount.

use super::curve::{InterferenceCurve, all_within};
use super::fp::{Load, check, curve, load};
use super::{Rate, Supply, Tightness};
use crate::Sporadic;
use crate::demand::gcd;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::uni::HORIZON_NS;
use crate::verdict::{Inconclusive, Release, Verdict, Witness};
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "edf-on-a-supply",
    policy: "EDF",
    platform: Platform::Supply,
    model: "sporadic, any D, jitter, preemptive; exact for the supply bound",
    kind: TestKind::Exact,
    paper: "Shin and Lee, RTSS 2003, theorem 1; Zhang and Burns, IEEE Trans. Computers 58(9), 2009, theorem 5",
    sustainable: "costs, periods, deadlines, jitter, supply",
    tests: &[
        "crates/talea-analysis/tests/it/supply/oracle.rs::every_verdict_of_tasks_in_a_periodic_resource_is_that_of_the_oracle",
        "crates/talea-analysis/tests/it/supply/worst.rs::demand_at_every_instant_equals_the_search",
    ],
};

/// Result of [`find`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Demand never exceeds the supply.
    Fits,
    /// ΣC/T exceeds the rate of the supply.
    Overload,
    /// The demand exceeds the supply in one window: dbf(t) > sbf(t).
    Exceeds {
        /// Length t of the window.
        at: Span,
        /// Demand dbf(t) in the window.
        demand: Work,
    },
}

/// Searches for a window in which the demand of `tasks`, in any order, exceeds the supply.
///
/// # Errors
/// [`Inconclusive::Assumption`] 1, or 5 for blocking. [`Inconclusive::Limit`] for values outside
/// the range, or for more than `rounds` steps.
pub fn find(
    tasks: &[Sporadic],
    supply: &impl Supply,
    rounds: u64,
) -> Result<Finding, Inconclusive> {
    check(tasks)?;
    if let Some(task) = tasks.iter().position(|task| !task.blocking.is_zero()) {
        return Err(Inconclusive::Assumption { number: 5, task });
    }
    if tasks.is_empty() {
        return Ok(Finding::Fits);
    }
    let mut left = rounds;
    let far = match load(tasks, supply) {
        Load::Above => return Ok(Finding::Overload),
        Load::Below => mutate!(
            "supply-edf-horizon",
            longest_window(tasks, supply, &mut left),
            longest_window(tasks, &super::Dedicated, &mut left)
        )?,
        Load::Equal => far_when_equal(tasks, supply)?,
    };
    let mut at = far;
    loop {
        left = left.checked_sub(1).ok_or(Inconclusive::Limit)?;
        let asked = demand(tasks, at);
        if asked == 0 {
            return Ok(Finding::Fits);
        }
        match supply.time_for(Work::from_ns(asked.min(HORIZON_NS + 1))) {
            Some(time) if time.as_ns() <= at => at = time.as_ns() - 1,
            _ => {
                return Ok(Finding::Exceeds {
                    at: Span::from_ns(at),
                    demand: Work::from_ns(asked),
                });
            }
        }
    }
}

/// Returns dbf(t) for t = `at`; saturates.
fn demand(tasks: &[Sporadic], at: u64) -> u64 {
    tasks.iter().fold(0u64, |sum, task| {
        let due = (at + task.jitter.as_ns()).checked_sub(task.deadline.as_ns());
        let jobs = due.map_or(0, |due| due / task.period.as_ns() + 1);
        sum.saturating_add(jobs.saturating_mul(task.cost.as_ns()))
    })
}

fn longest_window(
    tasks: &[Sporadic],
    supply: &impl Supply,
    left: &mut u64,
) -> Result<u64, Inconclusive> {
    let curves: Vec<InterferenceCurve> = tasks.iter().map(curve).collect();
    let mut window = 1;
    loop {
        *left = left.checked_sub(1).ok_or(Inconclusive::Limit)?;
        let asked = all_within(&curves, window).min(HORIZON_NS + 1);
        let next = supply.time_for(Work::from_ns(asked)).ok_or(Inconclusive::Limit)?.as_ns();
        if next <= window {
            return Ok(window);
        }
        window = next;
    }
}

fn far_when_equal(tasks: &[Sporadic], supply: &impl Supply) -> Result<u64, Inconclusive> {
    let Rate { every, .. } = supply.rate().ok_or(Inconclusive::Limit)?;
    let lcm = |a: u64, b: u64| (a / gcd(a, b)).checked_mul(b).filter(|&all| all <= HORIZON_NS);
    let all = tasks
        .iter()
        .try_fold(every.as_ns(), |all, task| lcm(all, task.period.as_ns()))
        .ok_or(Inconclusive::Limit)?;
    let latest = tasks.iter().map(|task| task.deadline.as_ns()).max().unwrap_or(0);
    Some(all.saturating_add(latest.saturating_add(2 * every.as_ns())))
        .filter(|&far| far <= HORIZON_NS)
        .ok_or(Inconclusive::Limit)
}

/// Returns the result with its witness: a proof (without bounds), the overfull window, or an
/// overload.
pub fn verdict(tasks: &[Sporadic], supply: &impl Supply, rounds: u64) -> Verdict {
    match find(tasks, supply, rounds) {
        Err(why) => Verdict::Unknown { why },
        Ok(Finding::Fits) => Verdict::Proved { bounds: Vec::new() },
        Ok(Finding::Overload) => {
            Verdict::Refuted { witness: Witness::Overload { task: tasks.len() - 1 } }
        }
        Ok(Finding::Exceeds { .. }) if supply.tightness() == Tightness::Unknown => {
            Verdict::Unknown { why: Inconclusive::Insufficient { task: tasks.len() - 1 } }
        }
        Ok(Finding::Exceeds { at, demand }) => {
            let releases = tasks
                .iter()
                .map(|task| Release { first: Span::ZERO, early: task.jitter })
                .collect();
            let supply = supply.sbf(at);
            Verdict::Refuted { witness: Witness::Demand { at, demand, supply, releases } }
        }
    }
}
