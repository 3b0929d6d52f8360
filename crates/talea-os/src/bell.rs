//! A bell beside a bed: one wait for timers and messages alike.
//!
//! Model: a futex word that counts how often it has rung. Whoever sleeps first notes the count
//! ([`Bell::heard`]), then looks for messages, then waits for another count ([`Bell::wait`]): a
//! message that came between has changed the count, so nothing is slept over. The time-out is
//! absolute on `CLOCK_MONOTONIC` and is the scheduler's own timer: unlike timerfd and POSIX timers
//! it does not starve behind FIFO threads on PREEMPT_RT.

use crate::clock;
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use talea_core::Time;

/// A bell for one sleeper; anybody may ring it.
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The bell has rung.
    Rung,
    /// The time has come.
    Due,
}

impl Bell {
    /// One that has never rung.
    pub const fn new() -> Bell {
        Bell(AtomicU32::new(0))
    }

    /// How often it has rung. What its ringers did before is visible to the caller.
    pub fn heard(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Wakes the sleeper, or keeps it from falling asleep over this.
    pub fn ring(&self) {
        self.count();
        self.rouse();
    }

    /// The first half of [`ring`](Bell::ring): whoever is awake hears it. All there is to do where
    /// the sleeper itself does it.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// The second: wakes whoever had fallen asleep before.
    pub fn rouse(&self) {
        // Only a misaligned word could make this fail.
        let _ = futex::wake(&self.0, Flags::PRIVATE, 1);
    }

    /// Sleeps until it rings beyond `heard` or until `until`; never wakes early for another reason.
    pub fn wait(&self, heard: u32, until: Time) -> Woken {
        // Rung already: the kernel need not be asked.
        if self.heard() != heard {
            return Woken::Rung;
        }
        let timeout = (until != Time::NEVER).then(|| clock::timespec(until));
        loop {
            let slept = futex::wait_bitset(
                &self.0,
                Flags::PRIVATE,
                heard,
                timeout.as_ref(),
                NonZeroU32::MAX,
            );
            // The count decides: a wake-up may be meant for a word that lay here before.
            if self.heard() != heard {
                return Woken::Rung;
            }
            if slept == Err(Errno::TIMEDOUT) {
                return Woken::Due;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Span;

    #[test]
    fn what_rang_before_the_wait_is_not_slept_over() {
        let bell = Bell::new();
        let heard = bell.heard();
        bell.ring();
        assert_eq!(bell.wait(heard, Time::NEVER), Woken::Rung);
    }

    #[test]
    fn the_time_comes_and_never_early() {
        let bell = Bell::new();
        let until = clock::now() + Span::from_ns(2_000_000);
        assert_eq!(bell.wait(bell.heard(), until), Woken::Due);
        assert!(clock::now() >= until);
        assert_eq!(bell.wait(bell.heard(), Time::ZERO), Woken::Due);
    }

    #[test]
    fn a_sleeper_hears_another_thread() {
        let bell = Bell::new();
        let heard = bell.heard();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| bell.wait(heard, Time::NEVER));
            bell.ring();
            assert_eq!(sleeper.join().expect("it wakes"), Woken::Rung);
        });
    }
}
