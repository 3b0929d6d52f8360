//! U ≤ n(2^(1/n) − 1): the utilisation bound for rate-monotonic priorities.
//!
//! C. L. Liu and J. W. Layland, "Scheduling algorithms for multiprogramming in a hard-real-time
//! environment", J. ACM 20(1), 1973, theorem 5. Assumptions:
//! 1. One CPU, preemptive fixed priorities.
//! 2. Rate-monotonic order (ties in any way).
//! 3. Periodic or sporadic tasks with deadline = period.
//! 4. Independent tasks, no overheads.
//!
//! Constrained deadlines enter as in [`crate::rm`], with n the number of classes.

use crate::Demand;
use crate::biguint::BigUint;
use crate::demand::sum;
use crate::test_info::{Platform, TestInfo, TestKind};
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "liu-layland",
    policy: "FP, rate monotonic",
    platform: Platform::One,
    model: "sporadic, D = T (shorter deadlines as periods), preemptive",
    kind: TestKind::Sufficient,
    paper: "Liu and Layland, J. ACM 20(1), 1973, theorem 5",
    sustainable: "costs, periods, deadlines",
    tests: &[
        "crates/talea-analysis/src/rm/tests.rs::liu_layland_1973_the_bound_for_one_to_ten_tasks",
    ],
};

/// Whether ΣU ≤ n(2^(1/n) − 1) for the n demands, exactly. The empty set passes.
pub fn liu_layland(classes: &[Demand]) -> bool {
    let Ok(n) = u32::try_from(classes.len()) else { return false };
    // U ≤ n(2^(1/n) − 1)  ⇔  (1 + U/n)^n ≤ 2  ⇔  (n·D + N)^n ≤ 2·(n·D)^n  for U = N/D.
    let (numerator, denominator) = sum(classes);
    let whole = denominator.times(&BigUint::from(u128::from(n)));
    whole.plus(&numerator).power(n)
        <= whole.power(n).shifted(mutate!("plugin-rm-test-liu-layland", 1, 2))
}
