//! Adding up what steps and tests say, and saying it again at the end.
//!
//! Counts by libtest's result lines and the loud skips of the kernel tests (`skipped: needs …`).
//! libtest counts a test that skipped itself as passed; here it counts as skipped.

use super::Verdict;
use super::excerpt::shortened;
use super::libtest::{Failure, Program};
use super::machine::{self, Reading};
use std::fmt::Write;

/// Lines that the failures share at the end of a run, and how many are shown with more than their
/// names. A server shows about 150 lines; skips and the sum need some of them.
const LINES: usize = 100;
const SHOWN: usize = 16;
/// Failures that are named at all.
const NAMED: usize = 32;

/// The sum so far.
#[derive(Debug)]
pub(crate) struct Tally {
    /// As libtest counts: with the tests that skipped themselves.
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Tests that skipped themselves; libtest will count, or has counted, them as passed.
    skipped_themselves: u64,
    /// What failed, in order.
    failures: Vec<Failure>,
    /// Why something was skipped, in order, each reason once.
    skips: Vec<String>,
    /// The summaries of test programs, in their own words.
    results: Vec<String>,
    /// The test program that runs now.
    program: Option<Program>,
    start: Reading,
}

impl Tally {
    /// Nothing has run.
    pub(crate) fn new() -> Tally {
        Tally {
            passed: 0,
            failed: 0,
            skipped: 0,
            skipped_themselves: 0,
            failures: Vec::new(),
            skips: Vec::new(),
            results: Vec::new(),
            program: None,
            start: Reading::now(),
        }
    }

    /// One line of a test run.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(next) = Program::announced(line) {
            self.end_of_tests();
            self.program = Some(next);
            return;
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.skipped += count(counts, "ignored");
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            self.skipped_themselves += 1;
            self.note_skip(reason);
        }
        if let Some(program) = &mut self.program {
            program.line(line);
        }
    }

    /// The last test program has ended.
    pub(crate) fn end_of_tests(&mut self) {
        let Some(ended) = self.program.take().map(Program::ended) else { return };
        self.failed += u64::from(ended.died);
        self.failures.extend(ended.failures);
        self.results.extend(ended.result);
    }

    /// The end of a step; the word to print for it.
    pub(crate) fn step(&mut self, name: &str, verdict: Verdict) -> String {
        match verdict {
            Verdict::Passed => {
                self.passed += 1;
                "passed".to_owned()
            }
            Verdict::Failed(why) => {
                let (why, says) = why.split_once('\n').unwrap_or((&why, ""));
                self.failed += 1;
                self.failures.push(Failure {
                    name: format!("{name}: {why}"),
                    says: says.lines().map(str::to_owned).collect(),
                });
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
        if self.is_green() {
            for result in &self.results {
                let _ = writeln!(text, "{result}");
            }
        } else {
            self.write_failures(&mut text);
        }
        let _ = writeln!(text, "on {}; {}", machine::name(), self.start.until_now());
        let (passed, failed, skipped) = self.sum();
        let _ = writeln!(text, "{passed} passed, {failed} failed, {skipped} skipped");
        text
    }

    /// A few with what they said, more by name, and in any case not more than a server shows.
    fn write_failures(&self, text: &mut String) {
        let each = LINES / self.failures.len().clamp(1, SHOWN);
        for (i, failure) in self.failures.iter().take(NAMED).enumerate() {
            let _ = writeln!(text, "failed   {}", failure.name);
            if i < SHOWN {
                for line in shortened(&failure.says, each - 1) {
                    let _ = writeln!(text, "         {line}");
                }
            }
        }
        // Of the little that a server may keep of all this, this is the last.
        let names: Vec<&str> = self.failures.iter().take(NAMED).map(Failure::short).collect();
        let more = match self.failures.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(", and {more} more, see above"),
        };
        let _ = writeln!(text, "all that failed: {}{more}", names.join(", "));
    }

    /// How much has failed so far: tests, test programs, steps.
    pub(crate) fn failures(&self) -> usize {
        self.failures.len()
    }

    /// Whether nothing failed.
    pub(crate) fn is_green(&self) -> bool {
        self.failed == 0 && self.failures.is_empty()
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

    const PROGRAM: &str = "     Running tests/it/main.rs (target/debug/deps/it-0123456789abcdef)";

    fn read(tally: &mut Tally, text: &str) {
        text.lines().for_each(|line| tally.line(line));
    }

    #[test]
    fn test_results_and_steps_add_up() {
        let mut tally = Tally::new();
        tally.line(PROGRAM);
        tally.line(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s",
        );
        tally.line(PROGRAM);
        tally.line("test wire::r2_round_trip ... FAILED");
        tally
            .line("test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.end_of_tests();
        assert_eq!(tally.step("fmt", Verdict::Passed), "passed");
        assert_eq!(tally.sum(), (17, 1, 1));
        assert!(tally.summary().contains("failed   wire::r2_round_trip\n"));
        assert!(tally.summary().contains("\nall that failed: wire::r2_round_trip\non "));
        assert_eq!(tally.summary().lines().last(), Some("17 passed, 1 failed, 1 skipped"));
    }

    #[test]
    fn a_test_that_skips_itself_is_no_pass() {
        let mut tally = Tally::new();
        tally.line("skipped: needs root");
        tally.line("skipped: needs root");
        tally.line("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(tally.sum(), (1, 0, 2));
        assert_eq!(tally.summary().matches("needs root").count(), 1);
    }

    #[test]
    fn a_failed_step_is_named_with_its_reason_and_its_output() {
        let mut tally = Tally::new();
        let word =
            tally.step("deny", Verdict::Failed("exit code 4\nerror: a licence\n".to_owned()));
        assert_eq!(word, "FAILED: exit code 4");
        tally.step("freebsd", Verdict::Skipped("no target".to_owned()));
        assert_eq!(tally.sum(), (0, 1, 1));
        assert!(
            tally.summary().contains("failed   deny: exit code 4\n         error: a licence\n")
        );
        assert!(tally.summary().contains("skipped  freebsd: no target\n"));
    }

    #[test]
    fn a_test_program_that_dies_is_a_failure_that_libtest_has_not_counted() {
        let mut tally = Tally::new();
        read(
            &mut tally,
            &format!(
                "{PROGRAM}\ntest a ... ok\nabout to hang\n{PROGRAM}\ntest result: ok. 1 passed;"
            ),
        );
        tally.end_of_tests();
        assert_eq!(tally.sum(), (1, 1, 0));
        assert!(!tally.is_green());
        assert!(tally.summary().contains("about to hang"), "{}", tally.summary());
    }

    #[test]
    fn a_green_run_ends_with_each_programs_own_summary() {
        let mut tally = Tally::new();
        read(
            &mut tally,
            &format!("{PROGRAM}\ntest result: ok. 7 passed; 0 failed; finished in 0.10s"),
        );
        tally.end_of_tests();
        let line = "tests/it/main.rs (target/debug/deps/it-0123456789abcdef): ok. 7 passed; 0 failed; finished in 0.10s\n";
        assert!(tally.summary().contains(line), "{}", tally.summary());
        assert!(tally.summary().contains("steal"), "{}", tally.summary());
    }

    #[test]
    fn however_much_fails_the_end_of_the_log_holds_it() {
        for failing in [1, 3, SHOWN, NAMED, 500] {
            let mut tally = Tally::new();
            tally.line(PROGRAM);
            tally.line("failures:");
            for test in 0..failing {
                read(
                    &mut tally,
                    &format!(
                        "---- r1_{test} stdout ----\nbefore\nthread 'r1_{test}' panicked at x.rs:1:2:"
                    ),
                );
                read(&mut tally, &"left and right\n".repeat(60));
            }
            tally.line(&format!("test result: FAILED. 0 passed; {failing} failed;"));
            tally.end_of_tests();
            tally.step("tests", Verdict::Failed("some tests failed".to_owned()));
            let summary = tally.summary();
            let names: Vec<&str> = summary
                .lines()
                .find_map(|line| line.strip_prefix("all that failed: "))
                .expect("them")
                .split(", ")
                .collect();
            assert_eq!(names[0], "r1_0");
            assert_eq!(names.last() == Some(&"tests"), failing < NAMED);
            assert!(summary.lines().count() <= 145, "{failing}: {}", summary.lines().count());
            for test in 0..failing.min(SHOWN - 1) {
                assert!(summary.contains(&format!("failed   r1_{test}\n")), "{failing}: {summary}");
                assert!(
                    summary.contains(&format!("thread 'r1_{test}' panicked")),
                    "{failing}: {summary}"
                );
            }
        }
    }
}
