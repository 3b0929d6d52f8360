//! `cargo xtask files`: an index of the source files and documents.
//!
//! Each file begins with a comment whose first sentence says what the file contains, and each
//! document with a title. The index has that sentence or title. A search by words also reads the
//! rest of the comment, and the headings of a document.

use crate::shell;
use anyhow::{Context, Result};
use lexopt::{Arg, Parser, ValueExt};
use std::cmp::Reverse;
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

/// Prints the index. With words, prints only the files whose path or documentation has most of
/// them; files whose path or first sentence has most of them come first.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    let mut words = Vec::new();
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let (found, most) = search(entries()?, &words);
    if most < words.len() {
        eprintln!("no file has all words; these have {most} of {}", words.len());
    }
    let mut text = String::new();
    for entry in found {
        let _ = writeln!(text, "{}: {}", entry.path, entry.sentence);
    }
    // A reader such as `head` may end early.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// Returns the entries with most of the words, and the number of these words.
fn search(mut entries: Vec<Entry>, words: &[String]) -> (Vec<Entry>, usize) {
    let count = |entry: &Entry| number_of(&format!("{} {}", entry.path, entry.text), words);
    let most = entries.iter().map(count).max().unwrap_or(0);
    entries.retain(|entry| count(entry) == most && (most > 0 || words.is_empty()));
    entries.sort_by_key(|entry| {
        Reverse(number_of(&format!("{} {}", entry.path, entry.sentence), words))
    });
    (entries, most)
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
    for path in files(&["crates", "examples", "tests", "xtask", "docs", "etc", "fuzz"])? {
        let name = path.display().to_string();
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        if ["rs", "md", "js", "c", "h", "toml"].contains(&ending) || path.starts_with("etc") {
            let text = fs::read_to_string(shell::root().join(&path));
            entries.extend(Entry::new(name.clone(), ending, &text.with_context(|| name)?));
        }
    }
    for name in ["Cargo.toml", "deny.toml"] {
        let text = fs::read_to_string(shell::root().join(name)).context(name)?;
        entries.extend(Entry::new(name.to_owned(), "toml", &text));
    }
    Ok(entries)
}

impl Entry {
    /// Returns `None` for a file that does not begin with a title or a comment.
    fn new(path: String, ending: &str, text: &str) -> Option<Entry> {
        if ending == "md" {
            let headings = text.lines().filter(|line| line.starts_with('#'));
            let headings: Vec<&str> = headings.map(|line| line.trim_matches(['#', ' '])).collect();
            let sentence = (*headings.first()?).to_owned();
            return Some(Entry { path, sentence, text: headings.join(" ") });
        }
        let marks: &[&str] = match ending {
            "rs" => &["//!"],
            "js" | "c" | "h" => &["//", "/**", "/*", " */", " *"],
            _ => &["#"],
        };
        let lines = text.lines().filter(|line| !line.starts_with("#!"));
        let comment = lines.map_while(|line| marks.iter().find_map(|mark| line.strip_prefix(mark)));
        let text = comment.map(str::trim).collect::<Vec<_>>().join("\n");
        let text = text.trim();
        let paragraph = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let end = paragraph.find(". ").map_or(paragraph.len(), |at| at + 1);
        let sentence = paragraph[..end].to_owned();
        (end > 0).then(|| Entry { path, sentence, text: text.replace('\n', " ") })
    }
}

/// Returns the number of the words with which a word of the text begins, without regard to case,
/// hyphens, underscores and the plural of a word.
fn number_of(text: &str, words: &[String]) -> usize {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    // `no-partitions` is one word, and two words.
    let text = plain(text) + " " + &text.to_lowercase().replace(['-', '_'], " ");
    let parts: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let is_found = |word: &String| {
        let word = plain(word);
        let parts_of_word = word.split(|c: char| !c.is_alphanumeric());
        let word = parts_of_word.max_by_key(|part| part.len()).unwrap_or_default();
        let stem = word.strip_suffix("ies").or_else(|| word.strip_suffix('s')).unwrap_or(word);
        parts.iter().any(|part| if stem.len() > 1 { part.starts_with(stem) } else { *part == stem })
    };
    words.iter().filter(|word| is_found(word)).count()
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

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_file_is_described_by_its_first_sentence() {
        let text = "//! Slots of a\n//! table: 1.5 ms. More.\n//!\n//! Frames.\n\nuse Token;\n";
        let entry = Entry::new("a/b.rs".to_owned(), "rs", text).expect("documented");
        assert_eq!(entry.sentence, "Slots of a table: 1.5 ms.");
        let number = |text: &str| number_of(&entry.text, &words(text));
        assert_eq!(number("frame SLOTS more"), 3);
        assert_eq!(number("token"), 0, "code does not count");
        assert!(Entry::new("c.rs".to_owned(), "rs", "use x;\n//! Late.\n").is_none());
        let text = "# 5. Partitions\n\nText.\n\n## Context\n";
        let document = Entry::new("docs/x.md".to_owned(), "md", text).expect("a title");
        assert_eq!(
            (&*document.sentence, &*document.text),
            ("5. Partitions", "5. Partitions Context")
        );
        let script = Entry::new("etc/x".to_owned(), "", "#!/bin/sh\n# Ends all grants.\nset -e\n");
        assert_eq!(script.expect("a comment").sentence, "Ends all grants.");
        let text = "/* Least laxity first,\n * in C. More. */\nint x;\n";
        let object = Entry::new("a.c".to_owned(), "c", text).expect("a comment");
        assert_eq!(object.sentence, "Least laxity first, in C.");
        assert_eq!(number_of("capability stalls (C)", &words("capabilities stall c")), 3);
        assert_eq!(number_of("installed", &words("stall")), 0);
    }

    #[test]
    fn questions_lead_to_files() {
        for (question, path) in [
            ("refusal sentence", "crates/talea-proto/src/refusal/text.rs"),
            ("rt-app scheduler", "crates/talea-import/src/rtapp/place.rs"),
            ("cpuset partitions v2 zebra", "docs/decisions/0005-no-partitions-on-v2.md"),
        ] {
            let (found, _) = search(entries().expect("readable"), &words(question));
            assert!(found.iter().take(5).any(|entry| entry.path == path), "{question}");
        }
        assert!(search(entries().expect("readable"), &words("zebra")).0.is_empty());
    }
}
