//! The shipped systems, as a user runs them.

use crate::harness::{Scratch, run};
use std::path::Path;

#[test]
fn l11_every_shipped_system_can_be_simulated_and_shows_what_it_expects() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systems");
    let scratch = Scratch::new();
    let mut simulated = 0;
    for entry in std::fs::read_dir(folder).expect("the shipped systems") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Included parts.
        if name.starts_with("fms-tasks") {
            continue;
        }
        let ended = run(&scratch, &["simulate", path.to_str().expect("a path")]);
        assert_eq!(ended.code, Some(0), "{name}: {}{}", ended.out, ended.err);
        assert!(!ended.out.contains("fails"), "{name}: {}", ended.out);
        simulated += 1;
    }
    assert!(simulated >= 12, "{simulated} systems");
}

#[test]
fn a_policy_that_talea_does_not_know_is_refused_with_those_that_it_knows() {
    let scratch = Scratch::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/policy-llf/system.toml");
    let ended = run(&scratch, &["simulate", file]);
    assert_eq!(ended.code, Some(2));
    for word in ["`llf`", "\"edf\"", "\"partitions\"", "\"table\"", "talea new policy"] {
        assert!(ended.err.contains(word), "{word}: {}", ended.err);
    }
}
