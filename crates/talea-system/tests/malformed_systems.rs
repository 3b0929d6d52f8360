//! The table of malformed system files: position, reason and remedy of every diagnostic.

#[path = "../../talea-config/tests/common/table.rs"]
mod table;

use table::Entry;
use talea_system::{self as system, Diagnostic};

fn entries() -> Vec<Entry> {
    table::entries(include_str!("malformed/systems.txt"))
}

fn complaints(file: &[u8]) -> Vec<Diagnostic> {
    let text = std::str::from_utf8(file).expect("text");
    system::read(text, "system.toml", &()).map_or_else(|found| found, |system| system.warnings)
}

#[test]
fn s22_issue_3_every_malformed_system_is_refused_with_place_reason_and_remedy() {
    let entries = entries();
    table::check(&entries, complaints);
    let is_refused = |entry: &&Entry| entry.expected.iter().any(|line| line.starts_with("error"));
    let errors = entries.iter().filter(is_refused).count();
    assert!(errors >= 60, "the table must have 60 malformed systems, it has {errors}");
}

#[test]
fn every_complaint_about_a_system_has_all_three_sentences() {
    for entry in entries() {
        for complaint in complaints(&entry.file) {
            for sentence in [&complaint.what, &complaint.why, &complaint.remedy] {
                assert!(!sentence.trim().is_empty(), "{}: {complaint:?}", entry.name);
                assert!(!sentence.chars().any(char::is_control), "{}: {complaint:?}", entry.name);
            }
        }
    }
}
