//! The scheduler's clock, on which deadlines are told, against ours.
//!
//! The kernel does not offer it for reading. But a thread that enters SCHED_DEADLINE while it runs
//! gets a deadline of exactly now plus D: a thread of ours that does so with a small share shows
//! what the other clock says. Both count the same hardware; compared again after a minute, they
//! can't have parted by more than the margin.
//!
//! The share is small but not the smallest: a tick or a hole of the machine that falls into those
//! few microseconds is booked as time that the thread has run, and what it has overdrawn it waits
//! for before it runs again, be it to its end. With the kernel's least budget that is minutes. Nor
//! does the caller wait for longer than it takes on a machine that lets it run.

use crate::sched::{self, Attr, Policy};
use crate::{Tid, clock};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use talea_core::{CpuSet, Span, Time, Work};

const VALID: Span = Span::from_ns(60_000_000_000);
/// 100 ppm over a minute, more than two crystals differ.
const MARGIN_NS: i128 = 6_000_000;

/// What the thread may use of each second; it needs a hundredth of it.
const BUDGET: Work = Work::from_ns(5_000_000);
/// How long the caller waits for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The scheduler's clock minus ours, at least, as compared then.
#[derive(Clone, Copy)]
struct Compared {
    ahead_ns: i128,
    at: Time,
}

/// The latest time on our clock at which the scheduler's clock shows `deadline`.
///
/// Where the clocks can't be compared (no right to SCHED_DEADLINE), a bound that supposes the
/// thread of `runtime` and `period` to have overdrawn each budget by no more than a long tick.
pub(super) fn latest(deadline: u64, runtime: Work, period: Span) -> Time {
    static LAST: Mutex<Option<Compared>> = Mutex::new(None);
    let now = clock::now();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|last| now.since(last.at) > VALID) {
        // An old comparison is worth more than none.
        *last = compare().or(*last);
    }
    if let Some(Compared { ahead_ns, .. }) = *last {
        let ns = (i128::from(deadline) - ahead_ns + MARGIN_NS).clamp(0, i128::from(u64::MAX));
        return Time::from_ns(ns as u64);
    }
    guess(runtime, period)
}

/// As [`latest`] where the clocks can't be compared, for who has no time for that.
pub(super) fn guess(runtime: Work, period: Span) -> Time {
    const TICK_NS: u64 = 20_000_000;
    let periods = 2 + TICK_NS.div_ceil(runtime.as_ns().max(1));
    clock::now().saturating_add(Span::from_ns(period.as_ns().saturating_mul(periods)))
}

fn compare() -> Option<Compared> {
    let (say, heard) = std::sync::mpsc::channel();
    let look = || {
        let tid = Tid::current();
        // Inherited from a caller who may be pinned, which the class does not take.
        sched::set_affinity(tid, &CpuSet::first(talea_core::cpus::MAX_CPUS as u32)).ok()?;
        let span = Span::from_ns(1_000_000_000);
        let small = Attr::grant(Policy::Deadline { runtime: BUDGET, deadline: span, period: span });
        sched::set(tid, &small).ok()?;
        // Later than the kernel's look at its clock: the difference comes out too small, the time
        // too late.
        let at = clock::now();
        let text = crate::proc::read("/proc/thread-self/sched");
        // By ourselves and running: nothing leaks. Nobody puts this thread back into the class.
        sched::set(tid, &Attr::plain(Policy::NORMAL)).ok()?;
        let text = text.ok()?;
        let line =
            text.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"dl.deadline"))?;
        let deadline: u64 =
            std::str::from_utf8(line).ok()?.split_once(':')?.1.trim().parse().ok()?;
        let theirs = i128::from(deadline) - i128::from(span.as_ns());
        Some(Compared { ahead_ns: theirs - i128::from(at.as_ns()), at })
    };
    let thread = std::thread::Builder::new().name("talea-clock".into());
    // Who no longer listens has made do without.
    let run = move || {
        let _ = say.send(look());
    };
    thread.spawn(run).ok()?;
    heard.recv_timeout(PATIENCE).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_translated_to_a_later_time_but_not_much() {
        let Some(compared) = compare() else {
            eprintln!("skipped: needs SCHED_DEADLINE");
            return;
        };
        let now = clock::now();
        let theirs = i128::from(now.as_ns()) + compared.ahead_ns;
        let (runtime, period) = (Work::from_ns(1_000_000), Span::from_ns(10_000_000));
        let later = latest(theirs as u64 + 50_000_000, runtime, period);
        let from_now = later.since(now).as_ns();
        assert!((40_000_000..1_000_000_000).contains(&from_now), "{from_now}");
    }
}
