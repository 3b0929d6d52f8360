//! Small grammars that Talea's configuration and ReTiF's files share: plugin names and bands.

use std::ops::RangeInclusive;
use talea_core::Priority;
use talea_core::setup::{Band, PLUGIN_NAME_MAX};

/// Returns the reason why `name` is no valid plugin name; `None` if it is valid.
pub fn name_problem(name: &str) -> Option<String> {
    if name.is_empty() {
        Some("it is empty".to_owned())
    } else if name == "-" {
        Some("\"-\" stands for any plugin in rules".to_owned())
    } else if name.len() > PLUGIN_NAME_MAX {
        Some(format!("it has {} bytes; the longest name has {PLUGIN_NAME_MAX}", name.len()))
    } else if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        Some("it holds blanks or control characters".to_owned())
    } else if name.chars().any(is_invisible) {
        Some("it holds invisible characters, so that two names could look alike".to_owned())
    } else {
        None
    }
}

/// Whether `c` has no width, or changes the text direction.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    )
}

/// Reason why a band could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandError {
    /// The text is neither `low-high` nor one number.
    Syntax,
    /// `low` is above `high`.
    Backwards(u32, u32),
}

/// Reads `50-89` or `50`. The numbers are in any range, and ordered.
pub fn parse_band(text: &str) -> Result<(u32, u32), BandError> {
    let number = |digits: &str| -> Result<u32, BandError> {
        let digits = digits.trim();
        if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BandError::Syntax);
        }
        digits.parse().map_err(|_| BandError::Syntax)
    };
    let (low, high) = match text.split_once('-') {
        Some((low, high)) => (number(low)?, number(high)?),
        None => (number(text)?, number(text)?),
    };
    if low > high { Err(BandError::Backwards(low, high)) } else { Ok((low, high)) }
}

/// Returns the band `low-high` if both limits are in `priorities`.
pub fn band_within((low, high): (u32, u32), priorities: &RangeInclusive<u8>) -> Option<Band> {
    let member = |n: u32| u8::try_from(n).ok().filter(|n| priorities.contains(n)).map(Priority);
    Some(Band { low: member(low)?, high: member(high)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_read_or_refused() {
        assert_eq!(parse_band("50-89"), Ok((50, 89)));
        assert_eq!(parse_band("7"), Ok((7, 7)));
        assert_eq!(parse_band("9-2"), Err(BandError::Backwards(9, 2)));
        for text in ["", "-", "1-", "-1", "1-2-3", "a-b", "+1-2", "1.5", "99999999999"] {
            assert_eq!(parse_band(text), Err(BandError::Syntax), "{text}");
        }
        assert_eq!(
            band_within((1, 99), &(1..=99)),
            Some(Band { low: Priority(1), high: Priority(99) })
        );
        assert_eq!(band_within((0, 99), &(1..=99)), None);
        assert_eq!(band_within((1, 256), &(1..=99)), None);
    }

    #[test]
    fn names_that_requests_could_not_spell_are_refused() {
        for name in [
            "",
            "-",
            "a b",
            "a\tb",
            "a\u{1b}b",
            "a\u{202e}b",
            "\u{200b}",
            "an-awfully-long-name-of-32-bytes",
        ] {
            assert!(name_problem(name).is_some(), "{name:?}");
        }
        for name in ["rm", "EDF", "rm-2", "--", "thirty-one-bytes-in-this-name-x"] {
            assert_eq!(name_problem(name), None, "{name:?}");
        }
    }
}
