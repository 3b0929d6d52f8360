//! What cargo and libtest print about one test program, with `--show-output`.
//!
//! ```text
//!      Running tests/it.rs (target/debug/deps/it-0123456789abcdef)
//! test r13_worst_fit ... FAILED
//!
//! failures:
//!
//! ---- r13_worst_fit stdout ----
//! thread 'r13_worst_fit' panicked at …
//!
//! failures:
//!     r13_worst_fit
//!
//! test result: FAILED. 0 passed; 1 failed; …
//!
//! error: test failed, to rerun pass `-p talea-broker --test it`
//! ```
//!
//! A program that is killed, or ends itself, prints no result; cargo then says how it ended.

use super::excerpt::Excerpt;
use super::machine::Reading;

/// What failed, and what it said.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) name: String,
    pub(crate) says: Vec<String>,
}

impl Failure {
    /// Its name without what it comes with: how to run the test alone, or why the step failed.
    pub(crate) fn short(&self) -> &str {
        let name = self.name.split(" (").next().unwrap_or(&self.name);
        name.split(": ").next().unwrap_or(name)
    }
}

/// A test program while it runs.
#[derive(Debug)]
pub(crate) struct Program {
    /// As cargo calls it.
    title: String,
    result: Option<String>,
    /// The arguments of `cargo test` that run it alone.
    rerun: Option<String>,
    /// How it ended, where that was not libtest's way.
    end: Option<String>,
    failed: Vec<Failure>,
    part: Part,
    /// Of no use once there is a result.
    said: Excerpt,
    start: Reading,
}

/// Where in the output we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Progress,
    /// The outputs of failed tests; of which one.
    Outputs(Option<usize>),
    Names,
}

/// How a test program ended.
pub(crate) struct Ended {
    /// Its name and libtest's own summary, if it came to that and ran anything.
    pub(crate) result: Option<String>,
    pub(crate) failures: Vec<Failure>,
    /// Whether the last failure is that of the program itself, which libtest has not counted.
    pub(crate) died: bool,
}

impl Program {
    /// The program that a line announces.
    pub(crate) fn announced(line: &str) -> Option<Program> {
        let title =
            line.strip_prefix("     Running ").or_else(|| line.strip_prefix("   Doc-tests "))?;
        Some(Program {
            title: title.to_owned(),
            result: None,
            rerun: None,
            end: None,
            failed: Vec::new(),
            part: Part::Progress,
            said: Excerpt::default(),
            start: Reading::now(),
        })
    }

    /// One line of its output, or what cargo says about it afterwards.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(name) = failed_test(line) {
            self.failure(name);
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.result = Some(result.to_owned());
            self.part = Part::Progress;
        } else if let Some(rest) = line.strip_prefix("error: test failed, to rerun pass `") {
            self.rerun = rest.split('`').next().map(str::to_owned);
        } else if let Some(rest) =
            line.trim_start().strip_prefix("process didn't exit successfully: ")
        {
            // The path in front of it is long and says nothing.
            self.end = Some(
                rest.rsplit_once(" (")
                    .map_or(rest, |(_, how)| how.trim_end_matches(')'))
                    .to_owned(),
            );
        } else if line == "successes:" {
            self.part = Part::Progress;
        } else if line == "failures:" {
            let first = self.part == Part::Progress;
            self.part = if first { Part::Outputs(None) } else { Part::Names };
        } else if self.part != Part::Progress {
            self.about_failures(line);
        }
        self.said.line(line);
    }

    fn about_failures(&mut self, line: &str) {
        let header = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        match (header, self.part) {
            (Some(name), _) => self.part = Part::Outputs(Some(self.failure(name))),
            (None, Part::Outputs(Some(test))) => self.failed[test].says.push(line.to_owned()),
            (None, Part::Names) => {
                if let Some(name) = line.strip_prefix("    ") {
                    self.failure(name);
                }
            }
            (None, _) => {}
        }
    }

    /// The place of a failed test, known or not.
    fn failure(&mut self, name: &str) -> usize {
        self.failed.iter().position(|failure| failure.name == name).unwrap_or_else(|| {
            self.failed.push(Failure { name: name.to_owned(), says: Vec::new() });
            self.failed.len() - 1
        })
    }

    /// Nothing more will be said about it.
    pub(crate) fn ended(self) -> Ended {
        // 101 is how libtest itself says that a test failed.
        let died = self.result.is_none()
            || self.end.as_deref().is_some_and(|how| how != "exit status: 101");
        let mut failures = self.failed;
        if died {
            let how = self.end.as_deref().unwrap_or("no result");
            let says = self.said.lines();
            failures
                .push(Failure { name: format!("{}: ended by itself: {how}", self.title), says });
        }
        if !failures.is_empty() {
            let machine = self.start.until_now();
            for failure in &mut failures {
                failure.says.push(format!("[while its program ran: {machine}]"));
                if let Some(rerun) = &self.rerun {
                    failure.name = format!("{} (cargo test {rerun})", failure.name);
                }
            }
        }
        let ran = |result: &String| !result.starts_with("ok. 0 passed; 0 failed; 0 ignored;");
        let result = self.result.filter(ran).map(|result| format!("{}: {result}", self.title));
        Ended { result, failures, died }
    }
}

fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Ended {
        let mut lines = text.lines();
        let mut program =
            Program::announced(lines.next().expect("a line")).expect("an announcement");
        lines.for_each(|line| program.line(line));
        program.ended()
    }

    const FAILED: &str = "     Running tests/it.rs (target/debug/deps/it-0123)
running 3 tests
test fine ... ok
test r1_one ... FAILED
test r2_two ... a child wrote into the middle
FAILED

successes:

---- fine stdout ----
thread 'fine' panicked at and was caught

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

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `-p talea-broker --test it`
";

    #[test]
    fn each_failed_test_keeps_its_own_words() {
        let ended = read(FAILED);
        assert!(!ended.died);
        let names: Vec<_> = ended.failures.iter().map(|failure| failure.name.as_str()).collect();
        let rerun = "(cargo test -p talea-broker --test it)";
        assert_eq!(
            names,
            [format!("r1_one {rerun}"), format!("r2_two {rerun}"), format!("r3_silent {rerun}")]
        );
        assert!(ended.failures[0].says.contains(&"assertion failed: one".to_owned()));
        assert!(ended.failures[1].says.contains(&"assertion failed: two".to_owned()));
        assert!(!ended.failures[1].says.contains(&"assertion failed: one".to_owned()));
        assert!(ended.failures[2].says.iter().any(|line| line.contains("steal")));
        assert!(ended.result.is_some_and(|result| {
            result.starts_with("tests/it.rs (target/debug/deps/it-0123): FAILED.")
        }));
    }

    #[test]
    fn a_program_that_was_killed_has_failed() {
        let ended = read(
            "     Running unittests src/lib.rs (target/debug/deps/x-0)\nrunning 2 tests\ntest a ... ok\n\
             the test b hangs; giving up\nerror: test failed, to rerun pass `-p x --lib`\n\nCaused by:\n  \
             process didn't exit successfully: `target/debug/deps/x-0 --show-output` (signal: 6, SIGABRT: abort)\n",
        );
        assert!(ended.died && ended.result.is_none());
        let failure = &ended.failures[0];
        assert!(
            failure.name.contains("signal: 6, SIGABRT: abort (cargo test -p x --lib)"),
            "{}",
            failure.name
        );
        assert!(failure.says.contains(&"the test b hangs; giving up".to_owned()));
    }

    #[test]
    fn a_program_that_ended_well_has_libtests_summary() {
        let ended = read(
            "   Doc-tests talea_core\n\nrunning 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored;",
        );
        assert!(ended.failures.is_empty());
        assert_eq!(ended.result.as_deref(), Some("talea_core: ok. 1 passed; 0 failed; 0 ignored;"));
        let idle = read(
            "   Doc-tests talea_core\n\nrunning 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored;",
        );
        assert!(idle.result.is_none() && !idle.died);
    }
}
