//! `unsafe` stands only in the crates that exist for it, and every block argues why it is sound.

use crate::{crates, none, read, sources};
use std::path::Path;

/// Crates that may contain `unsafe`, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("talea-os", "system calls that no safe wrapper has"),
    ("talea-capi", "the C ABI"),
    ("talea-plugin-host", "loads and calls foreign code"),
];

/// Lines above an `unsafe` that may hold its argument.
const NEAR: usize = 8;

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
fn every_unsafe_is_in_its_crate_and_argued() {
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
                findings.push(format!("{place}: unsafe does not belong here"));
            } else if code.contains("unsafe {") || code.contains("unsafe impl") {
                let above = &lines[number.saturating_sub(NEAR)..=number];
                if !above.iter().any(|line| line.contains("SAFETY:")) {
                    findings.push(format!("{place}: unsafe without // SAFETY:"));
                }
            }
        }
    }
    // This file speaks about the word without using it.
    findings.retain(|finding| !finding.contains("tidy/unsafe_code.rs"));
    none(&findings);
}
