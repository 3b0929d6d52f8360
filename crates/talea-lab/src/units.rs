//! Units of time, in nanoseconds.

#![allow(clippy::cast_precision_loss, reason = "shown with a few digits")]

use talea_core::Span;

/// One microsecond.
pub(crate) const US: u64 = 1_000;
/// One millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// Converts nanoseconds to microseconds.
pub(crate) fn us(ns: u64) -> f64 {
    ns as f64 / US as f64
}

/// Converts a span to milliseconds.
pub(crate) fn ms(span: Span) -> f64 {
    span.as_ns() as f64 / MS as f64
}
