//! U ≤ 1: nothing that fails it can work; what passes it may still miss deadlines.
//!
//! ReTiF (JSA 2021), section 5.2. Assumptions: 1. one CPU; 2. utilisation is Q / min(T, D) (ReTiF
//! Eq. 1), so that for D < T "can't work" means "can't be served as a reservation of its density".

use crate::Demand;
use crate::card::{Card, Kind, Platform};
use crate::demand::sum_at_most;
use talea_core::Charge;
use talea_core::mutate;

/// Its catalogue entry.
pub const CARD: Card = Card {
    name: "utilisation",
    policy: "any",
    platform: Platform::One,
    model: "sporadic, D ≥ T, any preemption",
    kind: Kind::Necessary,
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
