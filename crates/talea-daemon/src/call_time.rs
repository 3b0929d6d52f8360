//! Time of a plugin's call, without the time in which other threads kept the host from its CPU.
//!
//! A host is an ordinary process. A client with a real-time grant can keep it from its CPU for
//! seconds, and must not take a healthy plugin out of service by that. So a call that exceeds its
//! time-out is only late if the host itself has run or slept for so long.

use talea_core::{Monotonic, Span, mutate};
use talea_os::Tid;
use talea_os::proc::{self, RunTimes};

/// Longest duration of a call, also for a host that gets no CPU: its client waits.
const MAX_DURATION: Span = Span::from_ns(5_000_000_000);
/// Shortest time between two checks of a call.
const MIN_LEFT: Span = Span::from_ns(1_000_000);

/// Start of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallStart {
    at: Monotonic,
    times: RunTimes,
}

impl CallStart {
    /// Starts the time of a call to the single thread `host`. All time counts for an unknown
    /// thread.
    pub(crate) fn of(host: Option<Tid>, now: Monotonic) -> CallStart {
        let times = host.and_then(|host| proc::run_times(host).ok());
        CallStart { at: now, times: times.unwrap_or_default() }
    }

    /// Returns the time that the call has left; `None` if it is late.
    pub(crate) fn left(&self, host: Option<Tid>, now: Monotonic, timeout: Span) -> Option<Span> {
        // Without the numbers, all time counts.
        let times = host.and_then(|host| proc::run_times(host).ok()).unwrap_or(self.times);
        let stat = host.and_then(|host| proc::stat(host).ok());
        let is_ready = stat.is_some_and(|stat| stat.state == b'R');
        self.left_after(now, times, is_ready, timeout)
    }

    /// Decides for a host with these times now, which is ready or has a CPU, or sleeps.
    fn left_after(
        &self,
        now: Monotonic,
        times: RunTimes,
        is_ready: bool,
        timeout: Span,
    ) -> Option<Span> {
        let since = |now: Span, then: Span| now.as_ns().saturating_sub(then.as_ns());
        let elapsed = now.since(self.at).as_ns();
        // The kernel adds the waiting time when the thread gets its CPU. So of a thread that is
        // ready, only the time with a CPU is known.
        let own = if is_ready {
            since(times.ran, self.times.ran)
        } else {
            elapsed.saturating_sub(since(times.waited, self.times.waited))
        };
        if mutate!("plugin-foreign-own-time", own, elapsed) >= timeout.as_ns()
            || elapsed >= MAX_DURATION.as_ns().max(timeout.as_ns())
        {
            return None;
        }
        Some(Span::from_ns(timeout.as_ns() - own).max(MIN_LEFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Span = Span::from_ns(50_000_000);

    fn ms(ms: u64) -> Span {
        Span::from_ns(ms * 1_000_000)
    }

    /// Returns the decision `elapsed` milliseconds after the start, for a host that has had a CPU
    /// and has waited for one for these times.
    fn left(elapsed: u64, ran: u64, waited: u64, is_ready: bool) -> Option<Span> {
        let at = Monotonic::from_ns(7);
        let start = CallStart { at, times: RunTimes { ran: ms(100), waited: ms(200) } };
        let times = RunTimes { ran: ms(100 + ran), waited: ms(200 + waited) };
        start.left_after(at + ms(elapsed), times, is_ready, TIMEOUT)
    }

    #[test]
    fn attack_10_time_without_a_cpu_does_not_count() {
        assert_eq!(left(50, 10, 0, true), Some(ms(40)), "it waits since 40 ms");
        assert_eq!(left(800, 20, 770, false), Some(ms(20)), "it slept for 10 ms");
        assert_eq!(left(4_999, 0, 0, true), Some(ms(50)));
    }

    #[test]
    fn a_host_that_computes_or_sleeps_too_long_is_late() {
        assert_eq!(left(50, 50, 0, true), None, "it spins");
        assert_eq!(left(50, 1, 0, false), None, "it sleeps");
        assert_eq!(left(400, 10, 350, false), None, "it slept for 40 ms");
    }

    #[test]
    fn a_call_ends_also_without_a_cpu() {
        assert_eq!(left(5_000, 0, 0, true), None);
        assert_eq!(left(50, 50, 0, false), None);
        assert_eq!(left(51, 50, 1, true), None);
    }
}
