//! Every kept mutation still fits the code that it breaks, and says what it breaks and which tests must notice.

use crate::{none, root};
use std::process::Command;

#[test]
fn every_mutation_still_applies() {
    let mut findings = Vec::new();
    for entry in std::fs::read_dir(root().join("xtask/mutations")).expect("xtask/mutations").flatten() {
        let path = entry.path();
        let text = std::fs::read_to_string(&path).expect("a patch");
        for key in ["what: ", "tests: -p "] {
            if !text.lines().any(|line| line.starts_with(key)) {
                findings.push(format!("{}: no line {key:?}", path.display()));
            }
        }
        let check = Command::new("git")
            .args(["apply", "--check"])
            .arg(&path)
            .current_dir(root())
            .output()
            .expect("git");
        if !check.status.success() {
            findings.push(format!("{}: {}", path.display(), String::from_utf8_lossy(&check.stderr).trim()));
        }
    }
    none(&findings);
}
