//! Conversions between the broker's values and those of the kernel.
//!
//! The kernel's attributes contain more than a decision needs (hidden nice values, slices, flags of
//! deadline threads). The daemon keeps the parts that the broker does not use beside the thread,
//! see `event_loop::threads`.

use talea_broker::input::{Errno, ThreadError, Uids};
use talea_core::{Attr, Charge, CpuSet, Span};
use talea_os::sysinfo::{Hierarchy, SystemInfo};
use talea_os::{ApplyError, OpenError, Snapshot, sched};

/// Returns the facts about this machine that the broker needs, without an enforcement. `made` are
/// the CPUs of the daemon's own partitions.
pub fn platform(machine: &SystemInfo, made: &CpuSet) -> talea_broker::input::Platform {
    let root_domains = machine.admitting_domains();
    let single = root_domains.iter().filter(|cpus| cpus.len() == 1);
    let single = single.fold(CpuSet::EMPTY, |all, cpus| all.union(cpus));
    talea_broker::input::Platform {
        cpus: machine.present,
        offline: machine.present.difference(&machine.online),
        default_cpus: default_cpus(machine),
        // Single-CPU domains made by the administrator: a thread that is pinned there is confined.
        partitionable: single.difference(made),
        // The daemon's own partitions, for the plugins that requested them. They exist before the
        // machine is probed.
        partitionable_opt_in: single.intersection(made),
        root_domains,
        // Without a kernel admission test the share exceeds every possible demand.
        deadline_share: machine.deadline_share().unwrap_or(Charge::ONE.times(u32::MAX)),
        deadline_period: machine.deadline_periods,
        granularity: match (machine.hrtick, machine.tick) {
            (Some(true), _) => Span::ZERO,
            (_, Some(tick)) => tick,
            // The longest tick that Linux can be configured for.
            (_, None) => Span::from_ns(10_000_000),
        },
        fifo: machine
            .rt_limit
            .and_then(|limit| limit.runtime)
            .is_none_or(|runtime| !runtime.is_zero()),
        enforcement: None,
    }
}

/// Returns the CPUs of a thread that was never restricted. The kernel starts user space on the CPUs
/// that are not isolated, and a valid partition of cgroup v2 takes its CPUs from all other threads.
fn default_cpus(machine: &SystemInfo) -> CpuSet {
    let usable = machine.online.difference(&machine.isolated);
    let common = machine.domains.iter().max_by_key(|domain| domain.cpus.len());
    match (&machine.cgroups.cpuset, common) {
        (Hierarchy::V2(_), Some(common)) => usable.intersection(&common.cpus),
        _ => usable,
    }
}

/// Returns the attributes of a thread that the broker uses.
pub(crate) fn attr_of(snapshot: &Snapshot) -> Attr {
    Attr {
        policy: snapshot.attr.policy.into(),
        reset_on_fork: snapshot.attr.reset_on_fork,
        cpus: snapshot.affinity,
    }
}

/// Returns the kernel's form of `attr`.
pub(crate) fn kernel_attr(attr: &Attr) -> sched::Attr {
    let policy = attr.policy.into();
    if attr.reset_on_fork { sched::Attr::grant(policy) } else { sched::Attr::plain(policy) }
}

/// Returns the affinity to set, if any.
pub(crate) fn affinity(attr: &Attr) -> Option<&CpuSet> {
    (!attr.cpus.is_empty()).then_some(&attr.cpus)
}

/// Returns the broker's form of user ids.
pub(crate) fn uids_of(uids: talea_os::proc::Uids) -> Uids {
    Uids { real: uids.real, effective: uids.effective, saved: uids.saved }
}

/// Returns the error number for the broker; ESRCH if the error has no number.
pub(crate) fn errno(error: &ApplyError) -> Errno {
    Errno(error.errno().unwrap_or(rustix::io::Errno::SRCH.raw_os_error()))
}

/// Returns the reason why a thread could not be opened.
pub(crate) fn thread_error(error: &OpenError) -> ThreadError {
    match error {
        OpenError::Gone | OpenError::OtherThread => ThreadError::Gone,
        OpenError::NotAPidfd(_) => ThreadError::NotAThread,
        OpenError::KernelThread => {
            ThreadError::Kernel(Errno(rustix::io::Errno::PERM.raw_os_error()))
        }
        OpenError::Os(error) => ThreadError::Kernel(Errno(
            error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()),
        )),
    }
}
