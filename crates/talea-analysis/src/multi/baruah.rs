//! Global EDF: the whole busy interval before a missed deadline, with carry-in by at most m − 1
//! tasks.
//!
//! Assumptions: those of [`super`], 1 to 4, and 5: Σ C/T < m.
//!
//! S. Baruah, "Techniques for multiprocessor global schedulability analysis", RTSS 2007. The test
//! accepts if for every task k and every relevant A ≥ 0, with t = A + D_k:
//!
//! > Σ I1_i + Σ of the m − 1 largest (I2_i − I1_i) ≤ m·(t − C_k)
//!
//! h_i is the demand bound function of task i. A is relevant if some h_i(t) changes at t and t ≤
//! (the m − 1 largest costs + Σ (T − D)·C/T + m·C_k)/(m − U). I1_i is min(h_i(t), t − C_k + 1).
//! I2_i is the same minimum for the work of task i with carry-in, ⌊t/T⌋·C + min(C, t mod T). For
//! task k itself both are min(· − C_k, A). The + 1 is due to integer time: the sum must be able to
//! exceed the right side by a term as large as the window.
//!
//! Sufficient. No sustainability is proved.
//!
//! The windows t are the same for all tasks, so one pass evaluates all of them. Before the caps,
//! I2_i − I1_i is min(C_i, t − the release that belongs to i's next deadline). Caps only reduce
//! terms. So a window whose uncapped sum is at most m·t − (m−1)·C_max needs no evaluation per task.

use super::load::{Deadlines, early, largest, over_idle};
use super::prepared::{PreparedTask, Scratch};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict};
use alloc::vec::Vec;
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "bar",
    policy: "global EDF",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, U < m, preemptive",
    kind: TestKind::Sufficient,
    paper: "Baruah, RTSS 2007",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/tests/it/multi/oracle.rs::every_verdict_and_every_bound_of_the_oracle_is_equal",
        "crates/talea-analysis/tests/it/multi/reference_models.rs::bar_is_its_definition_on_every_small_set",
    ],
};

/// Runs the test. The verdict is `Unknown` for `Limit` if there are more than `points_max` windows.
pub fn test(tasks: &[Sporadic], cpus: u32, points_max: u64, scratch: &mut Scratch) -> Verdict {
    match accepts(tasks, cpus, points_max, scratch) {
        Ok(()) => Verdict::Proved { bounds: Vec::new() },
        Err(verdict) => verdict,
    }
}

/// Runs the test without collecting bounds.
///
/// # Errors
/// Any verdict except `Proved`.
pub fn accepts(
    tasks: &[Sporadic],
    cpus: u32,
    points_max: u64,
    scratch: &mut Scratch,
) -> Result<(), Verdict> {
    let unknown = |why| Err(Verdict::Unknown { why });
    let cpus = scratch.read(tasks, cpus)?;
    let Scratch { rows, until: ends, next, due, values, .. } = scratch;
    let Some(cost_max) = rows.iter().map(|row| row.cost).max() else { return Ok(()) };
    let carriers = (cpus - 1) as usize;
    values.clear();
    values.extend(rows.iter().map(|row| row.cost));
    let carried = u128::from(largest(values, carriers)) + early(rows);
    // `ends[k]`: last window of task k.
    ends.clear();
    for row in &*rows {
        match over_idle(carried + u128::from(cpus) * u128::from(row.cost), rows, cpus) {
            Some(window) => ends.push(window),
            None if rows_fill(rows, cpus) => {
                return unknown(Inconclusive::Assumption { number: 5, task: 0 });
            }
            None => return unknown(Inconclusive::Limit),
        }
    }
    let until = ends.iter().copied().max().unwrap_or(0);
    let mut deadlines = Deadlines::new(rows, next, due);
    for _ in 0..points_max {
        let Some(now) = deadlines.advance(until) else { return Ok(()) };
        values.clear();
        // Before the release of the next deadline's job there is no carry-in.
        values.extend(rows.iter().zip(&*deadlines.next).map(|(row, &next)| gain(row, next, now)));
        let least = deadlines.demand;
        let (all, room) = (
            values.iter().sum::<u64>(),
            cpus * now - mutate!("multi-bar-filter", cpus - 1, 0) * cost_max.min(now),
        );
        if least + all <= room || least + largest(values, carriers) <= room {
            continue;
        }
        for k in 0..rows.len() {
            if mutate!("multi-bar", rows[k].deadline <= now, rows[k].deadline == now)
                && now <= ends[k]
                && !fits(rows, &deadlines, k, now, cpus, values)
            {
                return unknown(Inconclusive::Insufficient { task: k });
            }
        }
    }
    unknown(Inconclusive::Limit)
}

fn rows_fill(rows: &[PreparedTask], cpus: u64) -> bool {
    super::load::utilisation(rows).1 >= cpus << 32
}

/// Returns the work of `row` in a window that ends at `now`, beyond its jobs that are due in the
/// window.
fn gain(row: &PreparedTask, next: u64, now: u64) -> u64 {
    (now + row.deadline).saturating_sub(next).min(row.cost)
}

/// Whether the condition holds for task `k` and the window up to `now`.
fn fits(
    rows: &[PreparedTask],
    deadlines: &Deadlines<'_>,
    k: usize,
    now: u64,
    cpus: u64,
    values: &mut Vec<u64>,
) -> bool {
    let own = &rows[k];
    let cap = now - own.cost + 1;
    values.clear();
    let mut sum = 0;
    for (i, row) in rows.iter().enumerate() {
        let (without, gain) = (deadlines.due[i], gain(row, deadlines.next[i], now));
        let (minus, cap) = if i == k { (own.cost, now - own.deadline) } else { (0, cap) };
        // At its own deadline task k's job is due, so its demand has its cost in it.
        let (without, with) = (without - minus, without - minus + gain);
        sum += without.min(cap);
        values.push(with.min(cap) - without.min(cap));
    }
    sum + largest(values, (cpus - 1) as usize) <= cpus * (now - own.cost)
}
