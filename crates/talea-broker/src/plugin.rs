//! What a plugin is asked and what it answers: ReTiF's Table 4 as pure questions.

use crate::exact::Tries;
use talea_core::{Charge, CpuSet, Params, Work};
use talea_proto::No;
use talea_proto::message::Notes;

/// A request as a plugin sees it: the parameters, and what is left of the freedom after rules and
/// wishes.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The declared parameters.
    pub params: &'a Params,
    /// CPUs that the client accepts; empty means all.
    pub allowed: CpuSet,
    /// CPUs that it would rather have; empty means no wish.
    pub wished: CpuSet,
    /// Accept although the test fails.
    pub ignore_admission: bool,
    /// Bounds that the rules put on a runtime above the minimum.
    pub clip: Clip,
    /// The exact tests that the request may still have; without, as many as a request of its own.
    pub tries: Option<&'a Tries>,
}

/// How far a desired runtime may be granted (checklist R8).
#[derive(Clone, Copy, Debug, Default)]
pub struct Clip {
    /// Smallest `max_runtime` that applies.
    pub runtime: Option<Work>,
    /// What is left of the smallest `max_utilization` that applies.
    pub charge: Option<Charge>,
}

/// A plugin's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// RTF_OK.
    Ok(Offer),
    /// RTF_PARTIAL: mandatory requirements are met, a recommended parameter is missing.
    Partial(Offer),
    /// RTF_NO.
    No(No),
}

/// Where a plugin would put a task and what that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The CPU, or `None` for a whole domain.
    pub cpu: Option<u32>,
    /// Q^a.
    pub runtime: Option<Work>,
    /// The cost in the ledger.
    pub charge: Charge,
    /// What the client should know.
    pub notes: Notes,
    /// For a foreign plugin: the kernel priority that it named.
    pub priority: u8,
}
