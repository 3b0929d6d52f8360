//! Thresholds of measurements. They are ratios, differences and bytes, because absolute times
//! depend on the computer.

use super::samples::ratio;
use super::units::us;
use serde::Serialize;
use std::fmt::Write;
use talea_study::exit::Exit;

/// Threshold with the measured value.
#[derive(Debug, Serialize)]
pub(super) struct Threshold {
    pub(super) what: String,
    pub(super) found: String,
    pub(super) passed: bool,
}

impl Threshold {
    /// Compares the ratio of two durations in nanoseconds with the largest permitted one. Without a
    /// baseline the threshold is missed.
    pub(super) fn ratio(what: String, ours: u64, theirs: u64, most: f64) -> Threshold {
        let found = ratio(ours, theirs);
        let both = format!("({:.1} and {:.1} µs)", us(ours), us(theirs));
        let text = format!("{found:.2} × {both}, at most {most:.2} ×");
        Threshold { what, found: text, passed: found <= most }
    }
}

/// Returns the word that a report prints for a threshold.
pub(super) const fn verdict(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAIL" }
}

/// Returns the exit code of an experiment with these thresholds.
pub(super) fn exit(thresholds: &[Threshold]) -> Exit {
    exit_of(thresholds.iter().map(|threshold| threshold.passed))
}

/// Returns the exit code of an experiment with these verdicts.
pub(super) fn exit_of(are_met: impl IntoIterator<Item = bool>) -> Exit {
    if are_met.into_iter().all(|passed| passed) { Exit::Ok } else { Exit::BelowThreshold }
}

/// Renders a line for each threshold.
pub(super) fn text(thresholds: &[Threshold]) -> String {
    thresholds.iter().fold(String::new(), |mut text, Threshold { what, found, passed }| {
        let _ = writeln!(text, "{:6}  {what}: {found}", verdict(*passed));
        text
    })
}

/// Returns the lowest and the highest value.
pub(super) fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_threshold_is_reported_by_a_line_and_by_the_exit_code() {
        let threshold =
            |passed| Threshold { what: "late".to_owned(), found: "3 µs".to_owned(), passed };
        let (pass, fail) = ([true, true].map(threshold), [true, false].map(threshold));
        let ends = [&pass[..], &fail, &[]].map(exit);
        assert_eq!(ends, [Exit::Ok, Exit::BelowThreshold, Exit::Ok]);
        assert_eq!(
            text(&[threshold(true), threshold(false)]),
            "passed  late: 3 µs\nFAIL    late: 3 µs\n"
        );
    }
}
