//! Periodic wake-ups.
//!
//! Model: job k is released at start + k·T on `CLOCK_MONOTONIC`, forever. A wait is an absolute
//! sleep until the next release, and signals do not shorten the sleep. The first wait ends one
//! period after the start, not two.
//!
//! A wait that starts after its release has passed is an *overrun* and returns at once.
//! [`OverrunPolicy`] selects what follows. There is no drift, because releases are computed from
//! the start, never from a wake-up. Only [`OverrunPolicy::Shift`] moves the start, by the time that
//! a job was late.

use std::time::Duration;
use talea_core::mutate;
use talea_core::{Monotonic, Span};
use talea_os::clock;

/// Treatment of periods that passed before an earlier job was complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverrunPolicy {
    /// Each period still gets its job, one right after the other, until the task has caught up. The
    /// task loses no job, so the policy suits work that must be done in every period, such as
    /// blocks of sound.
    #[default]
    CatchUp,
    /// The task skips and counts periods that have passed entirely. The policy suits work on the
    /// newest data.
    Skip,
    /// The late release and all later releases move to the end of the late job, so that two
    /// releases are at least a period apart. The policy suits work that must not come in bursts.
    Shift,
}

/// Release of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Nominal release time on `CLOCK_MONOTONIC`: start + index·T.
    pub release: Monotonic,
    /// Number of the release; 1 is the first after the start.
    pub index: u64,
    /// Time at which the wait for the release started.
    pub began: Monotonic,
    /// Whether the release had passed when the wait started.
    pub overrun: bool,
    /// Number of releases skipped just before this release.
    pub skipped: u64,
    /// Time by which this release and all later ones were moved just now.
    pub shifted: Span,
}

/// Releases of one periodic task.
#[derive(Clone, Debug)]
pub struct Periodic {
    start: Monotonic,
    period: Span,
    overrun_policy: OverrunPolicy,
    index: u64,
    overruns: u64,
    skipped: u64,
    shifted: Span,
}

impl Periodic {
    /// Starts the releases now.
    ///
    /// # Panics
    /// If `period` is zero or longer than 584 years.
    pub fn start(period: Duration) -> Periodic {
        Periodic::start_at(clock::now(), period)
    }

    /// Starts the releases at a given time, to keep several tasks in phase.
    ///
    /// # Panics
    /// If `period` is zero or longer than 584 years.
    pub fn start_at(start: Monotonic, period: Duration) -> Periodic {
        let period = u64::try_from(period.as_nanos()).expect("a period shorter than 584 years");
        assert!(period > 0, "the period is zero; it must be positive");
        let period = Span::from_ns(period);
        Periodic {
            start,
            period,
            overrun_policy: OverrunPolicy::CatchUp,
            index: 0,
            overruns: 0,
            skipped: 0,
            shifted: Span::ZERO,
        }
    }

    /// Sets the number of the last release to `index`.
    #[must_use]
    pub fn after(mut self, index: u64) -> Periodic {
        self.index = index;
        self
    }

    /// Selects the treatment of periods that have passed.
    #[must_use]
    pub fn overrun_policy(mut self, policy: OverrunPolicy) -> Periodic {
        self.overrun_policy = policy;
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

    /// Returns the release at which a wait that starts at `now` ends.
    fn advance(&mut self, now: Monotonic) -> Activation {
        let next = mutate!(
            "client-period",
            self.index.saturating_add(1),
            self.index.max(1).saturating_add(1)
        );
        let passed = now.saturating_since(self.start).as_ns() / self.period.as_ns();
        // A release at exactly `now` has not passed: the task is not late for it.
        let overrun = self.release(next) < now;
        let index = match self.overrun_policy {
            OverrunPolicy::Skip if overrun => passed.max(next),
            OverrunPolicy::Skip | OverrunPolicy::CatchUp | OverrunPolicy::Shift => next,
        };
        let shifted = match self.overrun_policy {
            OverrunPolicy::Shift if overrun => now.since(self.release(next)),
            _ => Span::ZERO,
        };
        self.start = self.start.saturating_add(shifted);
        self.shifted += shifted;
        let skipped = index - next;
        self.index = index;
        self.overruns += u64::from(overrun);
        self.skipped += skipped;
        Activation { release: self.release(index), index, began: now, overrun, skipped, shifted }
    }

    fn release(&self, index: u64) -> Monotonic {
        self.start.saturating_add(Span::from_ns(self.period.as_ns().saturating_mul(index)))
    }

    /// Returns the start time.
    pub fn started(&self) -> Monotonic {
        self.start
    }

    /// Returns the period.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period.as_ns())
    }

    /// Returns the number of waits that started after their release had passed.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Returns the number of releases skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the time by which the releases have moved.
    pub fn shifted(&self) -> Span {
        self.shifted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(ms * 1_000_000)
    }

    fn every_ten_ms(policy: OverrunPolicy) -> Periodic {
        Periodic::start_at(at(100), Duration::from_millis(10)).overrun_policy(policy)
    }

    #[test]
    fn retif_w3_the_first_wait_does_not_skip_a_period() {
        let mut periodic = every_ten_ms(OverrunPolicy::CatchUp);
        let first = periodic.advance(at(102));
        assert_eq!(
            first,
            Activation {
                release: at(110),
                index: 1,
                began: at(102),
                overrun: false,
                skipped: 0,
                shifted: Span::ZERO
            }
        );
        assert_eq!(periodic.advance(at(113)).release, at(120));
    }

    #[test]
    fn a_release_at_this_very_instant_is_not_late() {
        let mut periodic = every_ten_ms(OverrunPolicy::Skip);
        let first = periodic.advance(at(110));
        assert_eq!((first.release, first.overrun), (at(110), false));
    }

    #[test]
    fn catching_up_gives_every_period_its_job() {
        let mut periodic = every_ten_ms(OverrunPolicy::CatchUp);
        let releases: Vec<_> = (0..4).map(|_| periodic.advance(at(135)).release).collect();
        assert_eq!(releases, [at(110), at(120), at(130), at(140)]);
        assert_eq!((periodic.overruns(), periodic.skipped()), (3, 0));
    }

    #[test]
    fn skipping_omits_periods_that_have_passed_entirely() {
        let mut periodic = every_ten_ms(OverrunPolicy::Skip);
        let overrun = periodic.advance(at(135));
        assert_eq!(
            overrun,
            Activation {
                release: at(130),
                index: 3,
                began: at(135),
                overrun: true,
                skipped: 2,
                shifted: Span::ZERO
            }
        );
        let next = periodic.advance(at(136));
        assert_eq!(
            next,
            Activation {
                release: at(140),
                index: 4,
                began: at(136),
                overrun: false,
                skipped: 0,
                shifted: Span::ZERO
            }
        );
        assert_eq!((periodic.overruns(), periodic.skipped()), (1, 2));
    }

    #[test]
    fn shifting_keeps_releases_a_period_apart() {
        let mut periodic = every_ten_ms(OverrunPolicy::Shift);
        let late = periodic.advance(at(135));
        assert_eq!((late.release, late.index, late.shifted.as_ns()), (at(135), 1, 25_000_000));
        let next = periodic.advance(at(136));
        assert_eq!((next.release, next.overrun), (at(145), false));
        assert_eq!((periodic.overruns(), periodic.shifted().as_ns()), (1, 25_000_000));
    }

    #[test]
    fn a_wait_before_the_start_sleeps_to_the_first_release() {
        let mut periodic = every_ten_ms(OverrunPolicy::Skip);
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
