//! Global fixed priorities by deadlines, with limited carry-in: the test for priority assignment.
//!
//! Assumptions: those of [`super`], 1 to 4. Tasks are given in order of priority, the most urgent
//! first.
//!
//! R. Davis and A. Burns, "Improved priority assignment for global fixed priority pre-emptive
//! scheduling in multiprocessor real-time systems", Real-Time Systems 47(1), 2011: DA-LC. Task k
//! meets its deadline if, over the more urgent tasks i in the window x = D_k,
//!
//! > C_k + ⌊(Σ NC_i + Σ of the m − 1 largest (CI_i − NC_i))/m⌋ ≤ D_k,
//! > NC = ⌊x/T⌋·C + min(C, x mod T), CI = ⌊L/T⌋·C + min(C, L mod T), L = x + D − C,
//!
//! with both terms at most D_k − C_k + 1. The condition does not depend on the order among the more
//! urgent tasks, nor among the less urgent. An additional task of higher priority never helps. So
//! Audsley's algorithm finds an order whenever one exists.
//!
//! Sufficient. Guan's response times dominate this test for a given order: at x = D_k their terms
//! are at most NC and CI. Sustainable in costs (for the slack s = D_k − C_k as in [`super::bcl`]):
//! CI and NC shrink, and so does the sum of the m − 1 largest differences. Sustainable in periods.
//! Not proved for deadlines: a later D_i lets more of i's work be carried in.

use super::bertogna_cirinei;
use super::guan;
use super::load::largest;
use super::prepared::{PreparedTask, Scratch};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict};
use alloc::vec::Vec;
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "da-lc",
    policy: "global FP",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Davis and Burns, Real-Time Systems 47(1), 2011",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/src/multi/da_lc.rs::davis_burns_2011_an_order_is_found_where_deadline_monotonic_has_none",
        "crates/talea-analysis/tests/it/multi/reference_models.rs::da_lc_is_its_definition_and_an_order_is_found_whenever_there_is_one",
    ],
};

/// Runs the test.
pub fn test(tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Verdict {
    let cpus = match scratch.read(tasks, cpus) {
        Ok(cpus) => cpus,
        Err(verdict) => return verdict,
    };
    let Scratch { rows, values, .. } = scratch;
    let fails = (0..rows.len()).find(|&k| !fits(&rows[k], rows[..k].iter(), cpus, values));
    match fails {
        None => Verdict::Proved { bounds: Vec::new() },
        Some(task) => Verdict::Unknown { why: Inconclusive::Insufficient { task } },
    }
}

/// Returns a priority order that the test accepts, the most urgent first, by index; `None` if it
/// accepts none.
///
/// # Errors
/// The verdict, if it is known without the test.
pub fn assign(
    tasks: &[Sporadic],
    cpus: u32,
    scratch: &mut Scratch,
) -> Result<Option<Vec<usize>>, Verdict> {
    let cpus = scratch.read(tasks, cpus)?;
    let Scratch { rows, values, .. } = scratch;
    let mut order: Vec<usize> = (0..rows.len()).collect();
    // Of the tasks that pass at the lowest open level, the latest deadline is assigned.
    order.sort_by_key(|&task| rows[task].deadline);
    for level in (0..order.len()).rev() {
        let lowest = (0..=level).rev().find(|&at| {
            let others = order[..=level].iter().filter(|&&other| other != order[at]);
            fits(&rows[order[at]], others.map(|&other| &rows[other]), cpus, values)
        });
        mutate!(
            "multi-da-lc",
            match lowest {
                None => return Ok(None),
                Some(at) => order[at..=level].rotate_left(1),
            },
            match lowest {
                None => return Ok(None),
                Some(_) => {}
            }
        )
    }
    Ok(Some(order))
}

fn fits<'a>(
    task: &PreparedTask,
    above: impl Iterator<Item = &'a PreparedTask>,
    cpus: u64,
    values: &mut Vec<u64>,
) -> bool {
    let roof = task.deadline - task.cost + 1;
    let mut sum = 0;
    values.clear();
    for row in above {
        let without = guan::without_carry_in(row, task.deadline).value.min(roof);
        // R is bounded by D here.
        let with = bertogna_cirinei::work(row, task.deadline).min(roof);
        sum += without;
        values.push(with - without);
    }
    (sum + largest(values, (cpus - 1) as usize)) / cpus < roof
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::sets::{implicit, set};

    #[test]
    fn davis_burns_2011_an_order_is_found_where_deadline_monotonic_has_none() {
        // Dhall and Liu's set: the heavy task has the longest deadline and must not be the last.
        let tasks = implicit(&[(2, 1_000), (2, 1_000), (1_000, 1_001)]);
        let mut scratch = Scratch::new();
        assert_eq!(
            test(&tasks, 2, &mut scratch),
            Verdict::Unknown { why: Inconclusive::Insufficient { task: 2 } }
        );
        let order =
            assign(&tasks, 2, &mut scratch).expect("within the assumptions").expect("an order");
        let ordered: Vec<Sporadic> = order.iter().map(|&task| tasks[task]).collect();
        assert!(test(&ordered, 2, &mut scratch).is_proved(), "{order:?}");
        assert_ne!(order[2], 2);
    }

    #[test]
    fn no_order_is_found_if_there_is_none() {
        let mut scratch = Scratch::new();
        assert_eq!(assign(&set(&[(2, 2, 3); 3]), 2, &mut scratch), Ok(None));
        assert_eq!(assign(&[], 2, &mut scratch), Ok(Some(Vec::new())));
    }
}
