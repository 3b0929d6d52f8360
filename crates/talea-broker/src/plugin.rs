//! Interface between the broker and the plugins: ReTiF's Table 4 as pure functions.

use crate::exact_test::ExactTestBudget;
use talea_core::{Charge, CpuSet, Params, Work};
use talea_proto::Rejection;
use talea_proto::message::Notes;

/// Request for a plugin: the parameters and the placement freedom left by rules and preferences.
#[derive(Clone, Copy, Debug)]
pub struct PluginRequest<'a> {
    /// The declared parameters.
    pub params: &'a Params,
    /// CPUs that the client accepts; empty means all.
    pub allowed: CpuSet,
    /// Preferred CPUs; empty means no preference.
    pub preferred: CpuSet,
    /// Accept even if the test fails.
    pub ignore_admission: bool,
    /// Bounds of the access rules for a runtime above the minimum.
    pub cap: RuntimeCap,
    /// Exact tests left for the request; `None` means the budget of a separate request.
    pub exact_tests: Option<&'a ExactTestBudget>,
}

/// Bounds for the grant of a desired runtime (R8).
#[derive(Clone, Copy, Debug, Default)]
pub struct RuntimeCap {
    /// Smallest applicable `max_runtime`.
    pub runtime: Option<Work>,
    /// Rest of the smallest applicable `max_utilization`.
    pub charge: Option<Charge>,
}

/// Answer of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// RTF_OK: the task is served in full.
    Ok(Offer),
    /// RTF_PARTIAL: mandatory requirements are met, a recommended parameter is missing.
    Partial(Offer),
    /// RTF_NO: the task is rejected.
    No(Rejection),
}

/// Placement that a plugin offers, with its charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// CPU; `None` for a whole root domain.
    pub cpu: Option<u32>,
    /// Q^a.
    pub runtime: Option<Work>,
    /// Charge in the ledger.
    pub charge: Charge,
    /// Remarks for the client.
    pub notes: Notes,
    /// Kernel priority assigned by a foreign plugin; otherwise 0.
    pub priority: u8,
}
