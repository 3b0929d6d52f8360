//! A text with its name: converts byte ranges into lines, columns and diagnostics, and collects
//! these.
//!
//! Invariant: the memory for diagnostics is bounded for any text. `KEPT` diagnostics are stored,
//! `SHOWN` are returned, and the others are counted.

use crate::diagnostic::{Diagnostic, Excerpt, Severity, harmless};
use std::collections::BTreeSet;
use std::ops::Range;

/// Size of the largest accepted file, in bytes.
pub const FILE_MAX: usize = 1 << 20;

/// Maximum number of diagnostics that are returned about one file.
pub(crate) const SHOWN: usize = 100;
/// Maximum number of stored diagnostics; exceeds [`SHOWN`], so that the returned diagnostics are
/// the first by position.
const KEPT: usize = 1_000;
/// Maximum number of characters of a line in a report.
const WINDOW: usize = 140;
/// Maximum number of these characters before the caret.
const BEFORE: usize = 60;

/// A text with its name.
#[derive(Debug)]
pub struct Source<'t> {
    /// Name of the text in diagnostics.
    pub origin: &'t str,
    /// The text.
    pub text: &'t str,
    /// `starts[n]`: byte offset at which line `n` starts, from 0.
    starts: Vec<usize>,
}

impl<'t> Source<'t> {
    /// Creates a source.
    pub fn new(origin: &'t str, text: &'t str) -> Source<'t> {
        let starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Source { origin, text, starts }
    }

    /// Returns the number of the line of byte `at`, from 1.
    pub fn line(&self, at: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|&start| start <= at)).unwrap_or(u32::MAX)
    }

    /// Returns line `number` (from 1) without its end.
    pub fn line_text(&self, number: u32) -> &'t str {
        let index = number as usize - 1;
        let start = self.starts[index];
        let end = self.starts.get(index + 1).map_or(self.text.len(), |&next| next - 1);
        self.text[start..end].trim_end_matches('\r')
    }

    fn complaint(&self, severity: Severity, span: &Range<usize>, words: Words) -> Diagnostic {
        let line = self.line(span.start);
        let start = self.starts[line as usize - 1];
        let text = self.line_text(line);
        // A byte order mark has no column of its own.
        let mark =
            if line == 1 && text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let within = |at: usize| floor(text, at.saturating_sub(start).max(mark));
        let (from, to) = (within(span.start), within(span.end.max(span.start)));
        let before = text[mark..from].chars().count();
        let skipped = before.saturating_sub(BEFORE);
        let shown: String = text[mark..].chars().skip(skipped).take(WINDOW).map(harmless).collect();
        let indent = before - skipped;
        let width = text[from..to.max(from)].chars().count().clamp(1, WINDOW - indent);
        let plain = |s: String| -> String { s.chars().map(harmless).collect() };
        Diagnostic {
            severity,
            origin: plain(self.origin.to_owned()),
            line,
            column: u32::try_from(before + 1).unwrap_or(u32::MAX),
            what: plain(words.what),
            why: plain(words.why),
            remedy: plain(words.remedy),
            excerpt: Excerpt { text: shown, indent, width },
        }
    }
}

/// Returns the largest character boundary of `text` at or below `at`.
fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

/// Fault, reason and remedy of a diagnostic.
#[derive(Clone, Debug)]
pub struct Words {
    /// The fault.
    pub what: String,
    /// Reason why the fault is a problem.
    pub why: String,
    /// A correct alternative.
    pub remedy: String,
}

/// Creates [`Words`].
pub fn words(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Words {
    Words { what: what.into(), why: why.into(), remedy: remedy.into() }
}

/// Diagnostics about one text.
#[derive(Debug)]
pub struct Findings<'s> {
    /// The text.
    pub source: &'s Source<'s>,
    list: Vec<Diagnostic>,
    forgotten: usize,
    errors: usize,
    /// Lines with a syntax error. Only the first diagnostic about each of them is kept.
    broken: BTreeSet<u32>,
}

impl<'s> Findings<'s> {
    /// Creates an empty list.
    pub fn new(source: &'s Source<'s>) -> Findings<'s> {
        Findings { source, list: Vec::new(), forgotten: 0, errors: 0, broken: BTreeSet::new() }
    }

    /// Reports an error, so that the file is not used.
    pub fn error(&mut self, span: &Range<usize>, words: Words) {
        self.add(Severity::Error, span, words);
    }

    /// Reports a warning about a file that is used.
    pub fn warning(&mut self, span: &Range<usize>, words: Words) {
        self.add(Severity::Warning, span, words);
    }

    /// Reports an error ([`Findings::error`]). Later errors on the same line are consequences,
    /// which the list drops.
    pub fn broken(&mut self, span: &Range<usize>, words: Words) {
        self.error(span, words);
        self.broken.insert(self.source.line(span.start));
    }

    fn add(&mut self, severity: Severity, span: &Range<usize>, words: Words) {
        if self.broken.contains(&self.source.line(span.start)) {
            return;
        }
        self.errors += usize::from(severity == Severity::Error);
        if self.list.len() < KEPT {
            self.list.push(self.source.complaint(severity, span, words));
        } else {
            self.forgotten += 1;
        }
    }

    /// Whether the list is full. Then the caller need not explain further errors, and
    /// [`Findings::count_errors`] counts them.
    pub fn is_full(&self) -> bool {
        self.list.len() >= KEPT
    }

    /// Whether another diagnostic may be returned. Only then are costly texts such as suggestions
    /// useful.
    pub fn has_room(&self) -> bool {
        self.list.len() < SHOWN
    }

    /// Counts `errors` further errors without messages.
    pub fn count_errors(&mut self, errors: usize) {
        self.errors += errors;
        self.forgotten += errors;
    }

    /// Whether there are errors, so that the file is not used.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether some lines could not be read.
    pub fn has_broken_lines(&self) -> bool {
        !self.broken.is_empty()
    }

    /// Returns the diagnostics in file order. A last diagnostic counts those that were dropped.
    pub fn finish(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|d| (d.line, d.column, d.severity));
        let left_out = self.forgotten + self.list.len().saturating_sub(SHOWN);
        if left_out > 0 {
            // What stops the file must not be crowded out by what does not.
            self.list.sort_by_key(|d| d.severity);
            self.list.truncate(SHOWN);
            self.list.sort_by_key(|d| (d.line, d.column, d.severity));
            let severity = if self.errors > 0 { Severity::Error } else { Severity::Warning };
            let end = self.source.text.len();
            let text = format!("{left_out} more complaints are not shown");
            let words = words(
                text,
                format!("at most {SHOWN} are shown"),
                "mend the first ones and check again",
            );
            self.list.push(self.source.complaint(severity, &(end..end), words));
        }
        self.list
    }
}
