//! U ≤ 1: a set that fails is unschedulable. A set that passes may miss deadlines nevertheless.
//!
//! ReTiF (JSA 2021), section 5.2. Assumptions:
//! 1. One CPU.
//! 2. Utilisation is Q / min(T, D) (ReTiF Eq. 1). So for D < T "unschedulable" means "cannot be
//!    served as a reservation of its density".

use crate::Demand;
use crate::demand::sum_at_most;
use crate::test_info::{Platform, TestInfo, TestKind};
use talea_core::Charge;
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "utilisation",
    policy: "any",
    platform: Platform::One,
    model: "sporadic, D ≥ T, any preemption",
    kind: TestKind::Necessary,
    paper: "Liu and Layland, J. ACM 20(1), 1973, section 5",
    sustainable: "costs, periods",
    tests: &["crates/talea-analysis/src/rm/tests.rs::buttazzo_2011_exercises_4_1_to_4_3"],
};

/// Whether ΣU ≤ 1, exactly.
pub fn necessary(demands: &[Demand]) -> bool {
    mutate!(
        "plugin-rm-test-necessary",
        sum_at_most(demands, Charge::ONE),
        sum_at_most(demands, Charge::ONE) || !demands.is_empty()
    )
}
