//! Signs of life for the service manager (`WatchdogSec=`).
//!
//! Model: the event loop sends one message per half of the manager's interval, at the end of a
//! round. So a loop that hangs sends none, and the manager replaces the daemon. Without an interval
//! there are no messages and no wake-ups.

use crate::service_manager::notify;
use sd_notify::NotifyState;
use talea_core::{Monotonic, Span};

/// Messages of this process.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    /// Half of the manager's interval and the time of the next message.
    next: Option<(Span, Monotonic)>,
}

impl Watchdog {
    /// Reads the interval that the service manager has set for this process.
    pub(super) fn from_environment(now: Monotonic) -> Watchdog {
        let interval = sd_notify::watchdog_enabled();
        let ns = interval.and_then(|interval| u64::try_from(interval.as_nanos()).ok());
        Watchdog::new(ns.map(Span::from_ns), now)
    }

    fn new(interval: Option<Span>, now: Monotonic) -> Watchdog {
        let half = interval.map(|interval| Span::from_ns(interval.as_ns() / 2));
        let half = half.filter(|half| !half.is_zero());
        Watchdog { next: half.map(|half| (half, now.saturating_add(half))) }
    }

    /// Returns the time of the next message, if there is one.
    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.next.map(|(_, at)| at)
    }

    /// Sends the message if it is due.
    pub(super) fn keep_alive(&mut self, now: Monotonic) {
        if self.is_due(now) {
            notify(&[NotifyState::Watchdog]);
        }
    }

    fn is_due(&mut self, now: Monotonic) -> bool {
        let Some((half, at)) = &mut self.next else { return false };
        if now < *at {
            return false;
        }
        *at = now.saturating_add(*half);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Span {
        Span::from_ns(ms * 1_000_000)
    }

    fn at(time: u64) -> Monotonic {
        Monotonic::ZERO.saturating_add(ms(time))
    }

    #[test]
    fn attack_25_a_message_is_due_twice_per_interval() {
        let mut watchdog = Watchdog::new(Some(ms(100)), at(1000));
        let due: Vec<u64> = (1000..1200).filter(|&time| watchdog.is_due(at(time))).collect();
        assert_eq!(due, [1050, 1100, 1150]);
        assert_eq!(watchdog.next_due(), Some(at(1200)));
        // A late round sends one message, and the next one half an interval later.
        assert!(watchdog.is_due(at(5000)) && !watchdog.is_due(at(5000)));
        assert_eq!(watchdog.next_due(), Some(at(5050)));
    }

    #[test]
    fn without_an_interval_there_is_no_wake_up() {
        for interval in [None, Some(Span::ZERO), Some(Span::from_ns(1))] {
            let mut watchdog = Watchdog::new(interval, at(0));
            assert_eq!((watchdog.next_due(), watchdog.is_due(at(9))), (None, false));
        }
    }
}
