//! Waking up once a period.
//!
//! Model: job k is released at start + k·T on `CLOCK_MONOTONIC`, for ever; a wait sleeps to the
//! next release, absolute, and signals do not shorten it. The first wait ends one period after the
//! start, not two.
//!
//! A wait that is called after its release has passed is an *overrun*: it returns at once. What
//! follows is a matter of [`Late`]. Nothing here drifts: releases are computed from the start,
//! never from a wake-up.

use std::time::Duration;
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_os::clock;

/// What happens to periods that have passed before the job of an earlier one was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// Each still gets its job, one right after the other, until the task has caught up. Nothing is
    /// lost: right for work that must be done as often as there are periods, such as blocks of
    /// sound.
    #[default]
    CatchUp,
    /// Those that have passed as a whole are left out and counted: right for work on the newest
    /// data.
    Skip,
}

/// One release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Its nominal time on `CLOCK_MONOTONIC`: start + index·T.
    pub release: Time,
    /// Its number; 1 is the first after the start.
    pub index: u64,
    /// When the wait began.
    pub began: Time,
    /// Whether it had passed when the wait began.
    pub overrun: bool,
    /// How many releases were left out just before it.
    pub skipped: u64,
}

/// The releases of one periodic task.
#[derive(Clone, Debug)]
pub struct Periodic {
    start: Time,
    period: Span,
    late: Late,
    index: u64,
    overruns: u64,
    skipped: u64,
}

impl Periodic {
    /// Starts now.
    ///
    /// # Panics
    /// If `period` is zero or longer than 584 years.
    pub fn start(period: Duration) -> Periodic {
        Periodic::start_at(clock::now(), period)
    }

    /// Starts at a point on `CLOCK_MONOTONIC`, to keep several tasks in phase.
    ///
    /// # Panics
    /// If `period` is zero or longer than 584 years.
    pub fn start_at(start: Time, period: Duration) -> Periodic {
        let period = u64::try_from(period.as_nanos()).expect("a period shorter than 584 years");
        assert!(period > 0, "a period of nothing");
        let period = Span::from_ns(period);
        Periodic { start, period, late: Late::CatchUp, index: 0, overruns: 0, skipped: 0 }
    }

    /// Goes on as if release number `index` had been the last.
    #[must_use]
    pub fn after(mut self, index: u64) -> Periodic {
        self.index = index;
        self
    }

    /// Changes what happens to periods that have passed.
    #[must_use]
    pub fn late(mut self, late: Late) -> Periodic {
        self.late = late;
        self
    }

    /// Sleeps until the next release.
    pub fn wait_period(&mut self) -> Activation {
        let activation = self.advance(clock::now());
        if !activation.overrun {
            clock::sleep_until(activation.release);
        }
        activation
    }

    /// The release that a wait beginning at `now` ends with.
    fn advance(&mut self, now: Time) -> Activation {
        let next = mutate!(
            "client-period",
            self.index.saturating_add(1),
            self.index.max(1).saturating_add(1)
        );
        let passed = now.as_ns().saturating_sub(self.start.as_ns()) / self.period.as_ns();
        // A release at exactly `now` has come but not passed: nobody is late for it.
        let overrun = self.release(next) < now;
        let index = match self.late {
            Late::Skip if overrun => passed.max(next),
            Late::Skip | Late::CatchUp => next,
        };
        let skipped = index - next;
        self.index = index;
        self.overruns += u64::from(overrun);
        self.skipped += skipped;
        Activation { release: self.release(index), index, began: now, overrun, skipped }
    }

    fn release(&self, index: u64) -> Time {
        Time::from_ns(self.start.as_ns().saturating_add(self.period.as_ns().saturating_mul(index)))
    }

    /// When it started, on `CLOCK_MONOTONIC`.
    pub fn started(&self) -> Time {
        self.start
    }

    /// The period.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period.as_ns())
    }

    /// Waits that began after their release had passed.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Releases that were left out.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    fn every_ten_ms(late: Late) -> Periodic {
        Periodic::start_at(at(100), Duration::from_millis(10)).late(late)
    }

    #[test]
    fn retif_w3_the_first_wait_does_not_skip_a_period() {
        let mut periodic = every_ten_ms(Late::CatchUp);
        let first = periodic.advance(at(102));
        assert_eq!(
            first,
            Activation { release: at(110), index: 1, began: at(102), overrun: false, skipped: 0 }
        );
        assert_eq!(periodic.advance(at(113)).release, at(120));
    }

    #[test]
    fn a_release_at_this_very_instant_is_not_late() {
        let mut periodic = every_ten_ms(Late::Skip);
        let first = periodic.advance(at(110));
        assert_eq!((first.release, first.overrun), (at(110), false));
    }

    #[test]
    fn catching_up_gives_every_period_its_job() {
        let mut periodic = every_ten_ms(Late::CatchUp);
        let releases: Vec<_> = (0..4).map(|_| periodic.advance(at(135)).release).collect();
        assert_eq!(releases, [at(110), at(120), at(130), at(140)]);
        assert_eq!((periodic.overruns(), periodic.skipped()), (3, 0));
    }

    #[test]
    fn skipping_leaves_out_what_has_passed_as_a_whole() {
        let mut periodic = every_ten_ms(Late::Skip);
        let late = periodic.advance(at(135));
        assert_eq!(
            late,
            Activation { release: at(130), index: 3, began: at(135), overrun: true, skipped: 2 }
        );
        let next = periodic.advance(at(136));
        assert_eq!(
            next,
            Activation { release: at(140), index: 4, began: at(136), overrun: false, skipped: 0 }
        );
        assert_eq!((periodic.overruns(), periodic.skipped()), (1, 2));
    }

    #[test]
    fn a_wait_before_the_start_sleeps_to_the_first_release() {
        let mut periodic = every_ten_ms(Late::Skip);
        assert_eq!(periodic.advance(at(5)).release, at(110));
    }

    #[test]
    fn retif_w3_waits_are_absolute_on_the_monotonic_clock() {
        let start = clock::now();
        let mut periodic = Periodic::start_at(start, Duration::from_millis(2));
        for index in 1..=5 {
            let activation = periodic.wait_period();
            assert_eq!(activation.release, start.saturating_add(Span::from_ns(index * 2_000_000)));
            assert!(clock::now() >= activation.release, "woken before the release");
        }
    }
}
