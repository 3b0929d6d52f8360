//! Sum of all results, and the last lines of a run.

use super::Verdict;
use super::conclusive::{self, Counts};
use super::excerpt;
use super::libtest::{Failure, Results};
use super::machine::{self, Reading};
use std::fmt::Write;

/// Number of lines that the failures share at the end of a run. A server shows about 150 lines.
const FAILURE_LINES: usize = 100;
/// Maximum number of failures that the report shows with their output.
const MAX_SHOWN: usize = 16;
/// Maximum number of failures that the report names.
const MAX_NAMED: usize = 32;

/// Sum of the results so far.
#[derive(Debug)]
pub(crate) struct Report {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// All failures, in order.
    failures: Vec<Failure>,
    /// Distinct reasons of skips, in order.
    skips: Vec<String>,
    /// libtest's summaries, each with the title of the program.
    summaries: Vec<String>,
    conclusive: Counts,
    /// Passed tests of rows that count no runs.
    passes: Counts,
    start: Reading,
}

impl Report {
    /// Creates a report without results.
    pub(crate) fn new() -> Report {
        Report {
            passed: 0,
            failed: 0,
            skipped: 0,
            failures: Vec::new(),
            skips: Vec::new(),
            summaries: Vec::new(),
            conclusive: Counts::new(),
            passes: Counts::new(),
            start: Reading::now(),
        }
    }

    /// Adds the results of a test program that began at `start` and is repeated by `rerun`.
    pub(super) fn tests(
        &mut self,
        title: &str,
        rerun: Option<&str>,
        results: Results,
        start: Reading,
    ) {
        let skipped = results.skips.len() as u64;
        // A program that died after a skip has no result, hence saturating.
        self.passed += results.passed.saturating_sub(skipped);
        self.failed += results.failed;
        self.skipped += results.ignored + skipped;
        results.skips.iter().for_each(|reason| self.skip(reason));
        for (test, &count) in &results.conclusive {
            conclusive::add(&mut self.conclusive, test, count);
        }
        for (test, &count) in &results.passes {
            conclusive::add(&mut self.passes, test, count);
        }
        let summaries = results.summaries.iter();
        self.summaries.extend(summaries.map(|summary| format!("{title}: {summary}")));
        if results.failures.is_empty() {
            return;
        }
        let load = start.until_now();
        for mut failure in results.failures {
            failure.output.push(format!("[while its program ran: {load}]"));
            if let Some(rerun) = rerun {
                failure.name = format!("{} ({rerun})", failure.name);
            }
            self.failures.push(failure);
        }
    }

    /// Adds the verdict of a step, and returns the word to print for it.
    pub(super) fn step(&mut self, name: &str, verdict: Verdict) -> String {
        match verdict {
            Verdict::Passed => {
                self.passed += 1;
                "passed".to_owned()
            }
            Verdict::Failed(why) => {
                let (why, output) = why.split_once('\n').unwrap_or((&why, ""));
                self.failed += 1;
                self.failures.push(Failure {
                    name: format!("{name}: {why}"),
                    output: output.lines().map(str::to_owned).collect(),
                });
                format!("FAILED: {why}")
            }
            Verdict::Skipped(why) => {
                self.skipped += 1;
                self.skip(&format!("{name}: {why}"));
                format!("skipped: {why}")
            }
        }
    }

    /// Returns the last lines of a run. The last of these lines is the total.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::from("\n");
        for skip in &self.skips {
            let _ = writeln!(text, "skipped  {skip}");
        }
        if self.is_green() {
            for summary in &self.summaries {
                let _ = writeln!(text, "{summary}");
            }
        } else {
            self.write_failures(&mut text);
        }
        if !self.conclusive.is_empty() {
            let _ = writeln!(text, "conclusive runs: {}", conclusive::by_row(&self.conclusive));
        }
        let _ = writeln!(text, "on {}; {}", machine::name(), self.start.until_now());
        let Report { passed, failed, skipped, .. } = self;
        let _ = writeln!(text, "{passed} passed, {failed} failed, {skipped} skipped");
        text
    }

    fn write_failures(&self, text: &mut String) {
        let each = FAILURE_LINES / self.failures.len().clamp(1, MAX_SHOWN);
        for (i, failure) in self.failures.iter().take(MAX_NAMED).enumerate() {
            let _ = writeln!(text, "failed   {}", failure.name);
            if i < MAX_SHOWN {
                for line in excerpt::of_failure(&failure.output, each - 1) {
                    let _ = writeln!(text, "         {line}");
                }
            }
        }
        let names: Vec<_> = self.failures.iter().take(MAX_NAMED).map(Failure::short_name).collect();
        let more = match self.failures.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        // Some servers keep only the last lines: this one has all names.
        let _ = writeln!(text, "all failures: {}{more}", names.join(", "));
    }

    /// Keeps the counts of conclusive runs for `cargo xtask coverage`.
    pub(super) fn keep_conclusive(&self) -> anyhow::Result<()> {
        let mut counts = self.conclusive.clone();
        for (test, &count) in &self.passes {
            conclusive::add(&mut counts, test, count);
        }
        conclusive::write(&counts)
    }

    /// Whether nothing has failed.
    pub(crate) fn is_green(&self) -> bool {
        self.failed == 0 && self.failures.is_empty()
    }

    fn skip(&mut self, reason: &str) {
        if !self.skips.iter().any(|known| known == reason) {
            self.skips.push(reason.to_owned());
        }
    }
}

impl Failure {
    /// Returns the name without the command that repeats the failed program, and without the
    /// reason.
    fn short_name(&self) -> &str {
        let name = self.name.split(" (").next().unwrap_or(&self.name);
        name.split(": ").next().unwrap_or(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::libtest;
    use super::*;

    fn add(report: &mut Report, title: &str, text: &str) {
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        report.tests(title, Some("cargo test -p p"), libtest::parse(&lines), Reading::now());
    }

    fn last_line(report: &Report) -> String {
        report.summary().lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn tests_and_steps_add_up() {
        let mut report = Report::new();
        add(&mut report, "p lib p", "test result: ok. 12 passed; 0 failed; 1 ignored; finished");
        let failed =
            "test wire::r2 ... FAILED\ntest result: FAILED. 4 passed; 1 failed; 0 ignored;";
        add(&mut report, "p test it", failed);
        assert_eq!(report.step("fmt", Verdict::Passed), "passed");
        assert_eq!(last_line(&report), "17 passed, 1 failed, 1 skipped");
        let summary = report.summary();
        assert!(summary.contains("failed   wire::r2 (cargo test -p p)\n"), "{summary}");
        assert!(summary.contains("[while its program ran: steal"), "{summary}");
        assert!(summary.contains("\nall failures: wire::r2\non "), "{summary}");
    }

    #[test]
    fn a_test_that_skips_itself_does_not_count_as_passed() {
        let mut report = Report::new();
        let result = "test result: ok. 3 passed; 0 failed; 0 ignored;";
        add(&mut report, "p", &format!("skipped: needs root\nskipped: needs root\n{result}"));
        assert_eq!(last_line(&report), "1 passed, 0 failed, 2 skipped");
        assert_eq!(report.summary().matches("needs root").count(), 1);
    }

    #[test]
    fn a_failed_step_is_named_with_its_reason_and_its_output() {
        let mut report = Report::new();
        let failed = Verdict::Failed("exit code 4\nerror: a licence\n".to_owned());
        assert_eq!(report.step("deny", failed), "FAILED: exit code 4");
        report.step("freebsd", Verdict::Skipped("no target".to_owned()));
        assert_eq!(last_line(&report), "0 passed, 1 failed, 1 skipped");
        let summary = report.summary();
        assert!(summary.contains("failed   deny: exit code 4\n         error: a licence\n"));
        assert!(summary.contains("skipped  freebsd: no target\n"));
    }

    #[test]
    fn a_green_run_ends_with_the_summaries_of_all_programs() {
        let mut report = Report::new();
        add(&mut report, "p test it", "test result: ok. 7 passed; 0 failed; finished in 0.10s");
        let summary = report.summary();
        assert!(summary.contains("\np test it: ok. 7 passed; 0 failed; finished in 0.10s\n"));
        assert!(summary.contains("steal"), "{summary}");
    }

    #[test]
    fn the_last_150_lines_hold_any_number_of_failures() {
        for failing in [1, 3, MAX_SHOWN, MAX_NAMED, 500] {
            let mut text = String::from("failures:\n");
            for test in 0..failing {
                let _ = writeln!(text, "---- r1_{test} stdout ----\nbefore");
                let _ = writeln!(text, "thread 'r1_{test}' panicked at x.rs:1:2:");
                text.push_str(&"left and right\n".repeat(60));
            }
            let _ = writeln!(text, "test result: FAILED. 0 passed; {failing} failed;");
            let mut report = Report::new();
            add(&mut report, "p test it", &text);
            report.step("docs", Verdict::Failed("cargo failed".to_owned()));
            let summary = report.summary();
            let names = summary.lines().find_map(|line| line.strip_prefix("all failures: "));
            let names: Vec<_> = names.expect("the names").split(", ").collect();
            assert_eq!(names[0], "r1_0");
            assert_eq!(names.last() == Some(&"docs"), failing < MAX_NAMED);
            assert!(summary.lines().count() <= 145, "{failing}: {}", summary.lines().count());
            for test in 0..failing.min(MAX_SHOWN - 1) {
                assert!(summary.contains(&format!("failed   r1_{test} (")), "{failing}: {summary}");
                let panic = format!("thread 'r1_{test}' panicked");
                assert!(summary.contains(&panic), "{failing}: {summary}");
            }
        }
    }
}
