//! Results of a test program, read from what libtest prints with `--show-output`.
//!
//! ```text
//! test r13_worst_fit ... FAILED
//!
//! failures:
//!
//! ---- r13_worst_fit stdout ----
//! thread 'r13_worst_fit' panicked at ...
//!
//! failures:
//!     r13_worst_fit
//!
//! test result: FAILED. 0 passed; 1 failed; ...
//! ```
//!
//! libtest counts a test that has skipped itself with `skipped: needs ...` as passed. This module
//! counts such a test as skipped. Doc tests print one such output per crate.

use super::conclusive::{self, Count, Counts};
use super::excerpt;
use anyhow::{Result, anyhow, ensure};
use std::collections::BTreeSet;
use std::process::ExitStatus;

/// Exit code by which libtest reports that a test has failed.
const TESTS_FAILED: i32 = 101;

/// Failed test, test program or step.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) name: String,
    pub(super) output: Vec<String>,
}

/// Results of one test program.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
    /// Reasons of the tests that have skipped themselves, in order.
    pub(super) skips: Vec<String>,
    pub(super) failures: Vec<Failure>,
    /// Conclusive runs of the tests that count them.
    pub(super) conclusive: Counts,
    /// Passed tests of rows that count no runs.
    pub(super) passes: Counts,
    /// Summaries by libtest, for programs with at least one test.
    pub(super) summaries: Vec<String>,
    has_result: bool,
}

/// Part of the output to which a line belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Progress,
    /// Outputs of failed tests, with the index of the failure to which the line belongs.
    Outputs(Option<usize>),
    Names,
}

/// Reads the results of a program that has ended with `end`. A program that died, or could not run,
/// counts as one failure.
pub(super) fn results(title: &str, end: Result<Option<ExitStatus>>, output: &[String]) -> Results {
    let mut results = parse(output);
    if let Err(why) = end.and_then(|end| verify(end, &results)) {
        results.failed += 1;
        let name = format!("{title}: {why:#}");
        results.failures.push(Failure { name, output: excerpt::of(output) });
    }
    results
}

/// Reads the results in `output`.
pub(super) fn parse(output: &[String]) -> Results {
    let mut results = Results::default();
    let mut part = Part::Progress;
    let mut test = None;
    let (mut passed, mut skipped) = (Vec::new(), BTreeSet::new());
    for line in output {
        test = header(line).or(test);
        if let (Some(test), Some(count)) = (test, Count::read(line)) {
            conclusive::add(&mut results.conclusive, test, count);
        }
        let progress = line.strip_prefix("test ");
        passed.extend(progress.and_then(|rest| rest.strip_suffix(" ... ok")));
        if let Some(name) = progress.and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            results.failure(name);
        } else if let Some(summary) = line.strip_prefix("test result: ") {
            results.add(summary);
            part = Part::Progress;
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            results.skips.push(reason.to_owned());
            skipped.extend(test);
        } else if line == "successes:" {
            part = Part::Progress;
        } else if line == "failures:" {
            part = if part == Part::Progress { Part::Outputs(None) } else { Part::Names };
        } else if part != Part::Progress {
            part = results.failure_line(line, part);
        }
    }
    for test in passed.into_iter().filter(|test| !skipped.contains(test)) {
        conclusive::add_pass(&mut results.passes, &results.conclusive, test);
    }
    results
}

/// Fails if the program did not end as libtest ends a program with these results.
fn verify(end: Option<ExitStatus>, results: &Results) -> Result<()> {
    let end = end.ok_or_else(|| anyhow!("killed at the time limit of the test command"))?;
    ensure!(results.has_result, "ended without a result: {end}");
    ensure!(end.success() || end.code() == Some(TESTS_FAILED), "ended after its tests: {end}");
    ensure!(end.success() || results.failed > 0, "failed without a failed test: {end}");
    Ok(())
}

impl Results {
    /// Adds a summary of libtest, without its prefix `test result: `.
    fn add(&mut self, summary: &str) {
        self.has_result = true;
        self.passed += count(summary, "passed");
        self.failed += count(summary, "failed");
        self.ignored += count(summary, "ignored");
        if !summary.starts_with("ok. 0 passed; 0 failed; 0 ignored;") {
            self.summaries.push(summary.to_owned());
        }
    }

    /// Adds a line about the failures of the program, and returns the part of the next line.
    fn failure_line(&mut self, line: &str, part: Part) -> Part {
        match (header(line), part) {
            (Some(name), _) => return Part::Outputs(Some(self.failure(name))),
            (None, Part::Outputs(Some(test))) => self.failures[test].output.push(line.to_owned()),
            (None, Part::Names) => {
                if let Some(name) = line.strip_prefix("    ") {
                    self.failure(name);
                }
            }
            (None, _) => {}
        }
        part
    }

    /// Returns the index of the failure of the test `name`. Adds the failure if it is new.
    fn failure(&mut self, name: &str) -> usize {
        self.failures.iter().position(|failure| failure.name == name).unwrap_or_else(|| {
            self.failures.push(Failure { name: name.to_owned(), output: Vec::new() });
            self.failures.len() - 1
        })
    }
}

/// Returns the test whose output begins after a line.
fn header(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// Returns the number before `word`; 0 if there is none.
fn count(text: &str, word: &str) -> u64 {
    let words: Vec<_> = text.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
    let at = words.iter().skip(1).position(|&other| other == word);
    at.and_then(|before| words[before].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    const OUTPUT: &str = "
running 3 tests
test fine ... ok
test r1_one ... FAILED
test r2_two ... a child wrote into the middle
FAILED
skipped: needs root

successes:

---- fine stdout ----
thread 'fine' panicked at and was caught
conclusive: 1 of 2, at least 1
conclusive: 2 of 2, at least 1

successes:
    fine

failures:

---- r1_one stdout ----
before

thread 'r1_one' (7) panicked at x.rs:1:2:
assertion failed: one

---- r2_two stdout ----

thread 'r2_two' (8) panicked at x.rs:3:4:
assertion failed: two


failures:
    r1_one
    r2_two
    r3_silent

test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.00s
";

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn each_failed_test_keeps_its_own_output() {
        let results = results("p test it", Ok(Some(exit(101))), &lines(OUTPUT));
        assert_eq!((results.passed, results.failed, results.ignored), (12, 3, 1));
        assert_eq!(results.skips, ["needs root"]);
        let fine = Count { conclusive: 3, tries: 4, minimum: 2 };
        assert_eq!(results.conclusive, Counts::from([("fine".to_owned(), fine)]));
        let names: Vec<_> = results.failures.iter().map(|failure| failure.name.as_str()).collect();
        assert_eq!(names, ["r1_one", "r2_two", "r3_silent"]);
        let has = |failure: usize, line: &str| {
            results.failures[failure].output.iter().any(|other| other == line)
        };
        assert!(has(0, "assertion failed: one") && has(1, "assertion failed: two"));
        assert!(!has(1, "assertion failed: one"));
        assert!(results.summaries[0].starts_with("FAILED. 12 passed;"), "{results:?}");
    }

    #[test]
    fn a_pass_of_a_row_is_a_conclusive_run_unless_the_test_was_skipped_or_counts_its_runs() {
        let output = "\
test it::r1_one ... ok
test r2_two ... ok
test r3_three ... ok
test other ... ok
---- r2_two stdout ----
skipped: needs root
---- r3_three stdout ----
conclusive: 1 of 2, at least 1
test result: ok. 4 passed; 0 failed; 0 ignored;
";
        let results = results("p", Ok(Some(exit(0))), &lines(output));
        let pass = Count { conclusive: 1, tries: 1, minimum: 1 };
        assert_eq!(results.passes, Counts::from([("r1_one".to_owned(), pass)]));
        assert_eq!(results.conclusive.len(), 1);
    }

    #[test]
    fn a_program_that_died_has_failed() {
        let output = lines("running 2 tests\ntest a ... ok\nthe test b hangs");
        let aborted = results("p lib p", Ok(Some(ExitStatus::from_raw(6))), &output);
        assert_eq!(aborted.failed, 1);
        assert!(aborted.failures[0].name.contains("signal: 6"), "{aborted:?}");
        assert!(aborted.failures[0].output.contains(&"the test b hangs".to_owned()));
        assert!(results("p", Ok(None), &output).failures[0].name.contains("time limit"));
        let ok = lines("test result: ok. 1 passed; 0 failed; 0 ignored;");
        assert_eq!(results("p", Ok(Some(exit(3))), &ok).failed, 1, "by itself, after its tests");
        assert_eq!(results("p", Ok(Some(exit(101))), &ok).failed, 1, "without a failed test");
    }

    #[test]
    fn programs_without_tests_have_no_summary_and_doc_tests_have_several() {
        let none = "running 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored;\n";
        let one = "running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored;\n";
        let idle = results("p", Ok(Some(exit(0))), &lines(none));
        assert!(idle.summaries.is_empty() && idle.failures.is_empty());
        let documents = results("p", Ok(Some(exit(0))), &lines(&[one, none, one].concat()));
        assert_eq!((documents.passed, documents.summaries.len()), (2, 2));
    }
}
