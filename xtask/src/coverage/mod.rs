//! `cargo xtask coverage`: the tests of each claim.
//!
//! Test names begin with their rows (`r13_worst_fit_…`, `retif_s1_…`, several in a row: `r2_r6_…`).
//! The command scans the tree for such names and prints a page with the tests of each row, which
//! `cargo xtask docs` adds to the site. The command fails if a required cell has no test.

mod rows;

use crate::shell;
use crate::test::conclusive::{self, Count};
use anyhow::{Result, ensure};
use lexopt::Parser;
use rows::{Need, Row};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

/// Folders and files whose tests are deterministic and need no kernel.
const PURE: [&str; 14] = [
    "crates/talea-core",
    "crates/talea-analysis",
    "crates/talea-sim",
    "crates/talea-config",
    "crates/talea-system",
    "crates/talea-import",
    "crates/talea-proto",
    "crates/talea-broker",
    "crates/talea-deploy",
    // Simulated experiments.
    "crates/talea-lab/src",
    "crates/talea-cli/tests/it/simulate.rs",
    "crates/talea-cli/tests/it/simulate",
    // Policies from outside run in the simulator.
    "examples",
    "xtask",
];

/// Names of fakes. The tests of a file with one of them prove nothing about the real counterpart.
const FAKES: [&str; 4] = ["Fake", "fake::", "Mock", "mock::"];

/// Runs the coverage command.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    if let Some(other) = args.next()? {
        return Err(other.unexpected().into());
    }
    let (text, missing) = page(&scan()?)?;
    print!("{text}");
    ensure!(missing.is_empty(), "cells without a test: {}", missing.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// Returns the page.
pub(crate) fn text() -> Result<String> {
    Ok(page(&scan()?)?.0)
}

/// Tests of a row, each as package, name and note.
#[derive(Default)]
struct RowTests {
    sim: Vec<String>,
    vm: Vec<String>,
    /// Tests with a fake of the daemon, the kernel or the threads. They fill no cell.
    faked: Vec<String>,
    /// Sum of the runs of the live tests in the last run of the test command; `None` if there was
    /// no such run.
    runs: Option<Count>,
}

/// Map from the id of a row to its tests.
type Index = BTreeMap<String, RowTests>;

fn scan() -> Result<Index> {
    let mut index = Index::new();
    let counts = conclusive::read();
    let files = crate::files::rust_files()?;
    // The tests of this module name rows that they do not test.
    for path in files.iter().filter(|path| !path.starts_with("xtask/src/coverage")) {
        let text = std::fs::read_to_string(shell::root().join(path))?;
        let pure = PURE.iter().any(|dir| path.starts_with(dir));
        let fakes = FAKES.iter().any(|word| text.contains(word));
        let package = package_of(path);
        for (name, soaks) in tests_in(&text) {
            let more = if soaks { " (more under soak)" } else { "" };
            for row in rows_of(name) {
                let found = index.entry(row).or_default();
                let list = match (pure, fakes) {
                    (true, _) => &mut found.sim,
                    (false, true) => &mut found.faked,
                    (false, false) => &mut found.vm,
                };
                let count = counts.get(name).copied();
                let runs = count.filter(|count| count.tries > 1).map(|count| {
                    format!(" ({} of {} runs conclusive)", count.conclusive, count.tries)
                });
                list.push(format!("{package}: `{name}`{more}{}", runs.unwrap_or_default()));
                if !pure && !fakes && !counts.is_empty() {
                    let sum = found.runs.get_or_insert_default();
                    *sum += count.unwrap_or_default();
                }
            }
        }
    }
    for found in index.values_mut() {
        found.sim.sort();
        found.vm.sort();
        found.faked.sort();
    }
    Ok(index)
}

/// Returns the names of the functions under a `#[test]` that name rows, and of the members of
/// `families!`. Each name comes with whether the test runs more cases under soak.
fn tests_in(text: &str) -> Vec<(&str, bool)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut tests = Vec::new();
    let (mut marked, mut in_families) = (false, false);
    for (at, line) in lines.iter().enumerate() {
        marked |= line.trim() == "#[test]";
        in_families = (in_families || *line == "families! {") && *line != "}";
        let begins = line.trim_start().trim_start_matches("pub ").starts_with("fn ");
        if begins && std::mem::take(&mut marked) {
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            let body = lines[at..].iter().take_while(|line| **line != end);
            let soaks = body
                .clone()
                .any(|line| ["soak::many(", "TALEA_SOAK"].iter().any(|word| line.contains(word)));
            tests.extend(test_name(line).map(|name| (name, soaks)));
        } else if in_families && let Some((name, _)) = line.trim_start().split_once(':') {
            // The common code of a family takes its cases from soak.
            tests.extend((!rows_of(name).is_empty()).then_some((name, true)));
        }
    }
    tests
}

/// Returns the name of the function that a line begins, if the name has rows.
fn test_name(line: &str) -> Option<&str> {
    let rest = line.trim_start();
    let rest = rest.strip_prefix("pub ").unwrap_or(rest).strip_prefix("fn ")?;
    let name = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?];
    (!rows_of(name).is_empty()).then_some(name)
}

/// Returns the rows in a name: `r2_r6_every_call` has `r2` and `r6`, `retif_s1_threads` has
/// `retif_s1`, and `retif_m3_m4_…` has `retif_m3` and `retif_m4`.
pub(crate) fn rows_of(name: &str) -> Vec<String> {
    let mut words = name.split('_').peekable();
    let mut rows = Vec::new();
    while let Some(word) = words.next() {
        if word == "retif" {
            let Some(id) = words.next() else { break };
            // Section 10.5 has no letters.
            if id == "10" && words.next_if_eq(&"5").is_some() {
                rows.push("retif_10_5".to_owned());
            } else if is_defect(id) {
                rows.push(format!("retif_{id}"));
                while let Some(id) = words.next_if(|word| is_defect(word)) {
                    rows.push(format!("retif_{id}"));
                }
            }
        } else if is_numbered(word, &["r", "s", "y", "l", "d"]) {
            rows.push(word.to_owned());
        } else {
            break;
        }
    }
    rows
}

fn is_defect(word: &str) -> bool {
    is_numbered(word, &["m", "d", "s", "w"])
}

fn is_numbered(word: &str, letters: &[&str]) -> bool {
    letters.iter().any(|letter| {
        word.strip_prefix(letter)
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Returns the package of a file: `talea-broker` of `crates/talea-broker/src/…`, `tests/kernel` of
/// `tests/kernel/…`.
fn package_of(path: &Path) -> String {
    let mut parts = path.iter().map(|part| part.to_string_lossy());
    match parts.next().as_deref() {
        Some("crates") => parts.next().unwrap_or_default().into_owned(),
        Some(dir @ ("tests" | "examples")) => format!("{dir}/{}", parts.next().unwrap_or_default()),
        Some(other) => other.to_owned(),
        None => String::new(),
    }
}

/// Returns the page, and the cells without a required test.
fn page(index: &Index) -> Result<(String, Vec<String>)> {
    let requirements = std::fs::read_to_string(shell::root().join("docs/requirements.md"))?;
    let mut missing = Vec::new();
    let mut text = String::from(
        "# The tests of each claim\n\n\
         *Sim*: deterministic, no kernel.\n\
         *VM*: real kernel, real daemon, C programs.\n\
         `–`: nothing to test, for the reason that follows.\n\
         Of ReTiF's rows, *Sim* leaves out what only processes and the kernel decide, and *VM* what \
         pure code decides.\n\
         Live tests of the papers on scheduling are listed, and not counted.\n\
         *More under soak*: `cargo xtask test` runs some cases of the test, `cargo xtask soak` all.\n\
         *N of M runs conclusive*: the last `cargo xtask test` made M runs of a live test, or of all \
         live tests of a row, of which N were conclusive. A test repeats runs that CPU stalls make \
         inconclusive, and fails below its minimum of conclusive runs.\n\
         No other test accepts an inconclusive run: each pass is a conclusive run.\n\
         *Fake*: tests with a fake of the daemon, the kernel or the threads. They fill no cell.\n",
    );
    for (title, rows) in rows::tables(&requirements)? {
        let _ =
            writeln!(text, "\n## {title}\n\n| row | claim | Sim | VM |\n| --- | --- | --- | --- |");
        for row in rows {
            let none = RowTests::default();
            let found = index.get(&row.tests).unwrap_or(&none);
            let Row { id, claim, sim, vm, .. } = row;
            let mut live = found.runs.map_or_else(String::new, |runs| {
                format!("**{} of {} runs conclusive**<br>", runs.conclusive, runs.tries)
            });
            live += &cell(&found.vm, vm);
            if !found.faked.is_empty() {
                let _ = write!(live, "<br>Fake: {}", found.faked.join("<br>"));
            }
            let _ = writeln!(text, "| {id} | {claim} | {} | {live} |", cell(&found.sim, sim));
            // A row that has live tests must not rest on skipped or inconclusive ones.
            if found.runs.is_some_and(|runs| runs.conclusive == 0) {
                missing.push(format!("{id} VM, without a conclusive run"));
            }
            for (need, tests, column) in [(sim, &found.sim, "Sim"), (vm, &found.vm, "VM")] {
                if need == Need::Asked && tests.is_empty() {
                    missing.push(format!("{id} {column}"));
                }
            }
        }
    }
    Ok((text, missing))
}

fn cell(tests: &[String], need: Need) -> String {
    match need {
        _ if !tests.is_empty() => tests.join("<br>"),
        Need::Asked => "**none**".to_owned(),
        Need::Later => "none yet".to_owned(),
        Need::Not("") => "–".to_owned(),
        Need::Not(why) => format!("–: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_of_a_name_gives_its_rows() {
        assert_eq!(rows_of("r13_worst_fit"), ["r13"]);
        assert_eq!(rows_of("r2_r6_every_call"), ["r2", "r6"]);
        assert_eq!(rows_of("y2_s6_every_finish_time"), ["y2", "s6"]);
        assert_eq!(rows_of("l17_figures_7_and_8"), ["l17"]);
        assert_eq!(rows_of("retif_s1_threads"), ["retif_s1"]);
        assert_eq!(rows_of("retif_s5_retif_s9_taken"), ["retif_s5", "retif_s9"]);
        assert_eq!(rows_of("r7_retif_w1_change"), ["r7", "retif_w1"]);
        assert_eq!(rows_of("r25_retif_s2_s3_specs"), ["r25", "retif_s2", "retif_s3"]);
        assert_eq!(rows_of("retif_d1_d6_garbage_d2"), ["retif_d1", "retif_d6"]);
        assert_eq!(rows_of("retif_10_5_a_killed_daemon"), ["retif_10_5"]);
        assert!(rows_of("reads_a_file").is_empty());
        assert!(rows_of("retif_names_are_kept").is_empty());
        assert_eq!(test_name("    fn r8_accepted() {"), Some("r8_accepted"));
        assert_eq!(test_name("let r8_accepted = 1;"), None);
        let text = "#[test]\nfn r1_a() {}\nfn r2_helper() {}\n#[test]\nfn helper() {}\nfn r3_b() {}\n  #[test]\n  fn r4_c() {}";
        assert_eq!(tests_in(text), [("r1_a", false), ("r4_c", false)]);
        let text = "#[test]\nfn r1_a() {\n    soak::many(1, 2);\n}\n#[test]\nfn r2_b() {\n}\nfn c() {\n    soak::many(1, 2);\n}\n\
            families! {\n    s1_s2_d: About { ..PLAIN };\n}\n    s3_e: 5\n";
        assert_eq!(tests_in(text), [("r1_a", true), ("r2_b", false), ("s1_s2_d", true)]);
    }

    #[test]
    fn a_row_with_fakes_or_without_a_conclusive_run_misses_its_cell() {
        let runs = |conclusive| Some(Count { conclusive, tries: 2, minimum: 1 });
        let tests = || vec!["a".to_owned()];
        let index = Index::from([
            ("r13".to_owned(), RowTests { faked: tests(), ..RowTests::default() }),
            ("r14".to_owned(), RowTests { vm: tests(), runs: runs(0), ..RowTests::default() }),
            ("r15".to_owned(), RowTests { vm: tests(), runs: runs(1), ..RowTests::default() }),
        ]);
        let (text, missing) = page(&index).expect("the requirements");
        assert!(missing.contains(&"R13 VM".to_owned()) && text.contains("<br>Fake: a |"));
        assert!(missing.contains(&"R14 VM, without a conclusive run".to_owned()));
        assert!(!missing.iter().any(|cell| cell.starts_with("R15 VM")));
        assert!(text.contains("**1 of 2 runs conclusive**<br>a |"));
    }

    #[test]
    fn an_empty_tree_misses_every_cell() {
        let (_, missing) = page(&Index::new()).expect("the requirements");
        assert!(missing.contains(&"R13 VM".to_owned()) && missing.contains(&"S14 Sim".to_owned()));
        assert!(!missing.contains(&"R9 VM".to_owned()));
    }
}
