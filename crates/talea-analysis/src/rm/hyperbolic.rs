//! Π(U_i + 1) ≤ 2: accepts whatever the bound of Liu and Layland accepts, and more.
//!
//! E. Bini, G. C. Buttazzo and G. M. Buttazzo, "Rate monotonic analysis: the hyperbolic bound",
//! IEEE Trans. Computers 52(7), 2003, theorem 1. Assumptions as for [`super::liu_layland()`]: 1.
//! one CPU, preemptive fixed priorities; 2. rate-monotonic order (ties in any way); 3. periodic or
//! sporadic tasks with deadline = period;
//! 4. independent, no overheads. Constrained deadlines enter as in [`crate::rm`].

use crate::Demand;
use crate::card::{Card, Kind, Platform};
use crate::natural::Natural;
use talea_core::mutate;

/// Its catalogue entry.
pub const CARD: Card = Card {
    name: "hyperbolic",
    policy: "FP, rate monotonic",
    platform: Platform::One,
    model: "sporadic, D = T (shorter deadlines as periods), preemptive",
    kind: Kind::Sufficient,
    paper: "Bini, Buttazzo and Buttazzo, IEEE Trans. Computers 52(7), 2003, theorem 1",
    sustainable: "costs, periods, deadlines",
    tests: &[
        "crates/talea-analysis/src/rm/tests.rs::r16_what_the_sufficient_tests_accept_never_misses",
    ],
};

/// Whether Π(U_i + 1) ≤ 2, exactly; nothing at all passes.
pub fn hyperbolic(classes: &[Demand]) -> bool {
    let mut numerator = Natural::from(1u128);
    let mut denominator = Natural::from(1u128);
    for class in classes {
        let within = Natural::from(u128::from(class.within.as_ns()));
        numerator = numerator.times(&within.plus(&Natural::from(class.work)));
        denominator = denominator.times(&within);
    }
    numerator <= denominator.shifted(mutate!("plugin-rm-test-hyperbolic", 1, 2))
}
