//! Limit of the kernel on the CPU time of all real-time threads together.

use super::dl_bandwidth;
use super::sys_root::SysRoot;
use talea_core::{Span, Work, mutate};

/// Limit of the kernel on real-time threads: `runtime` in every `period`. Without a runtime there
/// is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtLimit {
    /// Value of `sched_rt_runtime_us`. `None` stands for -1, which also switches deadline admission
    /// off.
    pub runtime: Option<Work>,
    /// Value of `sched_rt_period_us`.
    pub period: Span,
}

/// Returns the limit of the running kernel on real-time threads.
pub fn rt_limit_now() -> Option<RtLimit> {
    read(&SysRoot::live())
}

/// Reads the limit on real-time threads, from debugfs if this process may read it.
///
/// Reading the sysctls is not free of effects. Linux 6.18 rebuilds its root domains also when they
/// are only read. It then forgets the bandwidth of threads that have left the deadline class before
/// their zero-lag times. At these times it subtracts the bandwidth again, so `total_bw` falls below
/// zero.
pub(super) fn read(root: &SysRoot) -> Option<RtLimit> {
    let share = mutate!("os-rt-limit-sysctl", dl_bandwidth::limit_per_cpu(root), None);
    if let Some(share) = share {
        let period = Span::from_ns(1_000_000_000);
        // The kernel has rounded the share down. Its unit is smaller than 1 us in 1 s.
        let runtime = u64::try_from(share).ok().map(|bits| (bits * 1_000_000).div_ceil(1 << 20));
        return Some(RtLimit { runtime: runtime.and_then(Work::from_us), period });
    }
    let runtime = root.number("/proc/sys/kernel/sched_rt_runtime_us")?;
    let period = root.number("/proc/sys/kernel/sched_rt_period_us")?;
    Some(RtLimit {
        runtime: u64::try_from(runtime).ok().and_then(Work::from_us),
        period: u64::try_from(period)
            .ok()
            .and_then(Span::from_us)
            .filter(|span| !span.is_zero())?,
    })
}
