//! Tests of the first lines and lengths of files, and of text that no file may contain.

use crate::{none, read, sources};
use std::path::Path;

/// Maximum number of lines of a file. A longer file has more than one subject.
const MAX_LINES: usize = 800;

/// Longer files with their limits. The list only shrinks.
const LONG_FILES: &[(&str, usize)] = &[];

#[test]
fn no_file_is_longer_than_the_limit() {
    let mut findings = Vec::new();
    for path in sources(&["rs", "c", "h", "py"]) {
        let name = path.to_string_lossy().into_owned();
        let lines = read(&path).lines().count();
        let long = LONG_FILES.iter().find(|(long, _)| *long == name);
        let limit = long.map_or(MAX_LINES, |&(_, limit)| limit);
        if lines > limit {
            findings.push(format!("{name}: {lines} lines, at most {limit}"));
        }
    }
    for (name, _) in LONG_FILES {
        if read(Path::new(name)).lines().count() <= MAX_LINES {
            findings.push(format!("{name}: within the limit now, remove it from the list"));
        }
    }
    none(&findings);
}

#[test]
fn every_file_opens_with_a_head_comment() {
    let starts = |path: &Path, opening: &[&str]| {
        let text = read(path);
        let first = text.lines().next().unwrap_or_default().to_owned();
        let sound = opening.iter().any(|start| first.starts_with(start));
        (!sound).then(|| format!("{}: opens with {first:?}", path.display()))
    };
    let mut findings: Vec<_> =
        sources(&["rs"]).iter().filter_map(|path| starts(path, &["//! "])).collect();
    findings.extend(sources(&["c", "h"]).iter().filter_map(|path| starts(path, &["/*", "//"])));
    none(&findings);
}

/// Forbidden text with its reason. The text is split, so that this file does not contain it.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "an issue, not a note"),
    (concat!("FIX", "ME"), "an issue, not a note"),
    (concat!("XX", "X"), "an issue, not a note"),
    (concat!("(being", " built"), "not in the tree before it is built"),
    (concat!("(being", " written"), "not in the tree before it is written"),
    (concat!("#[ign", "ore"), "a test that never runs shows nothing; skip with a printed reason"),
    (concat!("#[should_", "panic"), "check the refusal itself"),
    (concat!("/wo", "rk/"), "a path of one computer"),
    (concat!("/ho", "me/"), "a path of one computer"),
    (concat!("/ro", "ot/"), "a path of one computer"),
    (concat!("/tm", "p/t/"), "a path of one computer"),
    (concat!("dbg", "!("), "left from debugging"),
    (concat!("check", "list"), "docs/requirements.md has the rows"),
    (concat!("house", " style"), "CONTRIBUTING.md has the style"),
    (concat!("design", ", section"), "no document outside of the repository"),
    (concat!("facts", "/"), "no document outside of the repository"),
];

#[test]
fn no_file_contains_forbidden_text() {
    let mut findings = Vec::new();
    for path in sources(&["rs", "c", "h", "py", "md", "toml", "sh", "conf", "service", "socket"]) {
        for (number, line) in read(&path).lines().enumerate() {
            for (words, why) in FORBIDDEN {
                if line.contains(words) {
                    findings.push(format!("{}:{}: {words:?}: {why}", path.display(), number + 1));
                }
            }
        }
    }
    none(&findings);
}
