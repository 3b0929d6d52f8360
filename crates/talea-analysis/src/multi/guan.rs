//! Response times under global fixed priorities: at most m − 1 tasks carry work into the relevant
//! window.
//!
//! Assumptions: those of [`super`], 1 to 4. Tasks are given in order of priority, the most urgent
//! first. Time is integer.
//!
//! N. Guan, M. Stigge, W. Yi and G. Yu, "New response time bounds for fixed priority multiprocessor
//! scheduling", RTSS 2009, for D ≤ T. The response time of task k is at most the least x ≥ C_k
//! with, over the more urgent tasks i,
//!
//! > x = C_k + ⌊(Σ NC_i + Σ of the m − 1 largest (CI_i − NC_i))/m⌋,
//! > NC = ⌊x/T⌋·C + min(x mod T, C), without carry-in,
//! > CI = ⌊z/T⌋·C + C + min((z mod T − (T − R))⁺, C − 1), with carry-in, z = (x − C)⁺.
//!
//! Both terms are at most x − C_k + 1.
//!
//! Sufficient. The test dominates Bertogna and Cirinei's: CI is at most their W, and m − 1 terms
//! are at most all terms. Sustainable in deadlines as long as the order stays, because R does not
//! depend on D.
//!
//! *Not* for Audsley's assignment of priorities: R_i of the more urgent tasks depends on the order
//! among them (R. Davis and A. Burns, Real-Time Systems 47(1), 2011). Use [`super::da_lc`].

use super::piecewise_linear::{LinearPiece, PiecewiseSum};
use super::prepared::{CarryInGain, PreparedTask, Scratch};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict};
use alloc::vec::Vec;
use core::cmp::Reverse;
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "guan",
    policy: "global FP",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Guan, Stigge, Yi and Yu, RTSS 2009",
    sustainable: "deadlines",
    tests: &[
        "crates/talea-analysis/tests/it/multi/reference_models.rs::guan_is_its_definition_on_every_small_set",
        "crates/talea-analysis/tests/it/multi/oracle.rs::every_verdict_and_every_bound_of_the_oracle_is_equal",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_accepted_small_set_meets_every_deadline_under_all_arrivals",
    ],
};

/// Runs the test.
pub fn test(tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Verdict {
    match responses(tasks, cpus, scratch) {
        Ok(None) => scratch.proved(),
        Ok(Some(task)) => Verdict::Unknown { why: Inconclusive::Insufficient { task } },
        Err(verdict) => verdict,
    }
}

/// Computes the bound of every task into `scratch`. Returns the first task with a bound beyond its
/// deadline.
///
/// # Errors
/// The verdict, if it is known without the test.
pub fn responses(
    tasks: &[Sporadic],
    cpus: u32,
    scratch: &mut Scratch,
) -> Result<Option<usize>, Verdict> {
    let cpus = scratch.read(tasks, cpus)?;
    let Scratch { rows, gains, .. } = scratch;
    for k in 0..rows.len() {
        let (above, rest) = rows.split_at_mut(k);
        let task = &mut rest[0];
        let mut waits = 0;
        loop {
            let pieces = work(above, task.cost, waits, cpus, gains);
            match pieces.next(waits, cpus) {
                None => break,
                Some(next) if next > task.deadline - task.cost => return Ok(Some(k)),
                Some(next) => waits = next,
            }
        }
        task.lag = waits;
    }
    Ok(None)
}

/// Returns the work of the more urgent tasks `above` in a window of `cost` + `waits`.
fn work(
    above: &[PreparedTask],
    cost: u64,
    waits: u64,
    cpus: u64,
    gains: &mut Vec<CarryInGain>,
) -> PiecewiseSum {
    let mut pieces = PiecewiseSum::NONE;
    let roof = waits + 1;
    gains.clear();
    for row in above {
        let without = without_carry_in(row, cost + waits).capped(roof);
        let with = with_carry_in(row, cost + waits).capped(roof);
        pieces.sum += without.value;
        if mutate!(
            "multi-guan-carry",
            with.value > without.value,
            false && with.value > without.value
        ) {
            gains.push(CarryInGain { more: with.value - without.value, with, without });
        } else {
            pieces.follow(without);
        }
    }
    // The m − 1 largest gains count. Which of two equal gains counts does not matter for a lower
    // bound on later windows.
    let most = mutate!("multi-guan", cpus - 1, cpus) as usize;
    if most > 0 && most < gains.len() {
        gains.select_nth_unstable_by_key(most - 1, |gain| Reverse(gain.more));
    }
    for (at, gain) in gains.iter().enumerate() {
        if at < most {
            pieces.sum += gain.more;
            pieces.follow(gain.with);
        } else {
            pieces.follow(gain.without);
        }
    }
    pieces
}

/// Returns NC: the work without carry-in. The first job of the window is released at its start.
#[inline]
pub(super) fn without_carry_in(row: &PreparedTask, window: u64) -> LinearPiece {
    let (whole, rest) = row.period.divide(window);
    let value = whole * row.cost + rest.min(row.cost);
    if rest < row.cost {
        LinearPiece { value, rising: 1, length: row.cost - rest }
    } else {
        LinearPiece { value, rising: 0, length: row.period.get() - rest }
    }
}

/// Returns CI: the work with carry-in. A job is running when the window begins, and the last job
/// has just completed when the window ends.
#[inline]
fn with_carry_in(row: &PreparedTask, window: u64) -> LinearPiece {
    let cost = row.cost;
    let Some(before) = window.checked_sub(cost) else {
        return LinearPiece { value: cost, rising: 0, length: cost - window };
    };
    let period = row.period.get();
    let (whole, rest) = row.period.divide(before);
    let full = whole * cost + cost;
    // R ≤ D ≤ T.
    let gap = period - (cost + row.lag);
    match rest.checked_sub(gap) {
        None => LinearPiece { value: full, rising: 0, length: gap - rest },
        Some(part) if part < cost - 1 => LinearPiece {
            value: full + part,
            rising: 1,
            length: (cost - 1 - part).min(period - rest),
        },
        Some(_) => LinearPiece { value: full + cost - 1, rising: 0, length: period - rest },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::bertogna_cirinei::{self, GlobalPolicy};
    use crate::multi::sets::{bounds, implicit, set};

    #[test]
    fn the_first_m_never_wait() {
        let tasks = set(&[(3, 4, 9), (2, 5, 7), (6, 6, 6)]);
        assert_eq!(bounds(&test(&tasks, 3, &mut Scratch::new())), [3, 2, 6]);
    }

    #[test]
    fn only_m_minus_1_carry_in() {
        // On one CPU no task does: response times are those of one CPU, 1, 1 + 1, 2 + 2·1 + 1.
        let tasks = implicit(&[(1, 3), (1, 5), (2, 9)]);
        assert_eq!(bounds(&test(&tasks, 1, &mut Scratch::new())), [1, 2, 5]);
        let all =
            bertogna_cirinei::test(GlobalPolicy::FixedPriority, &tasks, 1, &mut Scratch::new());
        assert_eq!(bounds(&all), [1, 2, 6], "there both may carry in");
    }

    #[test]
    fn the_iteration_is_fast_if_all_terms_grow_together() {
        const LONG: u64 = 1_000_000_000_000;
        let tasks = implicit(&[(LONG - 1, LONG), (LONG - 1, LONG), (1, LONG)]);
        assert_eq!(bounds(&test(&tasks, 2, &mut Scratch::new())), [LONG - 1, LONG - 1, LONG]);
    }
}
