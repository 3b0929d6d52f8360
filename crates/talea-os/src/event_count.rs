//! An event count on a futex (Reed and Kanodia 1979): one wait that ends on a notification or at an
//! absolute deadline.
//!
//! Model: a futex word counts the notifications. The waiting thread reads the count
//! ([`EventCount::key`]), then checks for messages, then waits until the count differs from the key
//! ([`EventCount::wait`]). A notification after the key was read changes the count, so no
//! notification is lost.
//!
//! The time-out is absolute on `CLOCK_MONOTONIC` and is the futex's own timer. Unlike timerfd and
//! POSIX timers it does not starve behind FIFO threads on PREEMPT_RT.

use crate::clock;
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use talea_core::Monotonic;

/// Event count with one waiting thread. Any thread may notify the event count.
#[derive(Debug, Default)]
pub struct EventCount(AtomicU32);

/// Cause of the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The count differs from the key.
    Notified,
    /// The deadline has passed.
    TimedOut,
}

impl EventCount {
    /// Creates an event count of zero.
    pub const fn new() -> EventCount {
        EventCount(AtomicU32::new(0))
    }

    /// Returns the count. Everything that a notifying thread did before its notification is visible
    /// to the caller.
    pub fn key(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Increments the count and wakes the waiting thread. If the thread is not yet waiting, its
    /// next wait with an older key returns at once.
    pub fn notify(&self) {
        self.increment();
        self.wake();
    }

    /// Increments the count without waking: the first half of [`notify`](EventCount::notify). The
    /// first half suffices if the waiting thread itself calls it.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// Wakes the waiting thread without incrementing: the second half of
    /// [`notify`](EventCount::notify).
    pub fn wake(&self) {
        // Only a misaligned word could make this fail.
        let _ = futex::wake(&self.0, Flags::PRIVATE, 1);
    }

    /// Blocks until the count differs from `key` or `until` has passed. Never returns early for
    /// another reason.
    pub fn wait(&self, key: u32, until: Monotonic) -> Woken {
        // Notified already: no system call is needed.
        if self.key() != key {
            return Woken::Notified;
        }
        let timeout = (until != Monotonic::NEVER).then(|| clock::timespec(until));
        loop {
            let slept =
                futex::wait_bitset(&self.0, Flags::PRIVATE, key, timeout.as_ref(), NonZeroU32::MAX);
            // The count decides: a wake-up may be meant for another futex that had this address
            // before.
            if self.key() != key {
                return Woken::Notified;
            }
            if slept == Err(Errno::TIMEDOUT) {
                return Woken::TimedOut;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Span;

    #[test]
    fn a_notification_before_the_wait_is_not_lost() {
        let events = EventCount::new();
        let key = events.key();
        events.notify();
        assert_eq!(events.wait(key, Monotonic::NEVER), Woken::Notified);
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_never_early() {
        let events = EventCount::new();
        let until = clock::now() + Span::from_ns(2_000_000);
        assert_eq!(events.wait(events.key(), until), Woken::TimedOut);
        assert!(clock::now() >= until);
        assert_eq!(events.wait(events.key(), Monotonic::ZERO), Woken::TimedOut);
    }

    #[test]
    fn another_thread_ends_a_wait() {
        let events = EventCount::new();
        let key = events.key();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| events.wait(key, Monotonic::NEVER));
            events.notify();
            assert_eq!(waiter.join().expect("the waiting thread ends"), Woken::Notified);
        });
    }
}
