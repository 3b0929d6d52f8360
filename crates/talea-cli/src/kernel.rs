//! What the kernel says about a thread, for showing beside what was granted.

use talea_core::{Policy, Priority};
use talea_os::Tid;

/// The policy that the thread has now; `None` when it is gone or can't be seen.
pub(crate) fn policy_of(tid: u32) -> Option<Policy> {
    let attr = talea_os::sched::get(Tid::new(i32::try_from(tid).ok()?)?).ok()?;
    let nice = |nice: i32| i8::try_from(nice).unwrap_or(0);
    Some(match attr.policy {
        // What sched_ext runs is as ordinary as the rest to us.
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

/// The thread's name, fit for a terminal: what it calls itself may hold anything.
pub(crate) fn name_of(tid: u32) -> Option<String> {
    let name = talea_os::proc::comm(Tid::new(i32::try_from(tid).ok()?)?).ok()?;
    Some(name.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}
