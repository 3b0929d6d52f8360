//! Kernel state of threads, and the capabilities of this machine.

use std::process::Command;
use std::time::Duration;
use talea_core::CpuSet;
use talea_os::sched::{self, Attr, Policy};
use talea_os::sysinfo::{SystemInfo, dl_bandwidth, rt_group_of};
use talea_os::{Tid, proc};

/// Whether this process runs as root with CAP_SYS_NICE.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
        && talea_os::capabilities::effective()
            .is_ok_and(|has| has.has(talea_os::capabilities::Capability::SysNice))
}

/// Whether threads of this process's control group may be real-time.
pub fn has_fifo() -> bool {
    rt_group_of(Tid::of_process()).is_none_or(|group| !group.refuses_realtime())
}

/// Converts a thread's number to a [`Tid`].
pub fn tid(number: i32) -> Tid {
    Tid::new(number).expect("a positive thread id")
}

/// Returns the scheduling attributes of a thread from the kernel.
#[track_caller]
pub fn attr(number: i32) -> Attr {
    sched::get(tid(number)).unwrap_or_else(|error| panic!("thread {number}: {error}"))
}

/// Returns the scheduling policy of a thread.
#[track_caller]
pub fn policy(number: i32) -> Policy {
    attr(number).policy
}

/// Returns the FIFO or RR priority of a thread; fails for any other policy.
#[track_caller]
pub fn priority(number: i32) -> u8 {
    match policy(number) {
        Policy::Fifo(priority) | Policy::Rr(priority) => priority,
        other => panic!("thread {number} has {other:?}"),
    }
}

/// Returns the CPU affinity of a thread.
#[track_caller]
pub fn affinity(number: i32) -> CpuSet {
    sched::get_affinity(tid(number)).unwrap_or_else(|error| panic!("thread {number}: {error}"))
}

/// Whether the thread has the ordinary policy.
#[track_caller]
pub fn is_ordinary(number: i32) -> bool {
    matches!(policy(number), Policy::Other { .. })
}

/// Whether a thread with this number exists.
pub fn exists(number: i32) -> bool {
    Tid::new(number).is_some_and(|tid| proc::stat(tid).is_ok_and(|stat| !stat.has_ended()))
}

/// Returns the deadline bandwidth that the kernel has reserved in the domain of CPU 0, in units of
/// 2^-20 CPUs; `None` if it is not readable.
pub fn deadline_bandwidth() -> Option<i64> {
    deadline_bandwidth_of(0)
}

/// Returns the deadline bandwidth that the kernel has reserved in the domain of this CPU, in units
/// of 2^-20 CPUs. The number is in debugfs. The function mounts debugfs if necessary and leaves it
/// mounted, because other programs may be reading it.
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

/// Lets the kernel compute its deadline bandwidth again if that is below zero. A cpuset that
/// changes within a period of the end of a deadline thread makes it so, at least up to Linux 7.2.
/// The kernel then refuses every small reservation until the next rebuild of its domains.
pub fn mend_deadline_bandwidth() {
    const LONGEST_PERIOD: Duration = Duration::from_secs(1);
    const KNOB: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    let bandwidth = dl_bandwidth().unwrap_or_default();
    if bandwidth.iter().all(|entry| entry.total >= 0) {
        return;
    }
    println!("the kernel's deadline bandwidth is below zero: {bandwidth:?}");
    // A rebuild within a period of such an end would be wrong again.
    std::thread::sleep(LONGEST_PERIOD);
    let value = std::fs::read(KNOB).expect("Linux");
    std::fs::write(KNOB, value).expect("root may");
}

/// Returns the online CPUs of this machine.
pub fn cpus() -> CpuSet {
    SystemInfo::probe().expect("this machine").online
}
