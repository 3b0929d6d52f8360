//! Conclusive runs of live tests, by rows.
//!
//! A live test that repeats inconclusive runs prints `conclusive: N of M, at least K`
//! (`talea_kernel_tests::Runs`). The test command adds up these lines by test, prints the sums by
//! row, and keeps those of a whole run in a file, which `cargo xtask coverage` reads.

use crate::coverage::rows_of;
use crate::shell;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// Sum of the lines of a test or of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) conclusive: u64,
    pub(crate) tries: u64,
    /// Number below which the test fails.
    pub(crate) minimum: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, more: Count) {
        self.conclusive += more.conclusive;
        self.tries += more.tries;
        self.minimum += more.minimum;
    }
}

/// Map from the name of a test, without its module, to its count.
pub(crate) type Counts = BTreeMap<String, Count>;

impl Count {
    /// Returns the count in a line of output.
    pub(super) fn read(line: &str) -> Option<Count> {
        let (conclusive, rest) = line.strip_prefix("conclusive: ")?.split_once(" of ")?;
        let (tries, minimum) = rest.split_once(", at least ")?;
        let number = |text: &str| text.parse().ok();
        Some(Count {
            conclusive: number(conclusive)?,
            tries: number(tries)?,
            minimum: number(minimum)?,
        })
    }
}

/// Adds the count of a test; `test` may begin with its module.
pub(super) fn add(counts: &mut Counts, test: &str, more: Count) {
    let name = test.rsplit("::").next().unwrap_or(test);
    *counts.entry(name.to_owned()).or_default() += more;
}

/// Adds a pass of a test of a row that has no count in `counted`.
pub(super) fn add_pass(passes: &mut Counts, counted: &Counts, test: &str) {
    let name = test.rsplit("::").next().unwrap_or(test);
    if !counted.contains_key(name) && !rows_of(name).is_empty() {
        add(passes, name, Count { conclusive: 1, tries: 1, minimum: 1 });
    }
}

/// Returns the counts by row in one line, e.g. `S6 5 of 7, Y2 12 of 12`. Tests of no row are one
/// entry.
pub(super) fn by_row(counts: &Counts) -> String {
    let mut rows = Counts::new();
    for (test, &count) in counts {
        let named = rows_of(test);
        for row in &named {
            add(&mut rows, &row.to_uppercase(), count);
        }
        if named.is_empty() {
            add(&mut rows, "others", count);
        }
    }
    let entry =
        |(row, count): (&String, &Count)| format!("{row} {} of {}", count.conclusive, count.tries);
    rows.iter().map(entry).collect::<Vec<_>>().join(", ")
}

fn file() -> PathBuf {
    shell::target_dir().join("conclusive.txt")
}

/// Keeps the counts of a whole run of the test command.
pub(super) fn write(counts: &Counts) -> Result<()> {
    let mut text = String::new();
    for (test, Count { conclusive, tries, minimum }) in counts {
        writeln!(text, "{test} conclusive: {conclusive} of {tries}, at least {minimum}")?;
    }
    std::fs::write(file(), text).with_context(|| file().display().to_string())
}

/// Returns the counts of the last whole run; none if there was no such run.
pub(crate) fn read() -> Counts {
    let text = std::fs::read_to_string(file()).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(test, line)| Some((test.to_owned(), Count::read(line)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_by_test_and_by_row() {
        let mut counts = Counts::new();
        for (test, line) in [
            ("rows::s6_s7_sets", "conclusive: 3 of 5, at least 2"),
            ("s6_s7_sets", "conclusive: 1 of 1, at least 1"),
            ("random::s6_more", "conclusive: 1 of 2, at least 1"),
            ("limits::a_thread", "conclusive: 1 of 1, at least 1"),
        ] {
            add(&mut counts, test, Count::read(line).expect("a count"));
        }
        assert_eq!(counts["s6_s7_sets"], Count { conclusive: 4, tries: 6, minimum: 3 });
        assert_eq!(by_row(&counts), "S6 5 of 8, S7 4 of 6, others 1 of 1");
        for other in ["conclusive: 3", "inconclusive: 3 of 4, at least 1", "conclusive: a of b"] {
            assert_eq!(Count::read(other), None, "{other}");
        }
    }
}
