//! Tests that `unsafe` occurs only in the crates of a list, and that every block has a safety
//! argument.

use crate::{crates, none, read, sources};
use std::path::Path;

/// Crates that may contain `unsafe`, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("talea-os", "system calls that no safe wrapper has"),
    ("talea-capi", "the C ABI"),
    ("talea-plugin-host", "loads and calls code from outside"),
    ("talea-object", "loads and calls code from outside"),
];

/// Maximum distance in lines between an `unsafe` and its argument above.
const MAX_DISTANCE_LINES: usize = 8;

#[test]
fn every_other_crate_forbids_unsafe() {
    let mut findings = Vec::new();
    for name in
        crates().into_iter().filter(|name| !ALLOWED.iter().any(|(allowed, _)| allowed == name))
    {
        for file in ["src/lib.rs", "src/main.rs"] {
            let path = Path::new("crates").join(&name).join(file);
            if crate::root().join(&path).is_file()
                && !read(&path).contains("#![forbid(unsafe_code)]")
            {
                findings.push(format!("{}: no #![forbid(unsafe_code)]", path.display()));
            }
        }
    }
    none(&findings);
}

#[test]
fn every_unsafe_is_in_an_allowed_crate_with_an_argument() {
    let mut findings = Vec::new();
    for path in sources(&["rs"]) {
        let allowed =
            ALLOWED.iter().any(|(name, _)| path.starts_with(Path::new("crates").join(name)));
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if !["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"]
                .iter()
                .any(|word| code.contains(word))
            {
                continue;
            }
            let place = format!("{}:{}", path.display(), number + 1);
            if !allowed {
                findings.push(format!("{place}: unsafe is not allowed in this crate"));
            } else if code.contains("unsafe {") || code.contains("unsafe impl") {
                let above = &lines[number.saturating_sub(MAX_DISTANCE_LINES)..=number];
                if !above.iter().any(|line| line.contains("SAFETY:")) {
                    findings.push(format!("{place}: unsafe without // SAFETY:"));
                }
            }
        }
    }
    // This file contains the words in strings.
    findings.retain(|finding| !finding.contains("tidy/unsafe_code.rs"));
    none(&findings);
}
