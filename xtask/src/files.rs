//! `cargo xtask files`: an index of the source files.
//!
//! Each file begins with a sentence that says what the file contains. The index has that sentence
//! for each file. A search by words also reads the rest of the file's documentation.

use crate::shell;
use anyhow::{Context, Result};
use lexopt::{Arg, Parser, ValueExt};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Documentation of a file.
struct Entry {
    /// Path relative to the root folder.
    path: String,
    /// First paragraph of the documentation first.
    paragraphs: Vec<String>,
}

/// Prints the index. With words, prints only the files whose path or documentation has all of them,
/// in any case; files whose path or first sentence has all of them come first.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    let mut words = Vec::new();
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Value(word) => words.push(word.string()?.to_lowercase()),
            other => return Err(other.unexpected().into()),
        }
    }
    let mut found = entries()?;
    found.retain(|entry| entry.has(&words));
    found.sort_by_key(|entry| !has_all(&format!("{} {}", entry.path, entry.sentence()), &words));
    for entry in found {
        println!("{}: {}", entry.path, entry.sentence());
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the index as a page of the site.
pub(crate) fn page() -> Result<String> {
    let mut text = "# Source files\n\n| file | contents |\n| --- | --- |\n".to_owned();
    for entry in entries()? {
        let _ = writeln!(text, "| `{}` | {} |", entry.path, entry.sentence().replace('|', "\\|"));
    }
    Ok(text)
}

/// Returns the documented files.
fn entries() -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for path in rust_files()? {
        let name = path.display().to_string();
        let text = fs::read_to_string(shell::root().join(path)).with_context(|| name.clone())?;
        entries.extend(Entry::new(name, &text));
    }
    Ok(entries)
}

impl Entry {
    /// Returns `None` for a file without documentation.
    fn new(path: String, text: &str) -> Option<Entry> {
        let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
        let lines: Vec<&str> = lines.map(str::trim).collect();
        let paragraphs: Vec<String> =
            lines.split(|line| line.is_empty()).map(|lines| lines.join(" ")).collect();
        (!lines.is_empty()).then_some(Entry { path, paragraphs })
    }

    fn sentence(&self) -> &str {
        let paragraph = &self.paragraphs[0];
        &paragraph[..paragraph.find(". ").map_or(paragraph.len(), |at| at + 1)]
    }

    fn has(&self, words: &[String]) -> bool {
        has_all(&format!("{} {}", self.path, self.paragraphs.join(" ")), words)
    }
}

fn has_all(text: &str, words: &[String]) -> bool {
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word))
}

/// Returns the paths of the Rust files, relative to the root folder and in order.
pub(crate) fn rust_files() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open: Vec<PathBuf> =
        ["crates", "examples", "tests", "xtask"].iter().map(PathBuf::from).collect();
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(shell::root().join(&dir)) else { continue };
        for entry in entries {
            let path = dir.join(entry.with_context(|| dir.display().to_string())?.file_name());
            if shell::root().join(&path).is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
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
        let entry = Entry::new("a/b.rs".to_owned(), text).expect("documented");
        assert_eq!(entry.sentence(), "Slots of a table: 1.5 ms.");
        let has = |words: &[&str]| {
            entry.has(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        assert!(has(&["frames", "slots"]) && has(&["a/b"]) && has(&[]));
        assert!(!has(&["frames", "token"]), "code does not count");
        assert!(Entry::new("c.rs".to_owned(), "use x;\n//! Late.\n").is_none());
    }

    #[test]
    fn questions_lead_to_files() {
        let entries = entries().expect("readable");
        for (words, path) in [
            (["request", "repetition"], "crates/talea-client/src/retry.rs"),
            (["refusal", "sentence"], "crates/talea-proto/src/refusal/text.rs"),
        ] {
            let words = words.map(str::to_owned);
            assert!(entries.iter().any(|entry| entry.has(&words) && entry.path == path), "{path}");
        }
    }
}
