//! Every test that there is. The manual's table and the names that the tools know are written from this list.
//!
//! Each file of a test has its card beside its code; here it gets one line, in the order of the manual.

use crate::{Card, edf, rm, uni};

/// All cards: names differ, and each names tests that exist (`tests/it/catalogue.rs`).
pub const ALL: &[Card] = &[
    // One processor, by utilisation.
    rm::NECESSARY,
    rm::LIU_LAYLAND,
    rm::HYPERBOLIC,
    edf::PARTITIONED,
    // One processor.
    uni::fp_response::CARD,
    uni::edf_response::CARD,
    uni::qpa::CARD,
    // Several processors.
    edf::GLOBAL,
    // One processor that serves now and then: servers and hierarchies.
];

/// The test of this name.
pub fn find(name: &str) -> Option<&'static Card> {
    ALL.iter().find(|card| card.name == name)
}
