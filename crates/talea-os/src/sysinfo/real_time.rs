//! Real-time threads of the machine, and the limits of a thread that is to become one.

use super::cgroups::cpu_path;
use super::{RtGroup, rt_group_of};
use crate::sched::{self, Attr, Policy};
use crate::sys::check;
use crate::{Tid, clock, proc};
use std::fs::{DirEntry, ReadDir};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use talea_core::{CpuSet, Monotonic, Span, Work, mutate};

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

/// Survey of the visible real-time threads, without those of the kernel, in slices.
///
/// Takes one system call per thread of the machine, and some more per real-time thread: about 1 ms
/// for 300 processes. Threads that start or end between two slices may be missed.
#[derive(Debug)]
pub struct RealTimeSurvey {
    processes: Option<ReadDir>,
    /// Current process, with its remaining threads.
    tasks: Option<(Tid, ReadDir)>,
    found: Vec<RealTimeThread>,
}

impl RealTimeSurvey {
    /// Starts a survey.
    pub fn start() -> RealTimeSurvey {
        RealTimeSurvey {
            processes: std::fs::read_dir("/proc").ok(),
            tasks: None,
            found: Vec::new(),
        }
    }

    /// Continues until `until`, by at least one thread, but may exceed it by the time of one
    /// directory block. Returns the threads at the end of the survey; `None` before.
    pub fn run(&mut self, until: Monotonic) -> Option<Vec<RealTimeThread>> {
        loop {
            let Some((process, tasks)) = &mut self.tasks else {
                let Some(entry) = self.processes.as_mut().and_then(Iterator::next) else {
                    return Some(std::mem::take(&mut self.found));
                };
                self.tasks = entry.ok().and_then(|entry| {
                    let process = tid_of(&entry)?;
                    Some((process, std::fs::read_dir(entry.path().join("task")).ok()?))
                });
                continue;
            };
            let process = *process;
            match tasks.next() {
                None => self.tasks = None,
                Some(entry) => {
                    let tid = entry.ok().and_then(|entry| tid_of(&entry));
                    self.found.extend(tid.and_then(|tid| real_time_thread(process, tid)));
                }
            }
            if mutate!("os-survey-slices", clock::now() >= until, false) {
                return None;
            }
        }
    }
}

fn tid_of(entry: &DirEntry) -> Option<Tid> {
    entry.file_name().to_str()?.parse().ok().and_then(Tid::new)
}

/// Returns a thread if it is a real-time thread of user space.
fn real_time_thread(process: Tid, tid: Tid) -> Option<RealTimeThread> {
    let Attr { policy, .. } = sched::get(tid).ok()?;
    if !policy.is_realtime() || proc::stat(tid).is_ok_and(|stat| stat.is_kernel_thread()) {
        return None;
    }
    let cpus = sched::get_affinity(tid).ok()?;
    Some(RealTimeThread { tid, process, policy, cpus })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_survey_ends_after_slices_of_a_thread_each() {
        let (end, waits) = channel::<()>();
        let waits = std::sync::Arc::new(std::sync::Mutex::new(waits));
        let threads: Vec<_> = (0..50)
            .map(|_| {
                let waits = waits.clone();
                std::thread::spawn(move || drop(waits.lock().map(|waits| waits.recv())))
            })
            .collect();
        let mut survey = RealTimeSurvey::start();
        let mut slices = 0;
        // Each slice is over when it begins.
        while survey.run(Monotonic::ZERO).is_none() {
            slices += 1;
        }
        assert!(slices > 50, "{slices} slices");
        assert!(RealTimeSurvey::start().run(Monotonic::NEVER).is_some(), "in one slice");
        drop(end);
        for thread in threads {
            thread.join().expect("it ends");
        }
    }
}
