//! The table of malformed configurations: position, reason and remedy of every diagnostic.
#![allow(clippy::disallowed_methods, reason = "stored snapshots are files")]

mod common;

use common::table::{self, Entry};
use common::{TARGET_CPUS, names, target};
use talea_config::read_bytes;
use talea_config::{Diagnostic, Severity};

fn entries() -> Vec<Entry> {
    table::entries(include_str!("malformed/table.txt"))
}

fn complaints(file: &[u8]) -> Vec<Diagnostic> {
    match read_bytes(file, "talead.toml", &names(), &target(TARGET_CPUS)) {
        Ok(loaded) => loaded.warnings,
        Err(found) => found,
    }
}

#[test]
fn issue_2_every_malformed_configuration_is_refused_with_place_reason_and_remedy() {
    let entries = entries();
    table::check(&entries, complaints);
    let errors =
        entries.iter().filter(|e| e.expected.iter().any(|line| line.starts_with("error"))).count();
    assert!(errors >= 40, "the table must have 40 malformed configurations, it has {errors}");
}

#[test]
fn every_complaint_has_all_three_sentences_and_no_control_characters() {
    for entry in entries() {
        for d in complaints(&entry.file) {
            for sentence in [&d.what, &d.why, &d.remedy] {
                assert!(!sentence.trim().is_empty(), "{}: {d:?}", entry.name);
                assert!(!sentence.chars().any(char::is_control), "{}: {d:?}", entry.name);
            }
            let rendered = d.render(false);
            assert!(
                !rendered.chars().any(|c| c.is_control() && c != '\n'),
                "{}: {rendered:?}",
                entry.name
            );
        }
    }
}

#[test]
fn issue_2_a_file_with_an_error_gives_no_setup_at_all() {
    for entry in entries() {
        let loaded = read_bytes(&entry.file, "talead.toml", &names(), &target(TARGET_CPUS));
        let bad = entry.expected.iter().any(|line| line.starts_with("error"));
        assert_eq!(loaded.is_err(), bad, "{}", entry.name);
        if let Err(found) = loaded {
            assert!(found.iter().any(|d| d.severity == Severity::Error), "{}", entry.name);
        }
    }
}

/// Compares the rendered diagnostics about one entry with `tests/malformed/NAME.txt`.
/// `TALEA_UPDATE=1` rewrites that file.
fn snapshot(entry: &str, file: &str) {
    let entries = entries();
    let found = entries.iter().find(|e| e.name == entry).expect("an entry of this name");
    let rendered = talea_config::diagnostic::render(&complaints(&found.file), false);
    let path = format!("{}/tests/malformed/{file}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("TALEA_UPDATE").is_some_and(|v| v == "1") {
        std::fs::write(&path, &rendered).expect("the snapshot can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(rendered, stored, "{path} differs; TALEA_UPDATE=1 rewrites it");
}

#[test]
fn complaints_look_as_stored() {
    snapshot("an unknown key", "unknown-key");
    snapshot("five mistakes are five complaints", "five-mistakes");
    snapshot("two mistakes in two lines are both reported", "broken-lines");
    snapshot("plugins that overlap on shared CPUs", "overlap");
    snapshot("nothing at all", "empty");
    snapshot("not UTF-8", "not-utf8");
    snapshot("bounds that exclude each other in two rules", "contradiction");
}

#[test]
fn colours_are_only_there_when_asked_for() {
    let entries = entries();
    let found =
        complaints(&entries.iter().find(|e| e.name == "an unknown key").expect("an entry").file);
    let (plain, coloured) = (found[0].render(false), found[0].render(true));
    assert!(!plain.contains('\x1b') && coloured.contains("\x1b[1;31m"));
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\x1b') {
        stripped.push_str(before);
        rest = after.split_once('m').expect("a complete colour code").1;
    }
    stripped.push_str(rest);
    assert_eq!(stripped, plain);
}
