//! Between the broker's plain values and the kernel's fuller ones.
//!
//! The kernel's attributes know more than a decision needs (hidden nice values, slices, flags of
//! deadline threads). What is lost on the way to the broker is kept beside the thread, see
//! `server::threads`.

use talea_broker::input::{Errno, ThreadError};
use talea_core::{Attr, Charge, CpuSet, Policy, Priority, Span};
use talea_os::machine::Machine;
use talea_os::{ApplyError, OpenError, Snapshot, sched};

/// What the broker must know of the machine; `made` are the CPUs of our own partitions.
pub fn machine(machine: &Machine, made: &CpuSet) -> talea_broker::input::Machine {
    // An unbalanced domain of several CPUs can't hold a deadline thread: no affinity covers it.
    let domains = machine.domains.iter().filter(|domain| domain.balanced || domain.cpus.len() == 1);
    let root_domains: Vec<CpuSet> = domains.map(|domain| domain.cpus).collect();
    let alone = root_domains.iter().filter(|cpus| cpus.len() == 1);
    let alone = alone.fold(CpuSet::EMPTY, |all, cpus| all.union(cpus));
    talea_broker::input::Machine {
        cpus: machine.online,
        // Somebody else has set these apart: a thread that is pinned there is confined.
        partitionable: alone.difference(made),
        // Ours, for the plugins that asked for them. They were made before this was looked at.
        partitionable_opt_in: alone.intersection(made),
        root_domains,
        // No admission test at all is more than any number of CPUs could ask for.
        deadline_share: machine.deadline_share().unwrap_or(Charge::ONE.times(u32::MAX)),
        deadline_period: machine.deadline_periods,
        grain: match (machine.hrtick, machine.tick) {
            (Some(true), _) => Span::ZERO,
            (_, Some(tick)) => tick,
            // The slowest tick that Linux can be configured for.
            (_, None) => Span::from_ns(10_000_000),
        },
        fifo: machine
            .rt_limit
            .and_then(|limit| limit.runtime)
            .is_none_or(|runtime| !runtime.is_zero()),
    }
}

/// What a thread has, as far as the broker cares.
pub(crate) fn attr_of(snapshot: &Snapshot) -> Attr {
    let nice = |nice: i32| nice.clamp(-20, 19) as i8;
    let policy = match snapshot.attr.policy {
        sched::Policy::Other { nice: value } | sched::Policy::Ext { nice: value } => {
            Policy::Other { nice: nice(value) }
        }
        sched::Policy::Batch { nice: value } => Policy::Batch { nice: nice(value) },
        sched::Policy::Idle => Policy::Idle,
        sched::Policy::Fifo(priority) => Policy::Fifo(Priority(priority)),
        sched::Policy::Rr(priority) => Policy::Rr(Priority(priority)),
        sched::Policy::Deadline { runtime, deadline, period } => {
            Policy::Deadline { runtime, deadline, period }
        }
    };
    Attr { policy, reset_on_fork: snapshot.attr.reset_on_fork, cpus: snapshot.affinity }
}

/// What the kernel is told.
pub(crate) fn kernel_attr(attr: &Attr) -> sched::Attr {
    let policy = match attr.policy {
        Policy::Other { nice } => sched::Policy::Other { nice: nice.into() },
        Policy::Batch { nice } => sched::Policy::Batch { nice: nice.into() },
        Policy::Idle => sched::Policy::Idle,
        Policy::Fifo(priority) => sched::Policy::Fifo(priority.0),
        Policy::Rr(priority) => sched::Policy::Rr(priority.0),
        Policy::Deadline { runtime, deadline, period } => {
            sched::Policy::Deadline { runtime, deadline, period }
        }
    };
    if attr.reset_on_fork { sched::Attr::grant(policy) } else { sched::Attr::plain(policy) }
}

/// The affinity to set, if any.
pub(crate) fn affinity(attr: &Attr) -> Option<&CpuSet> {
    (!attr.cpus.is_empty()).then_some(&attr.cpus)
}

/// The number that the broker is told.
pub(crate) fn errno(error: &ApplyError) -> Errno {
    Errno(error.errno().unwrap_or(rustix::io::Errno::SRCH.raw_os_error()))
}

/// Why a thread could not be found.
pub(crate) fn thread_error(error: &OpenError) -> ThreadError {
    match error {
        OpenError::Gone | OpenError::Another => ThreadError::Gone,
        OpenError::NotAPidfd(_) => ThreadError::NotAThread,
        OpenError::KernelThread => {
            ThreadError::Kernel(Errno(rustix::io::Errno::PERM.raw_os_error()))
        }
        OpenError::Os(error) => ThreadError::Kernel(Errno(
            error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()),
        )),
    }
}
