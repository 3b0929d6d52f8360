//! `cargo xtask files`: an index of the source files and documents.
//!
//! Each source file begins with a sentence that says what the file contains, and each document with
//! a title. The index has that sentence or title. A search by words also reads the rest of the
//! file's documentation, and the headings of a document.

use crate::shell;
use anyhow::{Context, Result};
use lexopt::{Arg, Parser, ValueExt};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Documentation of a file.
struct Entry {
    /// Path relative to the root folder.
    path: String,
    /// First sentence of a source file, or title of a document.
    sentence: String,
    /// Documentation of a source file, or headings of a document.
    text: String,
}

/// Prints the index. With words, prints only the files whose path or documentation has all of them;
/// files whose path or first sentence has all of them come first.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    let mut words = Vec::new();
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let mut found = entries()?;
    found.retain(|entry| entry.has(&words));
    found.sort_by_key(|entry| !has_all(&format!("{} {}", entry.path, entry.sentence), &words));
    let mut text = String::new();
    for entry in found {
        let _ = writeln!(text, "{}: {}", entry.path, entry.sentence);
    }
    // A reader such as `head` may end early.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// Returns the index as a page of the site.
pub(crate) fn page() -> Result<String> {
    let mut text = "# Source files\n\n| file | contents |\n| --- | --- |\n".to_owned();
    for entry in entries()? {
        let _ = writeln!(text, "| `{}` | {} |", entry.path, entry.sentence.replace('|', "\\|"));
    }
    Ok(text)
}

/// Returns the documented files.
fn entries() -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for path in files(&["crates", "examples", "tests", "xtask", "docs"])? {
        let name = path.display().to_string();
        let read = || fs::read_to_string(shell::root().join(&path)).with_context(|| name.clone());
        match path.extension().and_then(OsStr::to_str) {
            Some("rs") => entries.extend(Entry::of_source(name.clone(), &read()?)),
            Some("md") => entries.extend(Entry::of_document(name.clone(), &read()?)),
            _ => {}
        }
    }
    Ok(entries)
}

impl Entry {
    /// Returns `None` for a file without documentation.
    fn of_source(path: String, text: &str) -> Option<Entry> {
        let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
        let text = lines.map(str::trim).collect::<Vec<_>>().join("\n");
        let paragraph = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let end = paragraph.find(". ").map_or(paragraph.len(), |at| at + 1);
        let sentence = paragraph[..end].to_owned();
        (end > 0).then(|| Entry { path, sentence, text: text.replace('\n', " ") })
    }

    /// Returns `None` for a document without a title.
    fn of_document(path: String, text: &str) -> Option<Entry> {
        let headings = text.lines().filter(|line| line.starts_with('#'));
        let headings: Vec<&str> = headings.map(|line| line.trim_matches(['#', ' '])).collect();
        let sentence = (*headings.first()?).to_owned();
        Some(Entry { path, sentence, text: headings.join(" ") })
    }

    fn has(&self, words: &[String]) -> bool {
        has_all(&format!("{} {}", self.path, self.text), words)
    }
}

/// Ignores case, hyphens and underscores.
fn has_all(text: &str, words: &[String]) -> bool {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let text = plain(text);
    words.iter().all(|word| text.contains(&plain(word)))
}

/// Returns the paths of the Rust files, relative to the root folder and in order.
pub(crate) fn rust_files() -> Result<Vec<PathBuf>> {
    let mut files = files(&["crates", "examples", "tests", "xtask"])?;
    files.retain(|path| path.extension().is_some_and(|end| end == "rs"));
    Ok(files)
}

/// Returns the paths of the files below some folders.
fn files(folders: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(shell::root().join(&dir)) else { continue };
        for entry in entries {
            let path = dir.join(entry.with_context(|| dir.display().to_string())?.file_name());
            if shell::root().join(&path).is_dir() {
                open.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_described_by_its_first_sentence_and_found_by_the_others() {
        let text = "//! Slots of a\n//! table: 1.5 ms. More.\n//!\n//! Frames.\n\nuse Token;\n";
        let entry = Entry::of_source("a/b.rs".to_owned(), text).expect("documented");
        assert_eq!(entry.sentence, "Slots of a table: 1.5 ms.");
        let has = |words: &[&str]| {
            entry.has(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        assert!(has(&["frames", "slots"]) && has(&["a/b"]) && has(&[]));
        assert!(!has(&["frames", "token"]), "code does not count");
        let text = "# 5. Partitions\n\nText.\n\n## Context\n";
        let document = Entry::of_document("docs/x.md".to_owned(), text).expect("a title");
        assert_eq!(document.sentence, "5. Partitions");
        assert!(document.has(&["context".to_owned()]));
        assert!(Entry::of_source("c.rs".to_owned(), "use x;\n//! Late.\n").is_none());
    }

    #[test]
    fn questions_lead_to_files() {
        let entries = entries().expect("readable");
        for (words, path) in [
            (["request", "repetition"], "crates/talea-client/src/retry.rs"),
            (["rt-app", "scheduler"], "crates/talea-import/src/rtapp/place.rs"),
            (["partitions", "v2"], "docs/decisions/0005-no-partitions-on-v2.md"),
        ] {
            let words = words.map(str::to_owned);
            assert!(entries.iter().any(|entry| entry.has(&words) && entry.path == path), "{path}");
        }
    }
}
