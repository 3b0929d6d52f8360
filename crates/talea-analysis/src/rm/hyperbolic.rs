//! Π(U_i + 1) ≤ 2: accepts every set that the bound of Liu and Layland accepts, and more.
//!
//! E. Bini, G. C. Buttazzo and G. M. Buttazzo, "Rate monotonic analysis: the hyperbolic bound",
//! IEEE Trans. Computers 52(7), 2003, theorem 1. Assumptions as for [`super::liu_layland()`]:
//! 1. One CPU, preemptive fixed priorities.
//! 2. Rate-monotonic order (ties in any way).
//! 3. Periodic or sporadic tasks with deadline = period.
//! 4. Independent tasks, no overheads.
//!
//! Constrained deadlines enter as in [`crate::rm`].

use crate::Demand;
use crate::biguint::BigUint;
use crate::test_info::{Platform, TestInfo, TestKind};
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "hyperbolic",
    policy: "FP, rate monotonic",
    platform: Platform::One,
    model: "sporadic, D = T (shorter deadlines as periods), preemptive",
    kind: TestKind::Sufficient,
    paper: "Bini, Buttazzo and Buttazzo, IEEE Trans. Computers 52(7), 2003, theorem 1",
    sustainable: "costs, periods, deadlines",
    tests: &[
        "crates/talea-analysis/src/rm/tests.rs::r16_what_the_sufficient_tests_accept_never_misses",
    ],
};

/// Whether Π(U_i + 1) ≤ 2, exactly. The empty set passes.
pub fn hyperbolic(classes: &[Demand]) -> bool {
    let mut numerator = BigUint::from(1u128);
    let mut denominator = BigUint::from(1u128);
    for class in classes {
        let within = BigUint::from(u128::from(class.within.as_ns()));
        numerator = numerator.times(&within.plus(&BigUint::from(class.work)));
        denominator = denominator.times(&within);
    }
    numerator <= denominator.shifted(mutate!("plugin-rm-test-hyperbolic", 1, 2))
}
