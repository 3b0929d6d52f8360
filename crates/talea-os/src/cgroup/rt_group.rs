//! Real-time control groups: a limit on the FIFO and RR time of a group, enforced by the kernel.
//!
//! Model: one directory in the hierarchy of the `cpu` controller (cgroup v1), where the kernel has
//! RT_GROUP_SCHED. On each CPU the kernel throttles the group's real-time threads when they have
//! used `rt_runtime_us` within `rt_period_us`, also inside of system calls. It counts in ticks and
//! subtracts an overrun from the next period, so the long-term share is exact. Deadline threads and
//! ordinary ones are not limited.
//!
//! Absent on purpose: kernels without RT_GROUP_SCHED and hierarchies of version 2, which have no
//! such limit. Also absent: a host whose `kernel.sched_rt_runtime_us` is -1, because its kernel
//! throttles no group.

use crate::sys::is_gone;
use crate::sysinfo;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use talea_core::mutate;
use talea_core::{Span, Work};

/// Time limit within which the members of a removed group must disappear.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Limit of a group: `runtime` of real-time CPU time in every `period`, on each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtLimit {
    /// CPU time within each period.
    pub runtime: Work,
    /// Period.
    pub period: Span,
}

/// Returns the mount point of the hierarchy of the `cpu` controller, if the kernel limits real-time
/// groups in it.
pub fn mount_point() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
        let is_its = kind == "cgroup" && options.split(',').any(|option| option == "cpu");
        is_its.then(|| PathBuf::from(at.replace("\\040", " ")))
    };
    let top = mounts.lines().filter_map(mount).next_back()?;
    top.join("cpu.rt_runtime_us").exists().then_some(top)
}

/// Whether the kernel throttles real-time groups at all.
pub(super) fn is_throttled() -> bool {
    sysinfo::rt_limit_now().is_some_and(|limit| limit.runtime.is_some())
}

/// Real-time control group.
#[derive(Debug)]
pub struct RtGroup {
    path: PathBuf,
}

impl RtGroup {
    /// Creates an empty group with this limit.
    ///
    /// # Errors
    /// If the kernel has no room for the limit beside the limits of other groups, among others.
    /// Then no group remains.
    pub(super) fn create(path: PathBuf, limit: RtLimit) -> io::Result<RtGroup> {
        fs::create_dir(&path)?;
        let set = |name, ns: u64| overwrite(&path.join(name), (ns / 1_000).to_string().as_bytes());
        // The runtime of a new group is zero, which fits any period.
        match set("cpu.rt_period_us", limit.period.as_ns())
            .and_then(|()| set("cpu.rt_runtime_us", limit.runtime.as_ns()))
        {
            Ok(()) => Ok(RtGroup { path }),
            Err(error) => {
                let _: io::Result<()> = remove(&path);
                Err(error)
            }
        }
    }

    /// Opens the file through which a thread enters the group.
    pub(crate) fn tasks_file(&self) -> io::Result<File> {
        File::options().write(true).open(self.path.join("tasks"))
    }

    /// Moves all members to the group above: killed threads need CPU time in order to exit, which
    /// a throttled group does not have.
    pub(super) fn release(&self) {
        release(&self.path);
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// Writes to a file of the hierarchy, which exists.
fn overwrite(path: &Path, text: &[u8]) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all(text)
}

/// Moves all members of the group at `path` to the group above.
pub(super) fn release(path: &Path) {
    let members = fs::read_to_string(path.join("tasks")).unwrap_or_default();
    let above = path.parent().map(|above| above.join("tasks")).unwrap_or_default();
    for member in members.lines() {
        // It may have exited.
        let _: io::Result<()> =
            mutate!("os-rt-release", overwrite(&above, member.as_bytes()), Ok(()));
    }
}

/// Removes a group whose members were killed.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let end = Instant::now() + REMOVE_TIMEOUT;
    loop {
        release(path);
        match fs::remove_dir(path) {
            Err(error) if is_gone(&error) => return Ok(()),
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
}

/// Returns the limit of a group whose server grants `budget` in every `period`.
///
/// A server grants at most `n + 1` budgets within any `n` periods. The limit allows that, so the
/// kernel never throttles a program for time that its server grants. Otherwise the limit holds a
/// program to little more than its share.
pub fn limit_of_server(budget: Work, period: Span) -> Option<RtLimit> {
    const PERIODS: u64 = 16;
    let runtime = budget.as_ns().checked_mul(mutate!("os-rt-limit", PERIODS + 1, PERIODS * 8))?;
    let period = period.as_ns().checked_mul(PERIODS)?;
    (runtime < period)
        .then(|| RtLimit { runtime: Work::from_ns(runtime), period: Span::from_ns(period) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_allows_one_budget_more_than_there_are_periods() {
        let limit = |budget, period| limit_of_server(Work::from_ns(budget), Span::from_ns(period));
        let of = |runtime, period| {
            Some(RtLimit { runtime: Work::from_ns(runtime), period: Span::from_ns(period) })
        };
        assert_eq!(limit(1_000_000, 50_000_000), of(17_000_000, 800_000_000));
        assert_eq!(limit(15_000, 16_000), of(255_000, 256_000));
        // No limit below the whole CPU allows it.
        assert_eq!(limit(16_000, 16_000), None);
        assert_eq!(limit(u64::MAX / 2, u64::MAX), None);
    }
}
