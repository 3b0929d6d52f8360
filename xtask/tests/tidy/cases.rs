//! Test that each file of `tests/cases` has a test with its name.

use crate::{none, read, root};
use std::path::Path;

/// Files with the tests of cases.
const TESTS: [&str; 3] = [
    "crates/talea-cli/tests/it/cases.rs",
    "crates/talea-cli/tests/it/live_cases.rs",
    "crates/talea-capi/tests/it/cases.rs",
];

/// Files that belong to others: headers, the result of `acc-5193.toml`, and programs that system
/// files name.
const PARTS: [&str; 7] =
    ["acc-5193.csv", "burn.h", "cfg.h", "common.h", "hog.c", "populate.c", "sporadic.c"];

#[test]
fn every_case_has_a_test_that_names_it() {
    let tests: String = TESTS.iter().map(|path| read(Path::new(path))).collect();
    let names: Vec<&str> = tests
        .split("#[test]\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("fn ")?.1.split_once('(').map(|(name, _)| name))
        .collect();
    let documented = read(Path::new("tests/cases/README.md"));
    let mut findings = Vec::new();
    let mut cases = 0;
    for folder in std::fs::read_dir(root().join("tests/cases")).expect("the cases").flatten() {
        for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let name = file.file_name().into_string().expect("a plain name");
            let folder = folder.file_name().into_string().expect("a plain name");
            if PARTS.contains(&&*name) {
                continue;
            }
            cases += 1;
            let word = name.replace(['-', '.'], "_");
            if !names.iter().any(|test| has_words(test, &word)) {
                findings
                    .push(format!("tests/cases/{folder}/{name}: no test has {word} in its name"));
            }
            let is_group = name.starts_with("fms-");
            if !is_group && !documented.contains(&format!("`{folder}/{name}`")) {
                findings.push(format!("tests/cases/{folder}/{name}: no row in the README"));
            }
        }
    }
    assert!(cases > 30, "{cases} cases");
    none(&findings);
}

/// Whether the name of a test has these words, after its rows.
fn has_words(test: &str, words: &str) -> bool {
    test.match_indices(words).any(|(at, _)| at == 0 || test.as_bytes()[at - 1] == b'_')
}
