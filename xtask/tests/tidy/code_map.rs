//! Test that the code map in ARCHITECTURE.md lists exactly the crates.

use crate::{crates, read};
use std::path::Path;

#[test]
fn the_code_map_names_exactly_the_crates() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let map = text
        .split("\n## ")
        .find(|part| part.starts_with("Code map"))
        .expect("a section \"Code map\"");
    let mut named: Vec<String> = map
        .lines()
        .filter_map(|line| line.strip_prefix("**`")?.split_once("`**"))
        .map(|(name, _)| name.to_owned())
        .collect();
    named.sort();
    let mut built = crates();
    built.push("xtask".to_owned());
    assert_eq!(named, built, "ARCHITECTURE.md, code map");
}
