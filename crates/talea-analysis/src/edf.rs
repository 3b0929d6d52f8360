//! Tests for earliest deadline first.
//!
//! Assumptions of both tests:
//! 1. Preemptive EDF, independent sporadic tasks, no overheads.
//! 2. The density Q / min(T, D) replaces the utilisation. The density equals the utilisation for D
//!    ≥ T and is safe for D < T.
//! 3. A CPU of which only a share `cap` may be allocated counts as a whole CPU whose rest stays
//!    unused. This is safe, because the tests then only refuse more.

use crate::Demand;
use crate::biguint::BigUint;
use crate::demand::{sum, sum_at_most};
use crate::test_info::{Platform, TestInfo, TestKind};
use talea_core::Charge;

/// Entry of [`partitioned`] in the catalogue.
pub const PARTITIONED: TestInfo = TestInfo {
    name: "edf-density",
    policy: "EDF",
    platform: Platform::One,
    model: "sporadic, any D, preemptive; exact for D ≥ T",
    kind: TestKind::Sufficient,
    paper: "Liu and Layland, J. ACM 20(1), 1973, theorem 7 (D = T); J. W. S. Liu, Real-Time Systems, Prentice Hall 2000, theorem 6.2 (density)",
    sustainable: "costs, periods, deadlines",
    tests: &[
        "crates/talea-analysis/src/edf.rs::liu_layland_1973_theorem_7_a_full_cpu_is_schedulable",
    ],
};

/// Whether Σ Q/min(T, D) ≤ `cap`: EDF on one CPU.
///
/// Liu and Layland, J. ACM 20(1), 1973, theorem 7, for D = T; with densities J. W. S. Liu,
/// Real-Time Systems, Prentice Hall 2000, theorem 6.2; ReTiF (JSA 2021) Eq. 3.
pub fn partitioned(demands: &[Demand], cap: Charge) -> bool {
    sum_at_most(demands, cap)
}

/// Whether U_sum ≤ m·`cap` − (m−1)·U_max: global EDF on `cpus` CPUs.
///
/// J. Goossens, S. Funk and S. Baruah, "Priority-driven scheduling of periodic task systems on
/// multiprocessors", Real-Time Systems 25(2-3), 2003, theorem 5, where `cap` = 1. The empty set
/// passes. For whole CPUs [`crate::multi::gfb`] is faster; the catalogue lists that test.
pub fn global(demands: &[Demand], cpus: u32, cap: Charge) -> bool {
    let Some(densest) = demands.iter().max_by(|a, b| {
        let cross = |x: &Demand, y: &Demand| {
            BigUint::from(x.work).times(&BigUint::from(u128::from(y.within.as_ns())))
        };
        cross(a, b).cmp(&cross(b, a))
    }) else {
        return true;
    };
    // U_sum + (m−1)·U_max ≤ m·cap
    let weight = u128::from(cpus.saturating_sub(1));
    let (numerator, denominator) = sum(demands);
    let within = BigUint::from(u128::from(densest.within.as_ns()));
    let most = BigUint::from(densest.work).times(&BigUint::from(weight));
    let left = numerator.times(&within).plus(&most.times(&denominator)).shifted(64);
    let room = BigUint::from(cap.bits()).times(&BigUint::from(u128::from(cpus)));
    left <= denominator.times(&within).times(&room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use talea_core::{Span, Work};

    fn set(tasks: &[(u64, u64)]) -> Vec<Demand> {
        tasks.iter().map(|&(q, t)| Demand::new(Work::from_ns(q), Span::from_ns(t))).collect()
    }

    #[test]
    fn liu_layland_1973_theorem_7_a_full_cpu_is_schedulable() {
        assert!(partitioned(&set(&[(1, 2), (1, 3), (1, 6)]), Charge::ONE));
        assert!(!partitioned(&set(&[(1, 2), (1, 3), (1, 6), (1, 1_000_000_000)]), Charge::ONE));
        assert!(!partitioned(&set(&[(1, 2), (1, 3), (1, 6)]), Charge::ratio(19, 20)));
    }

    #[test]
    fn dhall_liu_1978_one_heavy_task_among_light_ones_is_refused() {
        // m light tasks and one of almost a CPU: global EDF misses at any m although the load is
        // just above 1.
        for cpus in [2u32, 4, 16] {
            let mut tasks: Vec<(u64, u64)> = (0..cpus).map(|_| (2, 1_000)).collect();
            assert!(global(&set(&tasks), cpus, Charge::ONE));
            tasks.push((1_000, 1_001));
            assert!(!global(&set(&tasks), cpus, Charge::ONE), "{cpus} CPUs");
        }
    }

    #[test]
    fn goossens_funk_baruah_2003_the_bound_itself_passes() {
        // m = 2, U_max = 1/2: 2 − 1/2 = 3/2.
        assert!(global(&set(&[(1, 2), (1, 2), (1, 2)]), 2, Charge::ONE));
        assert!(!global(&set(&[(1, 2), (1, 2), (1, 2), (1, 1_000_000)]), 2, Charge::ONE));
        // m = 3, U_max = 1/3 over sevenths and thirds: 3 − 2/3 = 7/3.
        assert!(global(&set(&[(1, 3); 7]), 3, Charge::ONE));
        assert!(!global(&set(&[(1, 3); 8]), 3, Charge::ONE));
    }

    #[test]
    fn one_cpu_is_the_partitioned_test() {
        for (q, t) in [(1, 2), (2, 3), (9, 10), (10, 10), (11, 10)] {
            for cap in [Charge::ONE, Charge::ratio(9, 10), Charge::ratio(1, 2)] {
                let tasks = set(&[(q, t), (1, 10)]);
                assert_eq!(global(&tasks, 1, cap), partitioned(&tasks, cap), "{q}/{t} {cap}");
            }
        }
        assert!(global(&[], 4, Charge::ZERO));
    }
}
