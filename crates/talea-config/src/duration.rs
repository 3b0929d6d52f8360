//! Parser of durations with a unit: `10ms`, `1.5ms`, `100us`.
//!
//! The parser reads a value exactly to the nanosecond, or refuses the text. It refuses a number
//! without a unit, because some tools of the field read microseconds and others nanoseconds.

pub mod reservation;
#[cfg(test)]
mod tests;

pub use reservation::{Reservation, ReservationError, parse_reservation};

use std::fmt;
use talea_core::Span;

/// Units: name, length in nanoseconds, and number of decimals that stay exact.
const UNITS: [(&str, u64, usize); 7] = [
    ("ns", 1, 0),
    ("us", 1_000, 3),
    ("ms", 1_000_000, 6),
    ("s", 1_000_000_000, 9),
    ("min", 60_000_000_000, 9),
    ("h", 3_600_000_000_000, 9),
    ("d", 86_400_000_000_000, 9),
];

/// Reason why a duration could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanError {
    /// The text is empty.
    Empty,
    /// The number, which is the value of the variant, has no unit.
    NoUnit(String),
    /// The unit is unknown. The values are the number and the unit.
    UnknownUnit(String, String),
    /// The text contains blanks. The value is the text without blanks.
    Blank(String),
    /// The text has no number, or the number is not digits with at most one dot between them.
    Syntax,
    /// The text starts with a minus sign.
    Negative,
    /// The duration is finer than a nanosecond.
    TooFine,
    /// The duration exceeds 2^64 - 1 ns, about 584 years.
    TooLong,
}

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpanError::Empty => f.write_str("the duration is empty; write it like \"10ms\""),
            SpanError::NoUnit(number) => {
                write!(
                    f,
                    "{number} has no unit; write \"{number}us\" or \"{number}ms\" (units: ns, us, ms, s, min, h, d)"
                )
            }
            SpanError::UnknownUnit(number, unit) => {
                // Capitals are the slip that has an obvious meaning.
                match UNITS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(unit)) {
                    Some((name, ..)) => {
                        write!(f, "units are small letters; write \"{number}{name}\"")
                    }
                    None => write!(
                        f,
                        "\"{unit}\" is not a unit; the units are ns, us, ms, s, min, h and d"
                    ),
                }
            }
            SpanError::Blank(tight) => {
                write!(f, "there are blanks in the duration; write \"{tight}\"")
            }
            SpanError::Syntax => {
                f.write_str("it is not a duration; write it like \"10ms\" or \"1.5ms\"")
            }
            SpanError::Negative => f.write_str("a duration can't be negative"),
            SpanError::TooFine => {
                f.write_str("it is finer than a nanosecond, which is the finest that is kept")
            }
            SpanError::TooLong => f.write_str("it is longer than 584 years"),
        }
    }
}

impl std::error::Error for SpanError {}

/// Reads a duration such as `10ms`, `1.5ms`, `100us`, `2s` or `1024ns`. The text `0` is the only
/// number that needs no unit.
///
/// # Errors
/// The fault of the text; its message states a remedy.
pub fn parse_span(text: &str) -> Result<Span, SpanError> {
    match text {
        "" => return Err(SpanError::Empty),
        "0" => return Ok(Span::ZERO),
        _ => {}
    }
    if text.starts_with('-') {
        return Err(SpanError::Negative);
    }
    if text.contains(char::is_whitespace) {
        let tight: String = text.chars().filter(|c| !c.is_whitespace()).take(40).collect();
        return Err(if parse_span(&tight).is_ok() {
            SpanError::Blank(tight)
        } else {
            SpanError::Syntax
        });
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(SpanError::Syntax);
    }
    // Both Unicode spellings of the micro sign are what keyboards give.
    let name = if matches!(unit, "µs" | "μs") { "us" } else { unit };
    let brief = |s: &str| -> String { s.chars().take(40).collect() };
    let Some(&(_, scale, decimals)) = UNITS.iter().find(|(known, ..)| *known == name) else {
        return Err(match unit {
            "" => SpanError::NoUnit(brief(number)),
            _ if !unit.chars().all(char::is_alphabetic) => SpanError::Syntax,
            _ => SpanError::UnknownUnit(brief(number), brief(unit)),
        });
    };
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > decimals {
        return Err(SpanError::TooFine);
    }
    let value = |digits: &str| -> Result<u64, SpanError> {
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() { Ok(0) } else { digits.parse().map_err(|_| SpanError::TooLong) }
    };
    let part = u128::from(value(fraction)?) * u128::from(scale);
    let part = (part / 10_u128.pow(fraction.len() as u32)) as u64;
    let ns = value(whole)?.checked_mul(scale).and_then(|ns| ns.checked_add(part));
    ns.map(Span::from_ns).ok_or(SpanError::TooLong)
}
