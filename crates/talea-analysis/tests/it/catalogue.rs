//! The catalogue keeps its word: names differ, the tests that a card names are there, and the
//! manual's table is fresh. `TALEA_BLESS=1` writes the table anew.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use talea_analysis::card::{Kind, Platform};
use talea_analysis::catalogue;

#[test]
fn every_card_has_a_name_of_its_own_and_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    for card in catalogue::ALL {
        assert!(names.insert(card.name), "{} twice", card.name);
        assert!(
            card.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{}",
            card.name
        );
        assert_eq!(catalogue::find(card.name), Some(card));
        assert!(!card.tests.is_empty(), "{} names no test", card.name);
        for test in card.tests {
            let (file, name) = test.split_once("::").expect("file::name");
            #[allow(clippy::disallowed_methods, reason = "looks into the repository's own sources")]
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            assert!(text.contains(&format!("fn {name}(")), "{}: no test {test}", card.name);
        }
    }
    assert_eq!(catalogue::find("no such test"), None);
}

/// The table of all tests: test × model × kind × paper × where it is tested.
fn table() -> String {
    let mut text = String::from(
        "| test | policy | where | model | kind | sustainable in | paper | tested by |\n",
    );
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for card in catalogue::ALL {
        let place = match card.platform {
            Platform::One => "one CPU",
            Platform::Global => "several CPUs",
            Platform::Supply => "a supply",
        };
        let kind = match card.kind {
            Kind::Exact => "exact",
            Kind::Sufficient => "sufficient",
            Kind::Necessary => "necessary",
        };
        let sustainable = if card.sustainable.is_empty() { "not proved" } else { card.sustainable };
        let names = card.tests.iter().filter_map(|test| test.split_once("::"));
        let tests: Vec<String> =
            names.map(|(file, name)| format!("[`{name}`](../../{file})")).collect();
        let cells = [card.policy, place, card.model, kind, sustainable, card.paper];
        // Writing to a String can't fail.
        let _ =
            writeln!(text, "| `{}` | {} | {} |", card.name, cells.join(" | "), tests.join(", "));
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
    assert_eq!(kept, table(), "TALEA_BLESS=1 writes it anew");
}
