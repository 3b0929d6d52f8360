//! Global EDF by density: Σδ ≤ m − (m−1)·δ_max.
//!
//! Assumptions: those of [`super`], 1 to 4.
//!
//! J. Goossens, S. Funk and S. Baruah, "Priority-driven scheduling of periodic task systems on
//! multiprocessors", Real-Time Systems 25(2-3), 2003, theorem 5, for D = T with utilisations; M.
//! Bertogna, M. Cirinei and G. Lipari, "Improved schedulability analysis of EDF on multiprocessor
//! platforms", ECRTS 2005, with densities δ = C/D. Sufficient. Sustainable in costs, periods and
//! deadlines, because every density only shrinks.
//!
//! A density is rounded down to 2^-32 first. If the bound holds with 2^-32 more for each density,
//! the verdict is positive. If the bound fails without this addition, the verdict is negative.
//! [`edf::global`], with integers of any size, decides the cases between.

use super::prepared;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict};
use crate::{Demand, Sporadic, edf};
use alloc::vec::Vec;
use talea_core::Charge;
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "gfb",
    policy: "global EDF",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Goossens, Funk and Baruah, Real-Time Systems 25(2-3), 2003, theorem 5; with densities Bertogna, Cirinei and Lipari, ECRTS 2005",
    sustainable: "costs, periods, deadlines",
    tests: &[
        "crates/talea-analysis/src/multi/gfb.rs::goossens_funk_baruah_2003_the_bound_itself_passes",
        "crates/talea-analysis/src/edf.rs::goossens_funk_baruah_2003_the_bound_itself_passes",
        "crates/talea-analysis/tests/it/multi/oracle.rs::every_verdict_and_every_bound_of_the_oracle_is_equal",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_accepted_small_set_meets_every_deadline_under_all_arrivals",
    ],
};

/// Runs the test.
pub fn test(tasks: &[Sporadic], cpus: u32) -> Verdict {
    if let Err(verdict) = prepared::check(tasks, cpus) {
        return verdict;
    }
    if accepts(tasks, cpus) {
        return Verdict::Proved { bounds: Vec::new() };
    }
    let density =
        |task: &Sporadic| (u128::from(task.cost.as_ns()) << 64) / u128::from(task.deadline.as_ns());
    let densest = (0..tasks.len()).max_by_key(|&task| density(&tasks[task])).unwrap_or(0);
    Verdict::Unknown { why: Inconclusive::Insufficient { task: densest } }
}

/// Whether the test accepts a set that satisfies the assumptions. The test refuses a set with C >
/// D.
pub fn accepts(tasks: &[Sporadic], cpus: u32) -> bool {
    let (mut sum, mut most) = (0u64, 0u64);
    for task in tasks {
        let (cost, deadline) = (task.cost.as_ns(), task.deadline.as_ns());
        if cost > deadline || deadline == 0 {
            return false;
        }
        let density = if cost >> 32 == 0 {
            (cost << 32) / deadline
        } else {
            ((u128::from(cost) << 32) / u128::from(deadline)) as u64
        };
        // At most 2^32 each: fewer tasks than 2^31 fit into any memory.
        sum += density;
        most = most.max(density);
    }
    let others = u128::from(cpus.saturating_sub(mutate!("multi-gfb", 1, 2)));
    let least = u128::from(sum) + others * u128::from(most);
    let room = u128::from(cpus) << 32;
    if mutate!("multi-gfb-rounding", least + tasks.len() as u128 + others <= room, least <= room) {
        return true;
    }
    if least > room {
        return false;
    }
    let demands: Vec<Demand> =
        tasks.iter().map(|task| Demand::new(task.cost, task.deadline)).collect();
    edf::global(&demands, cpus, Charge::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::sets::{implicit, set};
    use alloc::vec;

    #[test]
    fn dhall_liu_1978_one_heavy_task_among_light_ones() {
        for cpus in [2u32, 4, 16] {
            let mut tasks = implicit(&[(2, 1_000)].repeat(cpus as usize));
            assert!(test(&tasks, cpus).is_proved());
            tasks.extend(implicit(&[(1_000, 1_001)]));
            let heavy =
                Verdict::Unknown { why: Inconclusive::Insufficient { task: cpus as usize } };
            assert_eq!(test(&tasks, cpus), heavy, "{cpus} CPUs");
        }
    }

    #[test]
    fn goossens_funk_baruah_2003_the_bound_itself_passes() {
        // Halves have no rounding, thirds have.
        for (tasks, cpus) in [
            (vec![(1, 2); 3], 2),
            (vec![(1, 3); 7], 3),
            (vec![(7_000_000_000, 21_000_000_000); 7], 3),
        ] {
            assert!(accepts(&implicit(&tasks), cpus), "{tasks:?}");
            let mut more = tasks.clone();
            more.push((1, u64::MAX));
            assert!(!accepts(&implicit(&more), cpus), "{more:?}");
        }
    }

    #[test]
    fn rounded_verdicts_equal_exact_ones() {
        // Every set of three tasks with periods up to 6; and near the bound with numbers that don't
        // fit into 32 bits.
        let mut near = 0;
        let mut same = |tasks: &[Sporadic], cpus: u32| {
            let demands: Vec<Demand> =
                tasks.iter().map(|task| Demand::new(task.cost, task.deadline)).collect();
            let fits = edf::global(&demands, cpus, Charge::ONE);
            assert_eq!(accepts(tasks, cpus), fits, "{tasks:?}");
            near += usize::from(fits);
        };
        let pairs: Vec<(u64, u64)> = (1..=6).flat_map(|d| (1..=d).map(move |c| (c, d))).collect();
        for &a in &pairs {
            for &b in &pairs {
                for &c in &pairs {
                    for cpus in 1..=3 {
                        same(&implicit(&[a, b, c]), cpus);
                    }
                }
            }
        }
        let scale = 1u64 << 33;
        for off in 0..40 {
            // 3·(1/3) + (m−1)/3 = m/3 + 2/3 = m for m = 1; off by a few parts of 2^-35 on either
            // side.
            same(&implicit(&[(scale - 20 + off, 3 * scale); 3]), 1);
            same(&implicit(&[(scale - 20 + off, 2 * scale); 3]), 2);
        }
        assert!(near > 1_000);
    }

    #[test]
    fn sets_outside_the_assumptions_are_reported() {
        assert_eq!(
            test(&set(&[(1, 3, 2)]), 2),
            Verdict::Unknown { why: Inconclusive::Assumption { number: 4, task: 0 } }
        );
        assert!(matches!(test(&set(&[(1, 4, 4), (3, 2, 4)]), 2), Verdict::Refuted { .. }));
        assert!(test(&[], 0).is_proved());
        assert!(matches!(test(&set(&[(1, 4, 4)]), 0), Verdict::Refuted { .. }));
    }
}
