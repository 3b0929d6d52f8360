//! EDF with virtual deadlines for two levels of criticality, EDF-VD.
//!
//! S. Baruah, V. Bonifaci, G. D'Angelo, H. Li, A. Marchetti-Spaccamela, S. van der Ster and
//! L. Stougie, "The preemptive uniprocessor scheduling of mixed-criticality implicit-deadline
//! sporadic task systems", ECRTS 2012. Until a job of high criticality has executed for its C(LO)
//! without completing, jobs of high criticality have the deadlines x·T. From then on they have the
//! deadlines T, and jobs of low criticality are abandoned and not released.
//!
//! With the utilizations a = U(LO) of the low tasks, b = U(LO) and c = U(HI) of the high ones,
//!
//! > a + c ≤ 1: EDF, x = 1. Otherwise x = b / (1 − a), if x·a + c ≤ 1.
//!
//! Assumptions:
//! 1. 1 ≤ C(LO) ≤ C(HI), T ≥ 1, all integers.
//! 2. One CPU, preemptive, no overheads.
//! 3. Sporadic arrivals at least T apart.
//! 4. D = T.
//! 5. No jitter, no blocking.
//! 6. The mode switch takes no time.
//! 7. The virtual deadlines are exactly x·T; they need not be integers.
//!
//! *Sufficient*, in exact arithmetic. A set with a + b > 1 or c > 1 is refuted, because one mode
//! alone is an overload. A set with max(a + b, c) ≤ 3/4 is proved. Sustainable in C and T.

use super::amc_rtb::DualCriticalityTask;
use crate::Demand;
use crate::biguint::BigUint;
use crate::demand::{sum, sum_at_most};
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict, Witness};
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Charge, Work};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "edf-vd",
    policy: "EDF with virtual deadlines",
    platform: Platform::One,
    model: "sporadic, two levels of criticality, D = T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Baruah et al., ECRTS 2012",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/tests/it/edf_vd.rs::three_tasks_by_hand",
        "crates/talea-analysis/tests/it/edf_vd.rs::no_job_of_a_proved_set_is_late",
    ],
};

/// Returns the result: a proof without bounds, an overload of a mode, or inconclusive. The function
/// allocates.
pub fn verdict(tasks: &[DualCriticalityTask]) -> Verdict {
    for (at, dual) in tasks.iter().enumerate() {
        let task = &dual.task;
        let number = match () {
            () if task.cost.is_zero() || task.period.is_zero() => 1,
            () if dual.high.is_some_and(|high| high < task.cost) => 1,
            () if task.deadline != task.period => 4,
            () if !task.jitter.is_zero() || !task.blocking.is_zero() => 5,
            () => continue,
        };
        return Verdict::Unknown { why: Inconclusive::Assumption { number, task: at } };
    }
    let Some(last) = tasks.len().checked_sub(1) else {
        return Verdict::Proved { bounds: Vec::new() };
    };
    let demands = |cost: &dyn Fn(&DualCriticalityTask) -> Option<Work>| -> Vec<Demand> {
        let of = |dual: &DualCriticalityTask| Some(Demand::new(cost(dual)?, dual.task.period));
        tasks.iter().filter_map(of).collect()
    };
    let all = demands(&|dual| Some(dual.task.cost));
    let low = demands(&|dual| dual.high.is_none().then_some(dual.task.cost));
    let high_before = demands(&|dual| dual.high.map(|_| dual.task.cost));
    let high = demands(&|dual| dual.high);
    let fits = |demands: &[Demand]| sum_at_most(demands, Charge::ONE);
    if !fits(&all) || !fits(&high) {
        return Verdict::Refuted { witness: Witness::Overload { task: last } };
    }
    if fits(&[low.as_slice(), &high].concat()) || virtual_deadlines_fit(&low, &high_before, &high) {
        return Verdict::Proved { bounds: Vec::new() };
    }
    Verdict::Unknown { why: Inconclusive::Insufficient { task: last } }
}

/// Whether x·a + c ≤ 1, with the demands of a, b and c.
fn virtual_deadlines_fit(low: &[Demand], before: &[Demand], after: &[Demand]) -> bool {
    // With fractions a = p/q, b = r/s, c = u/v: a·b ≤ (1 − a)·(1 − c), times q·s·v.
    let ((p, q), (r, s), (u, v)) = (sum(low), sum(before), sum(after));
    let product = |factors: [&BigUint; 3]| factors[0].times(factors[1]).times(factors[2]);
    let lost = mutate!("analysis-edf-vd", product([&p, &r, &v]), BigUint::from(0));
    let left = lost.plus(&product([&p, &s, &v])).plus(&product([&q, &s, &u]));
    left <= product([&q, &s, &v]).plus(&product([&p, &s, &u]))
}
