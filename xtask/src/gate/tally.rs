//! Adding up what steps and tests say.
//!
//! Reads the lines of libtest (`test result: …`, `test name ... FAILED`) and the loud skips of the kernel tests
//! (`skipped: needs …`). libtest counts a test that skipped itself as passed; here it counts as skipped.

use super::Verdict;
use std::fmt::Write;

/// The sum so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// As libtest counts: with the tests that skipped themselves.
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Tests that skipped themselves; libtest will count, or has counted, them as passed.
    skipped_themselves: u64,
    /// What failed, in order.
    failures: Vec<String>,
    /// Why something was skipped, in order, each reason once.
    skips: Vec<String>,
}

impl Tally {
    /// One line of a test run.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.skipped += count(counts, "ignored");
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            self.skipped_themselves += 1;
            self.note_skip(reason);
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failures.push(name.to_owned());
        }
    }

    /// The end of a step; the word to print for it.
    pub(crate) fn step(&mut self, name: &str, verdict: Verdict) -> String {
        match verdict {
            Verdict::Passed => {
                self.passed += 1;
                "passed".to_owned()
            }
            Verdict::Failed(why) => {
                self.failed += 1;
                self.failures.push(format!("{name}: {why}"));
                format!("FAILED: {why}")
            }
            Verdict::Skipped(why) => {
                self.skipped += 1;
                self.note_skip(&format!("{name}: {why}"));
                format!("skipped: {why}")
            }
        }
    }

    /// The last lines of a run; the very last is the sum.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::from("\n");
        for skip in &self.skips {
            let _ = writeln!(text, "skipped  {skip}");
        }
        for failure in &self.failures {
            let _ = writeln!(text, "failed   {failure}");
        }
        let (passed, failed, skipped) = self.sum();
        let _ = writeln!(text, "{passed} passed, {failed} failed, {skipped} skipped");
        text
    }

    /// Whether nothing failed.
    pub(crate) fn is_green(&self) -> bool {
        self.failed == 0
    }

    fn sum(&self) -> (u64, u64, u64) {
        // A test binary that dies after a skip prints no result line, hence saturating.
        let passed = self.passed.saturating_sub(self.skipped_themselves);
        (passed, self.failed, self.skipped + self.skipped_themselves)
    }

    fn note_skip(&mut self, reason: &str) {
        if !self.skips.iter().any(|known| known == reason) {
            self.skips.push(reason.to_owned());
        }
    }
}

/// The number in front of `word`.
fn count(text: &str, word: &str) -> u64 {
    let mut words = text.split([' ', ';', '.']).filter(|word| !word.is_empty());
    let mut before = "0";
    words
        .find_map(|now| {
            let found = (now == word).then(|| before.parse().unwrap_or(0));
            before = now;
            found
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_results_and_steps_add_up() {
        let mut tally = Tally::default();
        tally.line(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s",
        );
        tally.line("test wire::r2_round_trip ... FAILED");
        tally.line("test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(tally.step("fmt", Verdict::Passed), "passed");
        assert_eq!(tally.sum(), (17, 1, 1));
        assert!(tally.summary().contains("failed   wire::r2_round_trip\n"));
        assert_eq!(tally.summary().lines().last(), Some("17 passed, 1 failed, 1 skipped"));
    }

    #[test]
    fn a_test_that_skips_itself_is_no_pass() {
        let mut tally = Tally::default();
        tally.line("skipped: needs root");
        tally.line("skipped: needs root");
        tally.line("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(tally.sum(), (1, 0, 2));
        assert_eq!(tally.summary().matches("needs root").count(), 1);
    }

    #[test]
    fn a_failed_step_is_named_with_its_reason() {
        let mut tally = Tally::default();
        tally.step("deny", Verdict::Failed("exit code 4".to_owned()));
        tally.step("freebsd", Verdict::Skipped("no target".to_owned()));
        assert_eq!(tally.sum(), (0, 1, 1));
        assert!(tally.summary().contains("failed   deny: exit code 4\n"));
        assert!(tally.summary().contains("skipped  freebsd: no target\n"));
    }
}
