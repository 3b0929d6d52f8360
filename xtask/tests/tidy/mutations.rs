//! Every kept mutation still fits the code that it breaks, and says what it breaks and which tests
//! must notice; every plugin, rule property and message has one.

use crate::{none, read, root};
use std::path::Path;
use std::process::Command;

#[test]
fn every_mutation_still_applies() {
    let mut findings = Vec::new();
    for entry in
        std::fs::read_dir(root().join("xtask/mutations")).expect("xtask/mutations").flatten()
    {
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
            findings.push(format!(
                "{}: {}",
                path.display(),
                String::from_utf8_lossy(&check.stderr).trim()
            ));
        }
    }
    none(&findings);
}

/// By names: `plugin-edf-…`, `rule-max-period`, `message-attach-…`. What there is, is read from the
/// code.
#[test]
fn every_plugin_rule_property_and_message_has_a_mutation() {
    let kept: Vec<String> = std::fs::read_dir(root().join("xtask/mutations"))
        .expect("xtask/mutations")
        .flatten()
        .map(|entry| entry.path().file_stem().unwrap_or_default().to_string_lossy().into_owned())
        .collect();
    let setup = read(Path::new("crates/talea-core/src/setup.rs"));
    let op = read(Path::new("crates/talea-proto/src/wire/op.rs"));
    let requests =
        op.split("pub mod ").find(|part| part.starts_with("request ")).expect("the requests");
    let mut findings = Vec::new();
    for (kind, names) in [
        ("plugin", words(&setup, "PluginKind::")),
        ("rule", words(&setup, "Bound::")),
        ("message", constants(requests)),
    ] {
        assert!(names.len() >= 5, "{kind}: {names:?}");
        for name in names {
            let patch = format!("{kind}-{}", name.replace('_', "-"));
            if !kept.iter().any(|kept| *kept == patch || kept.starts_with(&format!("{patch}-"))) {
                findings.push(format!("xtask/mutations/ has no {patch} and no {patch}-…"));
            }
        }
    }
    none(&findings);
}

/// The words in lines such as `Kind::Edf(_) => "edf",`.
fn words(text: &str, kind: &str) -> Vec<String> {
    let lines =
        text.lines().filter_map(|line| line.trim_start().strip_prefix(kind)?.split_once(" => \""));
    lines.filter_map(|(_, rest)| rest.strip_suffix("\",").map(str::to_owned)).collect()
}

/// The names in lines such as `pub const NEXT_SPEC: u16 = 14;`.
fn constants(text: &str) -> Vec<String> {
    let names = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("pub const ")?.split_once(':'));
    names.map(|(name, _)| name.to_lowercase()).collect()
}
