//! Real-time threads of the machine, and the limits of a thread that is to become one.

use super::cgroups::cpu_path;
use super::{RtGroup, rt_group_of};
use crate::sched::{self, Attr, Policy};
use crate::sys::check;
use crate::{Tid, proc};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use talea_core::{CpuSet, Span, Work};

/// Real-time thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTimeThread {
    /// Thread number.
    pub tid: Tid,
    /// Number of its process.
    pub process: Tid,
    /// Policy.
    pub policy: Policy,
    /// CPUs that the thread may use.
    pub cpus: CpuSet,
}

/// Returns the visible real-time threads, without those of the kernel.
///
/// Takes one system call per thread of the machine, and some more per real-time thread: about 1 ms
/// for 300 processes.
pub fn real_time_threads() -> Vec<RealTimeThread> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process =
            entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Tid::new);
        let Some(process) = process else { continue };
        for tid in proc::threads_of(process).unwrap_or_default() {
            let Ok(Attr { policy, .. }) = sched::get(tid) else { continue };
            if !policy.is_realtime() || proc::stat(tid).is_ok_and(|stat| stat.is_kernel_thread()) {
                continue;
            }
            if let Ok(cpus) = sched::get_affinity(tid) {
                found.push(RealTimeThread { tid, process, policy, cpus });
            }
        }
    }
    found
}

/// Whether the kernel now admits a deadline thread with these parameters on `cpus`. Returns `None`
/// if this process lacks the right to ask.
///
/// A thread of this process enters the class for some microseconds. Before its end the function
/// shrinks the thread to the smallest share, so that no bandwidth leaks (`deadline_exit`, K3).
pub fn admits_deadline(policy: Policy, cpus: CpuSet) -> Option<bool> {
    const SMALLEST_RUNTIME: Work = Work::from_ns(1024);
    const LONGEST_PERIOD: Span = Span::from_ns(4_194_304_000);
    let smallest = Policy::Deadline {
        runtime: SMALLEST_RUNTIME,
        deadline: LONGEST_PERIOD,
        period: LONGEST_PERIOD,
    };
    let ask = move || {
        let me = Tid::current();
        if !cpus.is_empty() {
            sched::set_affinity(me, &cpus)?;
        }
        sched::set(me, &Attr::grant(policy))?;
        sched::set(me, &Attr::grant(smallest))
    };
    match std::thread::spawn(ask).join().ok()? {
        Ok(()) => Some(true),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Some(false),
        Err(_) => None,
    }
}

/// Returns RLIMIT_RTTIME of the process of `tid`. Returns `None` if there is no limit or the limit
/// is not readable.
pub fn rt_time_of(tid: Tid) -> Option<Work> {
    let us = rt_time_us(tid).or_else(|_| rt_time_from_proc(tid)).unwrap_or(u64::MAX);
    (us != u64::MAX).then(|| Work::from_ns(us.saturating_mul(1_000)))
}

fn rt_time_us(tid: Tid) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit; nothing is set.
    check(unsafe {
        libc::prlimit(tid.as_raw(), libc::RLIMIT_RTTIME, std::ptr::null(), &raw mut limit)
    })?;
    Ok(limit.rlim_cur)
}

/// Variant of [`rt_time_of`] that needs no rights over the process: it reads `/proc`.
fn rt_time_from_proc(tid: Tid) -> io::Result<u64> {
    let text = proc::read(&format!("/proc/{tid}/limits"))?;
    let text = String::from_utf8_lossy(&text);
    let value = text.lines().find_map(|line| {
        let rest = line.strip_prefix("Max realtime timeout")?;
        rest.split_ascii_whitespace().next().and_then(|word| word.parse().ok())
    });
    Ok(value.unwrap_or(u64::MAX))
}

/// Whether the control group of `tid` permits FIFO and RR.
pub fn group_permits_realtime(tid: Tid) -> bool {
    // In a container, the group at the top is the container's own.
    static TOP_PERMITS: AtomicBool = AtomicBool::new(false);
    let mut buffer = [0; 4096];
    let membership = proc::read_into(&format!("/proc/{tid}/cgroup"), &mut buffer);
    let is_top = membership
        .is_ok_and(|text| std::str::from_utf8(text).is_ok_and(|text| cpu_path(text) == Some("/")));
    if is_top && TOP_PERMITS.load(Ordering::Relaxed) {
        return true;
    }
    let permits = !rt_group_of(tid).is_some_and(|group: RtGroup| group.refuses_realtime());
    if is_top && permits {
        TOP_PERMITS.store(true, Ordering::Relaxed);
    }
    permits
}
