//! Utilisations as decimals, read without floats.
//!
//! Model: `0.7` is the ratio 7/10, and its charge is ⌈7·2^64/10⌉, the result of `Charge::ratio(7,
//! 10)`. So a task set whose sum equals the bound meets it. Twenty decimals distinguish all
//! charges, because 10^-20 < 2^-64. So every charge has a decimal that reads back as the same
//! charge.

use std::fmt;
use talea_core::Charge;

/// Maximum number of significant decimals.
pub const DECIMALS_MAX: usize = 20;
/// Largest utilisation that a file can express, in whole CPUs.
pub const WHOLE_MAX: u64 = 1024;

/// Reason why a decimal could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalError {
    /// The text is not digits with at most one dot between them.
    Syntax,
    /// The number has a minus sign.
    Negative,
    /// The number has an exponent, as in `7e-1`.
    Exponent,
    /// The text is `inf` or `nan`.
    NotANumber,
    /// The number has more than [`DECIMALS_MAX`] significant decimals.
    TooFine,
    /// The number exceeds [`WHOLE_MAX`].
    TooLarge,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecimalError::Syntax => f.write_str("it is not a decimal such as 0.7"),
            DecimalError::Negative => f.write_str("it is negative"),
            DecimalError::Exponent => {
                f.write_str("it has an exponent; only plain decimals such as 0.7 are read")
            }
            DecimalError::NotANumber => f.write_str("it is not a number"),
            DecimalError::TooFine => write!(f, "it has more than {DECIMALS_MAX} decimals"),
            DecimalError::TooLarge => write!(f, "it is more than {WHOLE_MAX} whole CPUs"),
        }
    }
}

impl std::error::Error for DecimalError {}

/// Reads a decimal such as `0.7`, `1` or `2.50`, as a number of whole CPUs.
pub fn parse_charge(text: &str) -> Result<Charge, DecimalError> {
    let digits = match text.as_bytes().first() {
        Some(b'-') => return Err(DecimalError::Negative),
        Some(b'+') => &text[1..],
        _ => text,
    };
    if matches!(digits, "inf" | "nan") {
        return Err(DecimalError::NotANumber);
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        let exponent = digits.bytes().any(|b| b == b'e' || b == b'E')
            && digits.bytes().all(|b| b.is_ascii_digit() || b"eE.+-".contains(&b));
        return Err(if exponent { DecimalError::Exponent } else { DecimalError::Syntax });
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > DECIMALS_MAX {
        return Err(DecimalError::TooFine);
    }
    let whole = whole.trim_start_matches('0');
    let whole: u64 =
        if whole.is_empty() { 0 } else { whole.parse().map_err(|_| DecimalError::TooLarge)? };
    let scale = 10_u128.pow(fraction.len() as u32);
    let part = fraction.bytes().fold(0_u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    if whole > WHOLE_MAX || (whole == WHOLE_MAX && part > 0) {
        return Err(DecimalError::TooLarge);
    }
    // ⌈part·2^64/scale⌉ in two steps of 32 bits: part < scale <= 10^20 < 2^67, so nothing exceeds
    // 2^99.
    let high = (part << 32) / scale;
    let low = (((part << 32) % scale) << 32).div_ceil(scale);
    Ok(Charge::from_bits((u128::from(whole) << 64) + (high << 32) + low))
}

/// Returns the shortest decimal that [`parse_charge`] reads as `charge`; always with a dot. `None`
/// above [`WHOLE_MAX`].
pub fn write_charge(charge: Charge) -> Option<String> {
    let bits = charge.bits();
    (0..=DECIMALS_MAX as u32).find_map(|decimals| {
        // The largest decimal of this length that does not exceed the charge; it is the charge if
        // it rounds up to it. Digit by digit, because 10^20·2^64 is more than 128 bits.
        let (whole, mut rest) = (bits >> 64, bits & u128::from(u64::MAX));
        let mut text = format!("{whole}.");
        for _ in 0..decimals {
            rest *= 10;
            text.push(char::from(b'0' + (rest >> 64) as u8));
            rest &= u128::from(u64::MAX);
        }
        if decimals == 0 {
            text.push('0');
        }
        (parse_charge(&text) == Ok(charge)).then_some(text)
    })
}
