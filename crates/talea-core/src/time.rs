//! Four types of nanoseconds that must never be mixed.
//!
//! The types are integers, and check overflows independent of the build profile. Decisions use no
//! floats.

use core::ops::{Add, AddAssign};

/// A point in run time; zero is the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A point on `CLOCK_MONOTONIC`. [`Time`] is run time only. A run converts between the two with the
/// point at which it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(u64);

/// A length of wall time: a period, a relative deadline, a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// CPU time that was consumed or is owed. Work equals wall time only for a job that runs alone on a
/// CPU at full speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// A time later than any event.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the point `ns` nanoseconds after the start of the run.
    pub const fn from_ns(ns: u64) -> Time {
        Time(ns)
    }

    /// Returns the nanoseconds since the start of the run.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the length from `earlier` to `self`.
    ///
    /// # Panics
    /// If `earlier` is later. Time that runs backwards is an error of the caller.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.checked_sub(earlier.0).expect("time ran backwards"))
    }

    /// Returns the point `span` later, or [`Time::NEVER`] beyond the end of the clock.
    #[must_use]
    pub fn saturating_add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;

    fn add(self, span: Span) -> Time {
        Time(self.0.checked_add(span.0).expect("time overflow"))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Monotonic {
    /// Zero of the clock. This instant has always passed, so a wait until [`Monotonic::ZERO`] is a
    /// poll.
    pub const ZERO: Monotonic = Monotonic(0);
    /// A time later than any event.
    pub const NEVER: Monotonic = Monotonic(u64::MAX);

    /// Returns the point `ns` nanoseconds after the zero of the clock.
    pub const fn from_ns(ns: u64) -> Monotonic {
        Monotonic(ns)
    }

    /// Returns the nanoseconds since the zero of the clock.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the point of the clock at which run time is `at`, in a run that starts at `zero`.
    /// [`Time::NEVER`] gives [`Monotonic::NEVER`].
    #[must_use]
    pub const fn of_run_time(zero: Monotonic, at: Time) -> Monotonic {
        Monotonic(zero.0.saturating_add(at.0))
    }

    /// Returns the run time at this point, in a run that starts at `zero`: [`Time::ZERO`] before
    /// the start.
    #[must_use]
    pub const fn run_time(self, zero: Monotonic) -> Time {
        Time(self.0.saturating_sub(zero.0))
    }

    /// Returns the length from `earlier` to `self`.
    ///
    /// # Panics
    /// If `earlier` is later. The clock never runs backwards, so this is an error of the caller.
    pub fn since(self, earlier: Monotonic) -> Span {
        Span(self.0.checked_sub(earlier.0).expect("time ran backwards"))
    }

    /// Returns the length from `earlier` to `self`, or zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Monotonic) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Returns the point `span` later; `None` beyond the end of the clock.
    #[must_use]
    pub fn checked_add(self, span: Span) -> Option<Monotonic> {
        self.0.checked_add(span.0).map(Monotonic)
    }

    /// Returns the point `span` later, or [`Monotonic::NEVER`] beyond the end of the clock.
    #[must_use]
    pub const fn saturating_add(self, span: Span) -> Monotonic {
        Monotonic(self.0.saturating_add(span.0))
    }

    /// Returns the point `span` earlier, or [`Monotonic::ZERO`] before the zero of the clock.
    #[must_use]
    pub const fn saturating_sub(self, span: Span) -> Monotonic {
        Monotonic(self.0.saturating_sub(span.0))
    }
}

impl Add<Span> for Monotonic {
    type Output = Monotonic;

    fn add(self, span: Span) -> Monotonic {
        self.checked_add(span).expect("time overflow")
    }
}

impl AddAssign<Span> for Monotonic {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

macro_rules! amount {
    ($name:ident) => {
        impl $name {
            /// Zero nanoseconds.
            pub const ZERO: $name = $name(0);

            /// Converts from nanoseconds.
            pub const fn from_ns(ns: u64) -> $name {
                $name(ns)
            }

            /// Converts from microseconds; `None` on overflow.
            pub const fn from_us(us: u64) -> Option<$name> {
                match us.checked_mul(1_000) {
                    Some(ns) => Some($name(ns)),
                    None => None,
                }
            }

            /// Returns the value in nanoseconds.
            pub const fn as_ns(self) -> u64 {
                self.0
            }

            /// Whether the value is zero.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }

            /// Returns the sum, or `None` on overflow.
            pub const fn checked_add(self, other: $name) -> Option<$name> {
                match self.0.checked_add(other.0) {
                    Some(ns) => Some($name(ns)),
                    None => None,
                }
            }

            /// Returns the difference, or `None` if `other` is larger.
            pub const fn checked_sub(self, other: $name) -> Option<$name> {
                match self.0.checked_sub(other.0) {
                    Some(ns) => Some($name(ns)),
                    None => None,
                }
            }
        }

        impl Add for $name {
            type Output = $name;

            fn add(self, other: $name) -> $name {
                self.checked_add(other).expect(concat!(stringify!($name), " overflow"))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                *self = *self + other;
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write_ns(f, self.0)
            }
        }
    };
}

amount!(Span);
amount!(Work);

/// Writes `ns` in the largest exact unit: `10ms`, `1500us`, `1024ns`.
fn write_ns(f: &mut core::fmt::Formatter<'_>, ns: u64) -> core::fmt::Result {
    match ns {
        0 => f.write_str("0"),
        _ if ns.is_multiple_of(1_000_000_000) => write!(f, "{}s", ns / 1_000_000_000),
        _ if ns.is_multiple_of(1_000_000) => write!(f, "{}ms", ns / 1_000_000),
        _ if ns.is_multiple_of(1_000) => write!(f, "{}us", ns / 1_000),
        _ => write!(f, "{ns}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn lengths_print_in_the_largest_unit_that_is_exact() {
        for (ns, text) in [
            (0, "0"),
            (1_024, "1024ns"),
            (1_500_000, "1500us"),
            (10_000_000, "10ms"),
            (2_000_000_000, "2s"),
            (u64::MAX, "18446744073709551615ns"),
        ] {
            assert_eq!(format!("{}", Span::from_ns(ns)), text);
            assert_eq!(format!("{}", Work::from_ns(ns)), text);
        }
    }

    #[test]
    fn overflow_is_reported_and_never_wraps() {
        assert_eq!(Span::from_us(u64::MAX), None);
        assert_eq!(Span::from_us(3), Some(Span::from_ns(3_000)));
        assert_eq!(Work::from_ns(1).checked_sub(Work::from_ns(2)), None);
        assert_eq!(Work::from_ns(u64::MAX).checked_add(Work::from_ns(1)), None);
        assert_eq!(Time::from_ns(u64::MAX - 1).saturating_add(Span::from_ns(9)), Time::NEVER);
        assert_eq!(Time::from_ns(7).since(Time::from_ns(3)), Span::from_ns(4));
    }

    #[test]
    fn run_time_and_the_monotonic_clock_are_converted_with_the_start_of_the_run() {
        let zero = Monotonic::from_ns(100);
        assert_eq!(Monotonic::of_run_time(zero, Time::from_ns(7)), Monotonic::from_ns(107));
        assert_eq!(Monotonic::of_run_time(zero, Time::NEVER), Monotonic::NEVER);
        assert_eq!(Monotonic::from_ns(107).run_time(zero), Time::from_ns(7));
        assert_eq!(Monotonic::from_ns(99).run_time(zero), Time::ZERO);
        assert_eq!(zero.saturating_since(Monotonic::from_ns(101)), Span::ZERO);
        assert_eq!(zero.saturating_sub(Span::from_ns(101)), Monotonic::ZERO);
        assert_eq!(Monotonic::NEVER.checked_add(Span::from_ns(1)), None);
        assert_eq!(zero + Span::from_ns(1), Monotonic::from_ns(101));
    }
}
