//! Logarithm and exponential from the four basic operations, bit-identical on every platform.
//!
//! The functions of different platforms may differ. The functions of this module reduce their
//! argument by powers of two and sum a series. The error is below 4e-16 relative to the result
//! (absolute for the logarithm near 1). The tests compare with the platform's functions.

/// High part of the natural logarithm of 2, whose small multiples are exact.
const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
/// Rest of the natural logarithm of 2.
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Returns the natural logarithm of a positive number that is not subnormal.
pub(super) fn ln(x: f64) -> f64 {
    debug_assert!(x >= f64::MIN_POSITIVE && x.is_finite());
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1_023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1_023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh s = 2 (s + s³/3 + s⁵/5 + …) with |s| < 0.172: twelve terms leave less than
    // 1e-18.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..12).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    let exponent = f64::from(exponent);
    exponent * LN2_HIGH + (2.0 * s * series + exponent * LN2_LOW)
}

/// Returns e to the power of a number between -700 and 700.
pub(super) fn exp(x: f64) -> f64 {
    debug_assert!(x.abs() <= 700.0);
    // Nearest integer number of doublings; within half of one the series converges fast.
    let doublings = (x / std::f64::consts::LN_2 + if x < 0.0 { -0.5 } else { 0.5 }) as i32;
    let rest = x - f64::from(doublings) * LN2_HIGH - f64::from(doublings) * LN2_LOW;
    // Fourteen terms of the Taylor series leave less than 1e-17.
    let series = (1..15).rev().fold(1.0, |sum, term| 1.0 + sum * rest / f64::from(term));
    series * f64::from_bits(((1_023 + doublings) as u64) << 52)
}

/// Returns the `k`-th root of a number in `[0, 1]`, for `k` of at least 1.
pub(super) fn root(x: f64, k: usize) -> f64 {
    match k {
        1 => x,
        _ if x <= 0.0 => 0.0,
        _ => exp(ln(x) / k as f64).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn ln_and_exp_agree_with_the_platform() {
        let mut rng = Rng::new(1);
        for _ in 0..100_000 {
            let x = rng.unit().max(1e-300) * 10_f64.powi(rng.below(40) as i32 - 20);
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0), "ln {x}");
            let y = (rng.unit() - 0.5) * 100.0;
            assert!((exp(y) / y.exp() - 1.0).abs() <= 4e-16 * y.abs().max(2.0), "exp {y}");
        }
        assert_eq!((ln(1.0), exp(0.0), root(0.0, 3), root(1.0, 7)), (0.0, 1.0, 0.0, 1.0));
        assert!((root(0.001, 3) - 0.1).abs() < 1e-15);
    }
}
