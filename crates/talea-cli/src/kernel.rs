//! Current state of threads in the kernel.

use talea_core::{Policy, Priority};
use talea_os::Tid;

/// Returns the thread's current policy; `None` if it has ended or is not readable.
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

/// Returns the thread's name without control characters; a thread may choose any name.
pub(crate) fn name_of(tid: u32) -> Option<String> {
    let name = talea_os::proc::comm(Tid::new(i32::try_from(tid).ok()?)?).ok()?;
    Some(name.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}
