//! The catalogue keeps its word: names differ, and the tests that a card names are there.

use std::collections::BTreeSet;
use std::path::Path;
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
