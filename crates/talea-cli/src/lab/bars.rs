//! What measurements must reach, and whether they do. Ratios, differences and bytes: absolute times
//! belong to the machine.

use crate::exit::Exit;
use serde::Serialize;
use std::fmt::Write;

/// One bar.
#[derive(Debug, Serialize)]
pub(super) struct Bar {
    pub(super) what: String,
    pub(super) found: String,
    pub(super) met: bool,
}

/// How that is said.
pub(super) const fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// How what is held to these ends.
pub(super) fn exit(bars: &[Bar]) -> Exit {
    exit_of(bars.iter().map(|bar| bar.met))
}

/// The same of whoever has only verdicts.
pub(super) fn exit_of(are_met: impl IntoIterator<Item = bool>) -> Exit {
    if are_met.into_iter().all(|met| met) { Exit::Ok } else { Exit::Missed }
}

/// A line for each.
pub(super) fn text(bars: &[Bar]) -> String {
    bars.iter().fold(String::new(), |mut text, Bar { what, found, met }| {
        let _ = writeln!(text, "{:6}  {what}: {found}", verdict(*met));
        text
    })
}

/// The lowest and the highest.
pub(super) fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_missed_is_told_by_a_line_and_by_the_exit() {
        let bar = |met| Bar { what: "late".to_owned(), found: "3 µs".to_owned(), met };
        let ends = [&[bar(true), bar(true)][..], &[bar(true), bar(false)], &[]].map(exit);
        assert_eq!(ends, [Exit::Ok, Exit::Missed, Exit::Ok]);
        assert_eq!(text(&[bar(true), bar(false)]), "met     late: 3 µs\nMISSED  late: 3 µs\n");
    }
}
