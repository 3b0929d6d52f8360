//! Interface between the broker and the plugins: ReTiF's Table 4 as pure functions.

use crate::exact_test::ExactTestBudget;
use talea_core::{Charge, CpuSet, Params, Work};
use talea_proto::Rejection;
use talea_proto::message::Notes;
pub use talea_proto::record::DeadlineTerms;

/// Request for a plugin: the parameters and the placement freedom left by rules and preferences.
#[derive(Clone, Copy, Debug)]
pub struct PluginRequest<'a> {
    /// The declared parameters.
    pub params: &'a Params,
    /// CPUs that the client accepts; empty means all.
    pub allowed: CpuSet,
    /// Preferred CPUs; empty means no preference.
    pub preferred: CpuSet,
    /// Whether the plugin accepts the task even if the test fails.
    pub ignore_admission: bool,
    /// Bounds of the access rules for a runtime above the minimum.
    pub cap: RuntimeCap,
    /// Exact tests left for the request; `None` means the budget of a separate request.
    pub exact_tests: Option<&'a ExactTestBudget>,
    /// Restrictions of the thread that the task is meant for.
    pub thread: ThreadScope,
}

/// Restrictions that the kernel and the ledger impose on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadScope {
    /// CPUs of the thread's affinity and cpuset; empty means all.
    pub cpus: CpuSet,
    /// Whether the thread's control group permits FIFO and RR.
    pub fifo: bool,
    /// RLIMIT_RTTIME; `None` means no limit.
    pub rt_time: Option<Work>,
    /// CPUs that are off-line.
    pub offline: CpuSet,
    /// CPUs that executors have reserved.
    pub reserved: CpuSet,
    /// Id of the process of the executor that has reserved the first of these CPUs; 0 without such
    /// CPUs.
    pub executor: u32,
}

impl Default for ThreadScope {
    fn default() -> ThreadScope {
        ThreadScope {
            cpus: CpuSet::EMPTY,
            fifo: true,
            rt_time: None,
            offline: CpuSet::EMPTY,
            reserved: CpuSet::EMPTY,
            executor: 0,
        }
    }
}

impl ThreadScope {
    /// Whether the thread may use all of `cpus`.
    pub fn covers(&self, cpus: &CpuSet) -> bool {
        self.cpus.is_empty() || cpus.is_subset(&self.cpus)
    }

    /// Whether the kernel leaves a FIFO or RR thread alive that computes for `work` without
    /// blocking. Without a declared runtime only a limit of zero is certain to end the thread.
    pub fn has_time_for(&self, work: Option<Work>) -> bool {
        self.rt_time.is_none_or(|limit| limit >= work.unwrap_or(Work::from_ns(1)))
    }
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
    /// CPU; `None` for all CPUs of the plugin.
    pub cpu: Option<u32>,
    /// Accepted runtime Q^a; `None` if the task declares no runtime.
    pub runtime: Option<Work>,
    /// Charge in the ledger.
    pub charge: Charge,
    /// Remarks for the client.
    pub notes: Notes,
    /// Kernel priority assigned by a foreign plugin; otherwise 0.
    pub priority: u8,
    /// Deadline and period chosen by a foreign plugin of the deadline class; `None` for those of
    /// the task.
    pub terms: Option<DeadlineTerms>,
}

/// Answer of a foreign plugin outside its bounds; the text continues a sentence that begins "it
/// named".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundsViolation(pub String);
