//! Three kinds of nanoseconds that must never be mixed.
//!
//! Integers, checked in the type and not only by the build profile. No floats where decisions are
//! made.

use core::ops::{Add, AddAssign};

/// A point on the run's own time line; zero is the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of wall time: a period, a relative deadline, a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// CPU time consumed or owed. Equals wall time only for a job alone on a CPU at full speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens.
    pub const NEVER: Time = Time(u64::MAX);

    /// The point `ns` nanoseconds after the start of the run.
    pub const fn from_ns(ns: u64) -> Time {
        Time(ns)
    }

    /// Nanoseconds since the start of the run.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Length from `earlier` to `self`.
    ///
    /// # Panics
    /// If `earlier` is later: whoever can see time run backwards has a bug to find.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.checked_sub(earlier.0).expect("time ran backwards"))
    }

    /// The point `span` later, or [`Time::NEVER`] when that lies beyond the end of the clock.
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

macro_rules! amount {
    ($name:ident) => {
        impl $name {
            /// Nothing.
            pub const ZERO: $name = $name(0);

            /// From nanoseconds.
            pub const fn from_ns(ns: u64) -> $name {
                $name(ns)
            }

            /// From microseconds; `None` when that does not fit.
            pub const fn from_us(us: u64) -> Option<$name> {
                match us.checked_mul(1_000) {
                    Some(ns) => Some($name(ns)),
                    None => None,
                }
            }

            /// In nanoseconds.
            pub const fn as_ns(self) -> u64 {
                self.0
            }

            /// Whether this is nothing at all.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }

            /// The sum, or `None` when it does not fit.
            pub const fn checked_add(self, other: $name) -> Option<$name> {
                match self.0.checked_add(other.0) {
                    Some(ns) => Some($name(ns)),
                    None => None,
                }
            }

            /// The difference, or `None` when `other` is larger.
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

/// Writes `ns` in the largest unit that shows it exactly: `10ms`, `1500us`, `1024ns`.
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
    fn what_does_not_fit_is_told_and_never_wraps() {
        assert_eq!(Span::from_us(u64::MAX), None);
        assert_eq!(Span::from_us(3), Some(Span::from_ns(3_000)));
        assert_eq!(Work::from_ns(1).checked_sub(Work::from_ns(2)), None);
        assert_eq!(Work::from_ns(u64::MAX).checked_add(Work::from_ns(1)), None);
        assert_eq!(Time::from_ns(u64::MAX - 1).saturating_add(Span::from_ns(9)), Time::NEVER);
        assert_eq!(Time::from_ns(7).since(Time::from_ns(3)), Span::from_ns(4));
    }
}
