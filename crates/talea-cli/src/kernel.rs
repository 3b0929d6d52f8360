//! Current state of threads in the kernel.

use talea_core::{Attr, CpuSet, Policy, Priority};
use talea_os::Tid;

/// Returns the thread's current policy. Returns `None` if the thread has ended or is not readable.
pub(crate) fn policy_of(tid: u32) -> Option<Policy> {
    let attr = talea_os::sched::get(Tid::new(i32::try_from(tid).ok()?)?).ok()?;
    let nice = |nice: i32| i8::try_from(nice).unwrap_or(0);
    Some(match attr.policy {
        // sched_ext threads count as ordinary.
        talea_os::Policy::Other { nice: n } | talea_os::Policy::Ext { nice: n } => {
            Policy::Other { nice: nice(n) }
        }
        talea_os::Policy::Batch { nice: n } => Policy::Batch { nice: nice(n) },
        talea_os::Policy::Idle => Policy::Idle,
        talea_os::Policy::Fifo(priority) => Policy::Fifo(Priority(priority)),
        talea_os::Policy::Rr(priority) => Policy::Rr(Priority(priority)),
        talea_os::Policy::Deadline { runtime, deadline, period } => {
            Policy::Deadline { runtime, deadline, period }
        }
    })
}

/// Current policy and affinity of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadState {
    pub(crate) policy: Policy,
    /// Affinity; `None` if it is not readable.
    pub(crate) cpus: Option<CpuSet>,
}

impl ThreadState {
    /// Returns the state of a thread; `None` if it has ended or is not readable.
    pub(crate) fn of(tid: u32) -> Option<ThreadState> {
        let policy = policy_of(tid)?;
        let tid = Tid::new(i32::try_from(tid).ok()?)?;
        Some(ThreadState { policy, cpus: talea_os::sched::get_affinity(tid).ok() })
    }

    /// Returns the CPUs that the thread may use if they are not those of its grant.
    pub(crate) fn other_cpus(&self, given: &Attr) -> Option<CpuSet> {
        self.cpus.filter(|cpus| !given.cpus.is_empty() && *cpus != given.cpus)
    }

    /// Whether the thread has what was given.
    pub(crate) fn holds(&self, given: &Attr) -> bool {
        self.policy == given.policy && self.other_cpus(given).is_none()
    }
}

/// Returns the thread's name without characters that a terminal might interpret, because a thread
/// may choose any name.
pub(crate) fn name_of(tid: u32) -> Option<String> {
    let name = talea_os::proc::comm(Tid::new(i32::try_from(tid).ok()?)?).ok()?;
    Some(name.chars().map(talea_config::diagnostic::harmless).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_on_other_cpus_does_not_hold_its_grant() {
        let policy = Policy::Fifo(Priority(70));
        let given = |cpus| Attr { policy, reset_on_fork: true, cpus };
        let now = ThreadState { policy, cpus: Some(CpuSet::single(0)) };
        assert!(now.holds(&given(CpuSet::single(0))));
        assert!(now.holds(&given(CpuSet::EMPTY)), "the grant chooses no CPU");
        assert!(!now.holds(&given(CpuSet::single(1))));
        assert_eq!(now.other_cpus(&given(CpuSet::single(1))), Some(CpuSet::single(0)));
        assert_eq!(crate::grant_text::cpus(&CpuSet::single(0)), "CPU 0");
        let lower = ThreadState { policy: Policy::Fifo(Priority(69)), ..now };
        assert!(!lower.holds(&given(CpuSet::single(0))));
        let unreadable = ThreadState { cpus: None, ..now };
        assert!(unreadable.holds(&given(CpuSet::single(1))));
    }
}
