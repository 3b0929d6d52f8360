//! Computer that a configuration is for: its names, CPUs and priorities.

use std::ops::RangeInclusive;
use talea_core::CpuSet;

/// Names of users and groups on the system that the file is for.
pub trait Names {
    /// Returns the id of the user with the name `name`.
    fn user(&self, name: &str) -> Option<u32>;
    /// Returns the id of the group with the name `name`.
    fn group(&self, name: &str) -> Option<u32>;
}

/// Root domains: the sets of CPUs to which the kernel admits deadline threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootDomains {
    /// CPUs of each domain.
    pub sets: Vec<CpuSet>,
    /// Whether the daemon can make a domain of each CPU (`confine = "partition"` on cgroup v1).
    pub can_partition: bool,
}

/// Computer that the file is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// CPUs of the computer that are on-line: `"all"` means these.
    pub cpus: CpuSet,
    /// CPUs of the computer, also those that are off-line.
    pub present: CpuSet,
    /// Its root domains, if they are known.
    pub domains: Option<RootDomains>,
    /// Real-time priorities of its kernel (`sched_get_priority_min` to `_max`).
    pub priorities: RangeInclusive<u8>,
}

impl Target {
    /// Creates a target with the given CPUs and Linux's priorities, 1 to 99.
    pub fn new(cpus: CpuSet) -> Target {
        Target { cpus, present: cpus, domains: None, priorities: 1..=99 }
    }

    /// Adds the root domains of the computer.
    #[must_use]
    pub fn with_domains(self, domains: RootDomains) -> Target {
        Target { domains: Some(domains), ..self }
    }

    /// Adds CPUs that are off-line now.
    #[must_use]
    pub fn with_present(self, present: CpuSet) -> Target {
        Target { present: self.cpus.union(&present), ..self }
    }
}
