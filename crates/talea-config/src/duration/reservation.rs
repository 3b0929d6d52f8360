//! Reservations in the one-word grammar of `rtla` and `cyclictest`: `d:2ms:10ms`, `f:50`.
//!
//! Linux, Documentation/tools/rtla/common_options.rst, option `-P`: `o:prio`, `r:prio`, `f:prio`
//! and `d:runtime:period`. Talea differs on purpose: a duration needs its unit, while rtla reads
//! nanoseconds.

use super::{SpanError, parse_span};
use std::fmt;
use talea_core::{Params, Priority, Span, Work};

/// Scheduling class that one word of the grammar requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// `o:nice`: an ordinary thread, without a reservation.
    Ordinary {
        /// Nice value, −20 (favoured) to 19.
        nice: i8,
    },
    /// `r:prio`, `f:prio`, `d:runtime:period`: parameters of a reservation, with a plugin kind.
    RealTime {
        /// Parameters to declare.
        params: Params,
        /// Word of the plugin kind that serves the reservation: `rr`, `fp` or `edf`.
        kind: &'static str,
    },
}

/// Reason why a reservation could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservationError {
    /// The text has none of the four forms.
    Form,
    /// The priority is not in 1..=99.
    Priority(String),
    /// The nice value is not in −20..=19.
    Nice(String),
    /// The runtime or the period is no valid duration.
    Duration(&'static str, SpanError),
    /// The runtime or the period is zero.
    Zero(&'static str),
    /// The runtime exceeds the period.
    Overfull(Work, Span),
}

impl fmt::Display for ReservationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReservationError::Form => f.write_str(
                "write d:RUNTIME:PERIOD (such as d:2ms:10ms), f:PRIORITY, r:PRIORITY or o:NICE",
            ),
            ReservationError::Priority(given) => {
                write!(
                    f,
                    "\"{given}\" is not a real-time priority; those are 1 (least) to 99 (most urgent)"
                )
            }
            ReservationError::Nice(given) => {
                write!(f, "\"{given}\" is not a nice value; those are -20 (favoured) to 19")
            }
            ReservationError::Duration(which, why) => write!(f, "the {which}: {why}"),
            ReservationError::Zero(which) => write!(f, "the {which} must be longer than zero"),
            ReservationError::Overfull(runtime, period) => {
                write!(
                    f,
                    "a runtime of {runtime} does not fit in a period of {period}; write the runtime first"
                )
            }
        }
    }
}

impl std::error::Error for ReservationError {}

/// Reads `o:nice`, `r:prio`, `f:prio` or `d:runtime:period`.
///
/// # Errors
/// The fault of the text; its message states a remedy.
pub fn parse_reservation(text: &str) -> Result<Reservation, ReservationError> {
    let mut parts = text.split(':');
    let (class, first, second, rest) = (parts.next(), parts.next(), parts.next(), parts.next());
    match (class, first, second, rest) {
        (Some("o"), Some(nice), None, None) => match nice.parse() {
            Ok(nice @ -20..=19) => Ok(Reservation::Ordinary { nice }),
            _ => Err(ReservationError::Nice(nice.chars().take(40).collect())),
        },
        (Some("r"), Some(priority), None, None) => fixed(priority, "rr"),
        (Some("f"), Some(priority), None, None) => fixed(priority, "fp"),
        (Some("d"), Some(runtime), Some(period), None) => {
            let read = |which, text| match parse_span(text) {
                Ok(span) if span.is_zero() => Err(ReservationError::Zero(which)),
                Ok(span) => Ok(span),
                Err(why) => Err(ReservationError::Duration(which, why)),
            };
            let (runtime, period) =
                (Work::from_ns(read("runtime", runtime)?.as_ns()), read("period", period)?);
            if runtime.as_ns() > period.as_ns() {
                return Err(ReservationError::Overfull(runtime, period));
            }
            let params =
                Params { runtime: Some(runtime), period: Some(period), ..Params::default() };
            Ok(Reservation::RealTime { params, kind: "edf" })
        }
        _ => Err(ReservationError::Form),
    }
}

fn fixed(priority: &str, kind: &'static str) -> Result<Reservation, ReservationError> {
    match priority.parse() {
        Ok(level @ 1..=99) => {
            let params = Params { priority: Some(Priority(level)), ..Params::default() };
            Ok(Reservation::RealTime { params, kind })
        }
        _ => Err(ReservationError::Priority(priority.chars().take(40).collect())),
    }
}
