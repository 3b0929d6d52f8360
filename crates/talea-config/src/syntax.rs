//! Messages for text that is not TOML, each with a remedy.

use crate::diagnostic::quoted;
use crate::source::{Findings, Words, words};
use std::collections::HashMap;
use toml::de::{DeTable, DeValue, Error};

/// Maximum number of errors with an explanation, which bounds the time for a large file without
/// TOML.
const EXPLAINED: usize = 1_000;

/// Reports `errors`. Returns whether all headers could be read. Without its header, the table of a
/// line is unknown.
pub fn report(mut errors: Vec<Error>, document: &DeTable<'_>, findings: &mut Findings<'_>) -> bool {
    errors.sort_by_key(|error| error.span().map_or(0, |span| span.start));
    let text = findings.source.text;
    let mut headers_hold = errors.len() <= EXPLAINED;
    let mut places = None;
    for error in errors.iter().take(EXPLAINED) {
        let at = error.span().unwrap_or(0..0);
        let marked = text.get(at.clone()).unwrap_or_default();
        if error.message() == "duplicate key" {
            let places = places.get_or_insert_with(|| Places::of(document));
            let first = places.before(marked, at.start).or_else(|| header(text, marked, at.start));
            let first = first.map(|at| findings.source.line(at));
            findings.broken(&at, duplicate(marked, first));
            continue;
        }
        let line = findings.source.line_text(findings.source.line(at.start));
        headers_hold &= !line.trim_start_matches('\u{feff}').trim_start().starts_with('[');
        // The parser marks a missing value by an empty range, which may stand at the end of the
        // line.
        findings.broken(&at, explain(error.message(), marked, line));
    }
    findings.count_errors(errors.len().saturating_sub(EXPLAINED));
    headers_hold
}

/// Positions of the keys of the whole file, by name.
struct Places<'a> {
    of: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Places<'a> {
    fn of(document: &'a DeTable<'a>) -> Places<'a> {
        let mut places = Places { of: HashMap::new() };
        places.add(document);
        places.of.values_mut().for_each(|places| places.sort_unstable());
        places
    }

    fn add(&mut self, table: &'a DeTable<'a>) {
        for (key, value) in table {
            self.of.entry(key.get_ref()).or_default().push(key.span().start);
            match value.get_ref() {
                DeValue::Table(table) => self.add(table),
                DeValue::Array(items) => {
                    for table in items.iter().filter_map(|item| item.get_ref().as_table()) {
                        self.add(table);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the position of the last key `name` before byte `at`. Tables are contiguous, so this
    /// is the first occurrence of a key that occurs twice.
    fn before(&self, name: &str, at: usize) -> Option<usize> {
        let places = self.of.get(name)?;
        places[..places.partition_point(|&place| place < at)].last().copied()
    }
}

fn duplicate(name: &str, first: Option<u32>) -> Words {
    let what = format!("{} is written twice", quoted(name));
    let why = match first {
        Some(line) => format!("it already stands on line {line}; one of the two would be ignored"),
        None => "one of the two would be ignored".to_owned(),
    };
    let remedy = match name {
        "plugin" | "rule" => "write [[plugin]] and [[rule]] in double brackets, once for each",
        "daemon" => "merge the two [daemon] tables",
        _ => "keep one of them; a second table of a list starts with its own [[…]] line",
    };
    words(what, why, remedy)
}

/// Returns the position of the first header `name`, if it is before byte `before`. The parsed tree
/// has only the last table of a header that occurs twice.
fn header(text: &str, name: &str, before: usize) -> Option<usize> {
    let at = text.find(&format!("[{name}]"))?;
    (at + 1 < before).then_some(at)
}

fn explain(message: &str, marked: &str, line: &str) -> Words {
    let trimmed = line.trim();
    let (what, remedy) = if message.contains("string values must be quoted")
        && marked.trim().is_empty()
    {
        (
            "a value is missing".to_owned(),
            "write a value after the `=`, or remove the line".to_owned(),
        )
    } else if message.contains("string values must be quoted") {
        // Word processors write quotes of their own.
        let shown: String =
            marked.trim_matches(['“', '”', '„', '‘', '’']).chars().take(40).collect();
        (format!("{} is no value", quoted(marked)), format!("write text in quotes: \"{shown}\""))
    } else if message.contains("invalid basic string") || message.contains("invalid literal string")
    {
        (
            "the text is not closed".to_owned(),
            "end it with the quote that it starts with".to_owned(),
        )
    } else if message.contains("unclosed array table") || message.contains("unclosed table") {
        ("the header is not closed".to_owned(), "write [daemon], [[plugin]] or [[rule]]".to_owned())
    } else if !trimmed.contains('=') && !trimmed.starts_with('[') {
        ("this line is neither a header nor `key = value`".to_owned(), instead(trimmed))
    } else {
        (
            "this can't be read".to_owned(),
            "write `key = value`, one on a line, text in quotes".to_owned(),
        )
    };
    words(what, format!("the TOML reader says: {message}"), remedy)
}

/// Returns the probably intended line for a line without `=`.
fn instead(line: &str) -> String {
    let word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_');
    match line.trim_start_matches("- ").split_once(':') {
        Some((key, value)) if word(key) && !value.trim().is_empty() => {
            format!("write `{key} = {}`, with text in quotes", value.trim())
        }
        Some((key, _)) if word(key) => {
            "write a header such as [[name]]; ReTiF's YAML is read by `talea import`".to_owned()
        }
        _ => "write `key = value` or a header such as [[name]]; comments start with `#`".to_owned(),
    }
}
