//! Catalogue of all tests. The manual's table and the test names in the tools are generated from
//! this list.
//!
//! Each test file defines its [`TestInfo`] beside the code. This list names all of them in the
//! order of the manual.

use crate::{TestInfo, edf, multi, offline, rm, supply, tree, uni};
use talea_core::mutate;

/// All entries. Names are unique, and each entry names existing tests (`tests/it/catalogue.rs`).
pub const ALL: &[TestInfo] = &[
    // One processor, by utilisation.
    rm::NECESSARY,
    rm::LIU_LAYLAND,
    rm::HYPERBOLIC,
    edf::PARTITIONED,
    // One processor.
    uni::fp_response::INFO,
    uni::fp_levels::INFO,
    uni::edf_response::INFO,
    uni::qpa::INFO,
    uni::edf_in_fp::INFO,
    uni::np_fp::INFO,
    uni::limited_fp::INFO,
    uni::np_edf::INFO,
    uni::np_edf::RESPONSE_TIMES,
    uni::limited_edf::INFO,
    uni::curve_response::INFO,
    uni::suspension::INFO,
    uni::amc_rtb::INFO,
    uni::edf_vd::INFO,
    tree::KNOWN_PHASES,
    // Several processors.
    multi::gfb::INFO,
    multi::bcl::PLAIN,
    multi::bcl::ITERATIVE,
    multi::bertogna_cirinei::ANY,
    multi::bertogna_cirinei::EDF,
    multi::bertogna_cirinei::FP,
    multi::guan::INFO,
    multi::da_lc::INFO,
    multi::baruah::INFO,
    multi::ff_dbf::INFO,
    multi::portfolio::INFO,
    multi::necessary::INFO,
    multi::tardiness::DEVI_ANDERSON,
    multi::tardiness::KERNEL,
    multi::linux::INFO,
    multi::partition::INFO,
    multi::partition::LOPEZ,
    multi::graham::INFO,
    multi::graham::FEDERATED,
    tree::PRECEDENCE,
    // Tables.
    offline::INFO,
    tree::TABLE,
    // One processor that serves at times: servers and hierarchies.
    supply::fp::INFO,
    supply::edf::INFO,
    supply::davis_burns::INFO,
    tree::INFO,
    // Chains of tasks.
    tree::CHAIN,
    tree::CHAIN_KNOWN_PHASES,
];

/// Returns the entry with the name `name`.
pub fn find(name: &str) -> Option<&'static TestInfo> {
    ALL.iter().find(|info| mutate!("analysis-catalogue", info.name == name, info.name >= name))
}
