//! The share of a CPU that a reservation takes, as a ratio with directed rounding.
//!
//! A charge is the fixed-point number ⌈Q·2^64 / T⌉. The ledger computes the number when it makes a
//! grant, and later releases the same number. An empty ledger therefore sums to exactly zero.
//!
//! Rounding up makes the ledger err on the safe side. A caller that needs a verdict at the exact
//! limit (U = 1 must pass) computes it with exact ratios, off the hot path.

use crate::time::{Span, Work};
use core::fmt;

/// Share of CPU time in units of 2^-64; one whole CPU is [`Charge::ONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Charge(u128);

impl Charge {
    /// No CPU time at all.
    pub const ZERO: Charge = Charge(0);
    /// One whole CPU.
    pub const ONE: Charge = Charge(1 << 64);

    /// Returns `⌈runtime·2^64 / span⌉`. The result never overflows: the largest value is below
    /// 2^128.
    ///
    /// # Panics
    /// If `span` is zero.
    #[allow(clippy::manual_div_ceil)] // It divides 128-bit numbers twice, on every request.
    pub const fn new(runtime: Work, span: Span) -> Charge {
        assert!(!span.is_zero(), "a share of an empty span");
        // `+ (span - 1)` cannot overflow, and costs one division where `div_ceil` costs two.
        let span = span.as_ns() as u128;
        Charge((((runtime.as_ns() as u128) << 64) + (span - 1)) / span)
    }

    /// Returns `⌈numerator·2^64 / denominator⌉` for a share written as a fraction.
    ///
    /// # Panics
    /// If `denominator` is zero.
    pub const fn ratio(numerator: u64, denominator: u64) -> Charge {
        Charge::new(Work::from_ns(numerator), Span::from_ns(denominator))
    }

    /// Builds a charge from units of 2^-64.
    pub const fn from_bits(bits: u128) -> Charge {
        Charge(bits)
    }

    /// Returns the charge in units of 2^-64.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// Returns the sum, saturated. Every caller refuses a sum beyond 2^64 CPUs, and none stores it.
    #[must_use]
    pub const fn saturating_add(self, other: Charge) -> Charge {
        Charge(self.0.saturating_add(other.0))
    }

    /// Returns the difference, or `None` if `other` is larger.
    pub const fn checked_sub(self, other: Charge) -> Option<Charge> {
        match self.0.checked_sub(other.0) {
            Some(bits) => Some(Charge(bits)),
            None => None,
        }
    }

    /// Returns the difference, or zero if `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Charge) -> Charge {
        Charge(self.0.saturating_sub(other.0))
    }

    /// Returns this share multiplied by `count`, saturated.
    #[must_use]
    pub const fn times(self, count: u32) -> Charge {
        Charge(self.0.saturating_mul(count as u128))
    }

    /// Returns the longest runtime per `span` whose charge does not exceed this charge.
    ///
    /// The result is `⌊charge·span / 2^64⌋`, at most `u64::MAX` nanoseconds.
    pub fn of(self, span: Span) -> Work {
        // Split to avoid overflow: bits = high·2^64 + low, each times a 64-bit span.
        let (high, low) = (self.0 >> 64, self.0 & u128::from(u64::MAX));
        let span = u128::from(span.as_ns());
        let whole = high.saturating_mul(span);
        let part = (low * span) >> 64;
        Work::from_ns(u64::try_from(whole.saturating_add(part)).unwrap_or(u64::MAX))
    }

    /// Returns the share in millionths of a CPU, rounded up: at least 1 for a charge above zero.
    ///
    /// The value is for display and for the wire, never for decisions. The function hides the
    /// rounding errors of a sum of up to a million charges, so a tenth is 100,000.
    pub fn ppm(self) -> u64 {
        let bits = self.0.saturating_sub(ROUNDING);
        let whole = (bits >> 64).saturating_mul(MILLION);
        let part = ((bits & u128::from(u64::MAX)) * MILLION).div_ceil(1 << 64);
        let millionths = u64::try_from(whole.saturating_add(part)).unwrap_or(u64::MAX);
        if self.0 == 0 { 0 } else { millionths.max(1) }
    }

    /// Returns the share in millionths of a CPU, rounded down.
    ///
    /// The value is for free capacity, so that the display never exceeds what is available. The
    /// function hides the rounding errors of a sum of up to a million charges.
    pub fn ppm_down(self) -> u64 {
        let bits = self.0.saturating_add(ROUNDING);
        let whole = (bits >> 64).saturating_mul(MILLION);
        let part = ((bits & u128::from(u64::MAX)) * MILLION) >> 64;
        u64::try_from(whole.saturating_add(part)).unwrap_or(u64::MAX)
    }
}

const MILLION: u128 = 1_000_000;
/// Largest rounding error that the display hides: more than a million errors of one unit each, and
/// far less than a millionth of a CPU.
const ROUNDING: u128 = 1 << 20;

impl fmt::Display for Charge {
    /// Writes the share as a percentage of one CPU with two digits, rounded to the nearest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = (self.0 >> 64).saturating_mul(10_000);
        let part = ((self.0 & u128::from(u64::MAX)) * 10_000 + (1 << 63)) >> 64;
        let hundredths = whole.saturating_add(part);
        write!(f, "{}.{:02}%", hundredths / 100, hundredths % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_charge_errs_by_less_than_one_unit_and_only_upwards() {
        for (runtime, span) in
            [(1, 3), (2, 3), (1, 1), (7, 5), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)]
        {
            let charge = Charge::ratio(runtime, span).bits();
            let exact_times_span = u128::from(runtime) << 64;
            match charge.checked_mul(u128::from(span)) {
                Some(product) => {
                    assert!(
                        (exact_times_span..exact_times_span + u128::from(span)).contains(&product)
                    );
                }
                None => assert_eq!(span, u64::MAX, "{runtime}/{span}"),
            }
        }
    }

    #[test]
    fn the_rest_of_a_cpu_is_a_runtime_that_fits() {
        for (numerator, denominator, span) in
            [(1, 3, 10), (9, 10, 1_000_000), (1, 7, 12_345_678), (19, 20, u64::MAX)]
        {
            let span = Span::from_ns(span);
            let free = Charge::ratio(numerator, denominator);
            let fits = free.of(span);
            assert!(Charge::new(fits, span) <= free.saturating_add(Charge::from_bits(1)));
            let more = Work::from_ns(fits.as_ns() + 1);
            assert!(Charge::new(more, span) > free, "{numerator}/{denominator} of {span}");
        }
    }

    #[test]
    fn percentages_are_rounded_to_the_nearest_hundredth() {
        for (numerator, denominator, text) in [
            (1, 5, "20.00%"),
            (1, 3, "33.33%"),
            (2, 3, "66.67%"),
            (0, 1, "0.00%"),
            (5, 2, "250.00%"),
        ] {
            assert_eq!(format!("{}", Charge::ratio(numerator, denominator)), text);
        }
    }
}
