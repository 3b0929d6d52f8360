//! Facts about a machine and the real-time mechanisms that its kernel offers.
//!
//! Model: plain data, read once. Almost everything comes from files, so a machine can also be read
//! from a directory of copies ([`SystemInfo::from_dir`]). The results of system calls are in
//! [`SyscallSupport`]. Unreadable values are `None`, because an unknown value is not the same as an
//! absent one.

mod cgroups;
mod dl_bandwidth;
mod domains;
mod kernel;
mod limits;
mod real_time;
mod rt_limit;
mod sys_root;

pub use cgroups::{Cgroups, Hierarchy, RtGroup};
pub use dl_bandwidth::{DlBandwidth, dl_bandwidth};
pub use domains::Domain;
pub use kernel::Kernel;
pub use limits::Limits;
pub use real_time::{
    RealTimeSurvey, RealTimeThread, admits_deadline, group_permits_realtime, rt_time_of,
};
pub use rt_limit::{RtLimit, rt_limit_now};

use crate::capabilities::CapSet;
use crate::thread::has_thread_pidfds;
use crate::{Tid, proc};
use std::io;
use std::path::Path;
use sys_root::SysRoot;
use talea_core::{Charge, CpuSet, Span, Work};

/// Facts about a machine.
#[derive(Clone, Debug)]
pub struct SystemInfo {
    /// Kernel that runs.
    pub kernel: Kernel,
    /// CPUs that are online.
    pub online: CpuSet,
    /// CPUs of the machine, also those that are off-line.
    pub present: CpuSet,
    /// CPUs that the scheduler does not balance (`isolcpus`, isolated partitions).
    pub isolated: CpuSet,
    /// Limit of the CPU time of all real-time threads together.
    pub rt_limit: Option<RtLimit>,
    /// Shortest and longest period of a deadline thread.
    pub deadline_periods: (Span, Span),
    /// Share that each CPU's fair server takes from the deadline class; zero without fair servers.
    pub fair_server: Charge,
    /// Root domains: the sets of CPUs within which the scheduler balances and SCHED_DEADLINE
    /// admits.
    pub domains: Vec<Domain>,
    /// Control groups that matter to scheduling.
    pub cgroups: Cgroups,
    /// Whether the kernel enforces budgets of deadline threads exactly and not at the tick. `None`
    /// if the setting is not readable.
    pub hrtick: Option<bool>,
    /// Length of a timer tick.
    pub tick: Option<Span>,
    /// Effective capabilities of this process.
    pub capabilities: CapSet,
    /// Resource limits of this process.
    pub limits: Limits,
    /// Results of system calls.
    pub syscalls: SyscallSupport,
}

/// Facts that only system calls return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyscallSupport {
    /// Whether pidfds can name threads (Linux 6.9). Otherwise identity relies on start times, and
    /// the end of a single thread is no event.
    pub thread_pidfds: bool,
    /// Resolution of the coarse clock, which is one tick.
    pub tick: Option<Span>,
}

impl SyscallSupport {
    fn probe() -> SyscallSupport {
        SyscallSupport { thread_pidfds: has_thread_pidfds(), tick: coarse_resolution() }
    }
}

/// Returns the CPUs that are online now.
pub fn online_now() -> Option<CpuSet> {
    let text = crate::proc::read("/sys/devices/system/cpu/online").ok()?;
    CpuSet::parse(std::str::from_utf8(&text).ok()?).ok()
}

impl SystemInfo {
    /// Reads the facts of the running machine.
    pub fn probe() -> io::Result<SystemInfo> {
        SystemInfo::read(&SysRoot::live(), SyscallSupport::probe())
    }

    /// Reads copies of `/proc`, `/sys` and `/boot` below `root`. `calls` replaces the results of
    /// system calls.
    pub fn from_dir(root: &Path, calls: SyscallSupport) -> io::Result<SystemInfo> {
        SystemInfo::read(&SysRoot::below(root), calls)
    }

    fn read(root: &SysRoot, calls: SyscallSupport) -> io::Result<SystemInfo> {
        let kernel = Kernel::read(root)?;
        let online = root.cpus("/sys/devices/system/cpu/online").ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the list of online CPUs can't be read")
        })?;
        let present = root.cpus("/sys/devices/system/cpu/present").unwrap_or(online);
        let isolated = root.cpus("/sys/devices/system/cpu/isolated").unwrap_or_default();
        let cgroups = Cgroups::read(root);
        let status = root.bytes("/proc/self/status").unwrap_or_default();
        let capabilities = proc::field(&status, "CapEff")
            .and_then(|mut words| u64::from_str_radix(words.next()?, 16).ok())
            .map_or(CapSet::default(), CapSet);
        let us =
            |path: &str| root.number(path).and_then(|us| Span::from_us(u64::try_from(us).ok()?));
        Ok(SystemInfo {
            rt_limit: rt_limit::read(root),
            deadline_periods: (
                us("/proc/sys/kernel/sched_deadline_period_min_us")
                    .unwrap_or(Span::from_ns(100_000)),
                us("/proc/sys/kernel/sched_deadline_period_max_us")
                    .unwrap_or(Span::from_ns(4_194_304_000)),
            ),
            fair_server: fair_server(root, kernel.version, &online),
            domains: domains::read(root, &cgroups, &online, &isolated),
            hrtick: hrtick(root),
            tick: calls.tick,
            capabilities,
            limits: Limits::read(root),
            online,
            present: present.union(&online),
            isolated,
            cgroups,
            kernel,
            syscalls: calls,
        })
    }

    /// Returns the root domains that admit a deadline thread. An unbalanced domain of several CPUs
    /// admits none: no affinity covers it.
    pub fn admitting_domains(&self) -> Vec<CpuSet> {
        let admits = |domain: &&Domain| domain.balanced || domain.cpus.len() == 1;
        self.domains.iter().filter(admits).map(|domain| domain.cpus).collect()
    }

    /// Returns the share of each CPU of a domain that the kernel admits to SCHED_DEADLINE. Returns
    /// `None` if the kernel does not test at all (`sched_rt_runtime_us` is -1).
    pub fn deadline_share(&self) -> Option<Charge> {
        let limit = self.rt_limit?;
        let whole = Charge::new(limit.runtime?, limit.period);
        Some(whole.checked_sub(self.fair_server).unwrap_or(Charge::ZERO))
    }

    /// Whether all online CPUs are in one root domain, so that an unpinned deadline thread may use
    /// any of them.
    pub fn is_one_domain(&self) -> bool {
        matches!(&self.domains[..], [only] if only.cpus == self.online)
    }

    /// Returns the root domain of `cpu`.
    pub fn domain_of(&self, cpu: u32) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.cpus.contains(cpu))
    }

    /// Whether a fair server may take a CPU from FIFO threads (Linux 6.12 and later).
    pub fn has_fair_server(&self) -> bool {
        self.fair_server != Charge::ZERO
    }
}

/// Returns the group that decides whether `tid` may have a real-time policy. Returns `None` where
/// groups do not matter.
pub fn rt_group_of(tid: Tid) -> Option<RtGroup> {
    let root = SysRoot::live();
    cgroups::rt_group(&root, &cgroups::mounts(&root), &format!("/proc/{tid}/cgroup"))
}

/// Returns the largest share of any CPU's fair server: 50 ms in 1 s unless debugfs shows another
/// share.
fn fair_server(root: &SysRoot, kernel: (u32, u32), online: &CpuSet) -> Charge {
    if kernel < (6, 12) {
        return Charge::ZERO;
    }
    let share = |cpu: u32| {
        let number = |name: &str| {
            root.number(&format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/{name}"))
                .and_then(|ns| u64::try_from(ns).ok())
        };
        let period = number("period").filter(|&ns| ns > 0)?;
        Some(Charge::new(Work::from_ns(number("runtime")?), Span::from_ns(period)))
    };
    online.iter().filter_map(share).max().unwrap_or(Charge::ratio(5, 100))
}

/// Reads whether the deadline high-resolution tick is on. From Linux 7 on it is on by default, and
/// before that it is a feature that debugfs can switch on.
fn hrtick(root: &SysRoot) -> Option<bool> {
    let features = root.text("/sys/kernel/debug/sched/features").ok()?;
    let has = |name: &str| features.split_ascii_whitespace().any(|word| word == name);
    if has("HRTICK_DL") {
        return Some(true);
    }
    // Kernels without a separate switch for deadline threads use the general one.
    Some(has("HRTICK") && !has("NO_HRTICK_DL"))
}

fn coarse_resolution() -> Option<Span> {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    let failed = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    (failed == 0 && resolution.tv_sec == 0).then(|| Span::from_ns(resolution.tv_nsec as u64))
}
