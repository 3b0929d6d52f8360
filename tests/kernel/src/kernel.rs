//! Kernel state of threads, and the abilities of this machine.

use std::process::Command;
use talea_core::CpuSet;
use talea_os::sched::{self, Attr, Policy};
use talea_os::sysinfo::{SystemInfo, dl_bandwidth, rt_group_of};
use talea_os::{Tid, proc};

/// Whether the process may become any user and set any scheduling attribute.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
        && talea_os::capabilities::effective()
            .is_ok_and(|has| has.has(talea_os::capabilities::Capability::SysNice))
}

/// Whether threads of our control group may be real-time.
pub fn has_fifo() -> bool {
    rt_group_of(Tid::of_process()).is_none_or(|group| !group.refuses_realtime())
}

/// A thread's number as a [`Tid`].
pub fn tid(number: i32) -> Tid {
    Tid::new(number).expect("a positive thread id")
}

/// Scheduling attributes of a thread in the kernel.
#[track_caller]
pub fn attr(number: i32) -> Attr {
    sched::get(tid(number)).unwrap_or_else(|error| panic!("thread {number}: {error}"))
}

/// Scheduling policy of a thread.
#[track_caller]
pub fn policy(number: i32) -> Policy {
    attr(number).policy
}

/// FIFO or RR priority of a thread.
#[track_caller]
pub fn priority(number: i32) -> u8 {
    match policy(number) {
        Policy::Fifo(priority) | Policy::Rr(priority) => priority,
        other => panic!("thread {number} has {other:?}"),
    }
}

/// CPU affinity of a thread.
#[track_caller]
pub fn affinity(number: i32) -> CpuSet {
    sched::get_affinity(tid(number)).unwrap_or_else(|error| panic!("thread {number}: {error}"))
}

/// Whether it is an ordinary thread.
#[track_caller]
pub fn is_ordinary(number: i32) -> bool {
    matches!(policy(number), Policy::Other { .. })
}

/// Whether there is a thread with this number.
pub fn exists(number: i32) -> bool {
    Tid::new(number).is_some_and(|tid| proc::stat(tid).is_ok_and(|stat| !stat.has_ended()))
}

/// Deadline bandwidth that the kernel has reserved in the domain of CPU 0, in units of 2^-20 CPUs.
pub fn deadline_bandwidth() -> Option<i64> {
    deadline_bandwidth_of(0)
}

/// Deadline bandwidth that the kernel has reserved in the domain of this CPU. The figure is in
/// debugfs, which this function mounts if needed and leaves mounted: others may be reading.
pub fn deadline_bandwidth_of(cpu: u32) -> Option<i64> {
    static MOUNTED: std::sync::Once = std::sync::Once::new();
    MOUNTED.call_once(|| {
        if dl_bandwidth().is_none() {
            drop(
                Command::new("mount").args(["-t", "debugfs", "none", "/sys/kernel/debug"]).output(),
            );
        }
    });
    dl_bandwidth()?.iter().find(|entry| entry.cpu == cpu).map(|entry| entry.total)
}

/// The CPUs of this machine.
pub fn cpus() -> CpuSet {
    SystemInfo::probe().expect("this machine").online
}
