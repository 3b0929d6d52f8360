//! Consistency of the catalogue: names are unique, the tests that an entry names exist, and the
//! manual's table is up to date. `TALEA_BLESS=1` rewrites the table.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use talea_analysis::catalogue;
use talea_analysis::test_info::{Platform, TestKind};

#[test]
fn every_catalogue_entry_has_a_unique_name_and_names_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    for info in catalogue::ALL {
        assert!(names.insert(info.name), "{} twice", info.name);
        assert!(
            info.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{}",
            info.name
        );
        assert_eq!(catalogue::find(info.name), Some(info));
        assert!(!info.tests.is_empty(), "{} names no test", info.name);
        for test in info.tests {
            let (file, name) = test.split_once("::").expect("file::name");
            #[allow(clippy::disallowed_methods, reason = "looks into the repository's own sources")]
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            assert!(text.contains(&format!("fn {name}(")), "{}: no test {test}", info.name);
        }
    }
    assert_eq!(catalogue::find("no such test"), None);
}

/// Returns the table of all tests: test × model × kind × paper × verifying tests.
fn table() -> String {
    let mut text = String::from(
        "| test | policy | where | model | kind | sustainable in | paper | tested by |\n",
    );
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for info in catalogue::ALL {
        let place = match info.platform {
            Platform::One => "one CPU",
            Platform::Global => "several CPUs",
            Platform::Supply => "a supply",
        };
        let kind = match info.kind {
            TestKind::Exact => "exact",
            TestKind::Sufficient => "sufficient",
            TestKind::Necessary => "necessary",
        };
        let sustainable = if info.sustainable.is_empty() { "not proved" } else { info.sustainable };
        let names = info.tests.iter().filter_map(|test| test.split_once("::"));
        let tests: Vec<String> =
            names.map(|(file, name)| format!("[`{name}`](../../{file})")).collect();
        let cells = [info.policy, place, info.model, kind, sustainable, info.paper];
        // Writing to a String can't fail.
        let _ =
            writeln!(text, "| `{}` | {} | {} |", info.name, cells.join(" | "), tests.join(", "));
    }
    text
}

#[test]
#[allow(clippy::disallowed_methods, reason = "compares a page of the repository")]
fn the_manuals_table_of_tests_is_the_catalogue() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/analysis.md");
    let page = std::fs::read_to_string(&path).expect("the chapter");
    let (begin, end) = ("<!-- tests: generated -->\n", "<!-- end of tests -->");
    let (head, rest) = page.split_once(begin).expect("the table's begin");
    let (kept, tail) = rest.split_once(end).expect("the table's end");
    if std::env::var_os("TALEA_BLESS").is_some() {
        std::fs::write(&path, format!("{head}{begin}{}{end}{tail}", table()))
            .expect("the chapter can be written");
        return;
    }
    assert_eq!(kept, table(), "TALEA_BLESS=1 rewrites it");
}
