//! Tables of malformed files, with the expected diagnostics.
#![allow(clippy::disallowed_methods, reason = "what was found is written down on request")]

use std::fmt::Write;
use talea_config::Diagnostic;

pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) expected: Vec<String>,
    pub(crate) file: Vec<u8>,
}

/// Reads the table. The head of the table describes its grammar.
pub(crate) fn entries(table: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut in_file = false;
    for line in table.lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            entries.push(Entry { name: name.to_owned(), expected: Vec::new(), file: Vec::new() });
            in_file = false;
        } else if let Some(entry) = entries.last_mut() {
            match (in_file, line) {
                (false, "---") => in_file = true,
                (false, _) => entry.expected.push(line.to_owned()),
                (true, _) => entry.file.extend(unescaped(line)),
            }
        }
    }
    entries
}

fn unescaped(line: &str) -> Vec<u8> {
    let (line, times) = match line.split_once("\\*") {
        Some((line, times)) => (line, times.parse().expect("a number after the star")),
        None => (line, 1),
    };
    let mut bytes = Vec::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend(before.bytes());
        bytes.push(u8::from_str_radix(&after[..2], 16).expect("two hexadecimal digits"));
        rest = &after[2..];
    }
    bytes.extend(rest.bytes());
    bytes.push(b'\n');
    bytes.repeat(times)
}

/// Compares all diagnostics of every entry with the table, in order.
#[track_caller]
pub(crate) fn check(entries: &[Entry], complaints: impl Fn(&[u8]) -> Vec<Diagnostic>) {
    let mut failures = String::new();
    let mut actual = String::new();
    for entry in entries {
        let found = complaints(&entry.file);
        let agrees = found.len() == entry.expected.len()
            && found.iter().zip(&entry.expected).all(|(found, expected)| says(found, expected));
        let _ = writeln!(actual, "=== {}", entry.name);
        for d in &found {
            let _ = writeln!(
                actual,
                "{} {}:{} | {} | {}\n    # {}",
                d.severity.word(),
                d.line,
                d.column,
                d.what,
                d.remedy,
                d.why
            );
        }
        if !agrees {
            let _ = writeln!(
                failures,
                "=== {}\nexpected:\n{}\nfound:",
                entry.name,
                entry.expected.join("\n")
            );
            for d in &found {
                let _ = writeln!(failures, "{d}");
            }
        }
    }
    if let Some(path) = std::env::var_os("TALEA_SHOW_MALFORMED") {
        std::fs::write(path, actual).expect("a path that can be written");
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Whether `found` is the diagnostic of the line `expected`.
fn says(found: &Diagnostic, expected: &str) -> bool {
    let parts: Vec<&str> = expected.split(" | ").collect();
    let [head, reason, remedy] = parts.as_slice() else {
        panic!("three parts are needed: {expected}")
    };
    let place = format!("{} {}:{}", found.severity.word(), found.line, found.column);
    *head == place
        && (found.what.contains(reason) || found.why.contains(reason))
        && found.remedy.contains(remedy)
        && ![reason, remedy].iter().any(|part| part.trim().is_empty())
}
