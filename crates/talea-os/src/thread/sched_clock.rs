//! Conversion from the scheduler's clock, which the kernel uses for absolute deadlines, to
//! `CLOCK_MONOTONIC`.
//!
//! The kernel does not offer its clock for reading. But a thread that enters SCHED_DEADLINE while
//! it runs gets a deadline of exactly now plus D: a probe thread with a small share shows what the
//! scheduler's clock says. Both clocks count the same hardware; compared again after a minute, they
//! differ by less than the margin.
//!
//! The share is small but not the smallest. A tick or a CPU stall during those few microseconds is
//! accounted as CPU time of the probe thread, and it cannot run again, not even to end, before it
//! has paid off that overrun. With the kernel's smallest runtime that takes minutes. The caller
//! waits no longer than the probe takes on a machine that schedules it.

use crate::sched::{self, Attr, Policy};
use crate::{Tid, clock};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use talea_core::{CpuSet, Monotonic, Span, Work};

const COMPARISON_VALIDITY: Span = Span::from_ns(60_000_000_000);
/// Margin of a comparison: 100 ppm over a minute, which is more than two crystals differ.
const MARGIN_NS: i128 = 6_000_000;

/// CPU time of the probe thread per second. The thread needs a hundredth of that.
const PROBE_RUNTIME: Work = Work::from_ns(5_000_000);
/// Time limit for the probe thread.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(1);

/// Difference of the clocks at one time.
#[derive(Clone, Copy)]
struct ClockOffset {
    ahead_ns: i128,
    at: Monotonic,
}

/// Returns the latest `CLOCK_MONOTONIC` time at which the scheduler's clock shows `deadline`.
///
/// If the clocks cannot be compared (no right to SCHED_DEADLINE), the result is an upper bound. The
/// bound assumes that a thread of `runtime` and `period` has overdrawn each budget by no more than
/// a long tick.
pub(super) fn to_monotonic_latest(deadline: u64, runtime: Work, period: Span) -> Monotonic {
    static LAST: Mutex<Option<ClockOffset>> = Mutex::new(None);
    let now = clock::now();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|last| now.since(last.at) > COMPARISON_VALIDITY) {
        // An old comparison is better than none.
        *last = compare().or(*last);
    }
    if let Some(ClockOffset { ahead_ns, .. }) = *last {
        let ns = (i128::from(deadline) - ahead_ns + MARGIN_NS).clamp(0, i128::from(u64::MAX));
        return Monotonic::from_ns(ns as u64);
    }
    estimate_latest(runtime, period)
}

/// Variant of [`to_monotonic_latest`] for machines where the clocks cannot be compared, or for a
/// caller that must not block.
pub(super) fn estimate_latest(runtime: Work, period: Span) -> Monotonic {
    const TICK_NS: u64 = 20_000_000;
    let periods = 2 + TICK_NS.div_ceil(runtime.as_ns().max(1));
    clock::now().saturating_add(Span::from_ns(period.as_ns().saturating_mul(periods)))
}

fn compare() -> Option<ClockOffset> {
    let (send, received) = std::sync::mpsc::channel();
    let probe = || {
        let tid = Tid::current();
        // The affinity is inherited from a caller that may be pinned, which SCHED_DEADLINE refuses.
        sched::set_affinity(tid, &CpuSet::first(talea_core::cpus::MAX_CPUS as u32)).ok()?;
        let span = Span::from_ns(1_000_000_000);
        let small =
            Attr::grant(Policy::Deadline { runtime: PROBE_RUNTIME, deadline: span, period: span });
        sched::set(tid, &small).ok()?;
        // Read after the kernel has read its clock: the difference is too small, so the result is
        // too late, never too early.
        let at = clock::now();
        let text = crate::proc::read("/proc/thread-self/sched");
        // The thread demotes itself while it runs: nothing leaks. It never enters the class again.
        sched::set(tid, &Attr::plain(Policy::NORMAL)).ok()?;
        let text = text.ok()?;
        let line =
            text.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"dl.deadline"))?;
        let deadline: u64 =
            std::str::from_utf8(line).ok()?.split_once(':')?.1.trim().parse().ok()?;
        let theirs = i128::from(deadline) - i128::from(span.as_ns());
        Some(ClockOffset { ahead_ns: theirs - i128::from(at.as_ns()), at })
    };
    let thread = std::thread::Builder::new().name("talea-clock".into());
    // A receiver whose time limit has passed uses the estimate.
    let run = move || {
        let _ = send.send(probe());
    };
    thread.spawn(run).ok()?;
    received.recv_timeout(COMPARE_TIMEOUT).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_converted_to_a_slightly_later_time() {
        let Some(compared) = compare() else {
            eprintln!("skipped: needs SCHED_DEADLINE");
            return;
        };
        let now = clock::now();
        let theirs = i128::from(now.as_ns()) + compared.ahead_ns;
        let (runtime, period) = (Work::from_ns(1_000_000), Span::from_ns(10_000_000));
        let later = to_monotonic_latest(theirs as u64 + 50_000_000, runtime, period);
        let from_now = later.since(now).as_ns();
        assert!((40_000_000..1_000_000_000).contains(&from_now), "{from_now}");
    }
}
