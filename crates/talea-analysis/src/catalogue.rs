//! Every test that there is. The manual's table and the names that the tools know are written from
//! this list.
//!
//! Each file of a test has its card beside its code; here it gets one line, in the order of the
//! manual.

use crate::{Card, edf, multi, offline, rm, supply, tree, uni};
use talea_core::mutate;

/// All cards: names differ, and each names tests that exist (`tests/it/catalogue.rs`).
pub const ALL: &[Card] = &[
    // One processor, by utilisation.
    rm::NECESSARY,
    rm::LIU_LAYLAND,
    rm::HYPERBOLIC,
    edf::PARTITIONED,
    // One processor.
    uni::fp_response::CARD,
    uni::fp_levels::CARD,
    uni::edf_response::CARD,
    uni::qpa::CARD,
    uni::edf_in_fp::CARD,
    uni::np_fp::CARD,
    uni::np_edf::CARD,
    uni::amc_rtb::CARD,
    // Several processors.
    multi::gfb::CARD,
    multi::bcl::PLAIN,
    multi::bcl::ITERATIVE,
    multi::bertogna_cirinei::ANY,
    multi::bertogna_cirinei::EDF,
    multi::bertogna_cirinei::FP,
    multi::guan::CARD,
    multi::da_lc::CARD,
    multi::bar::CARD,
    multi::ff_dbf::CARD,
    multi::any::CARD,
    multi::necessary::CARD,
    multi::tardiness::DEVI_ANDERSON,
    multi::tardiness::KERNEL,
    multi::linux::CARD,
    multi::partition::CARD,
    multi::partition::LOPEZ,
    multi::graham::CARD,
    multi::graham::FEDERATED,
    // Tables.
    offline::CARD,
    tree::TABLE,
    // One processor that serves now and then: servers and hierarchies.
    supply::fp::CARD,
    supply::edf::CARD,
    supply::davis_burns::CARD,
    tree::CARD,
];

/// The test of this name.
pub fn find(name: &str) -> Option<&'static Card> {
    ALL.iter().find(|card| mutate!("analysis-catalogue", card.name == name, card.name >= name))
}
