//! Output of an import: lines of text, each with the position in the imported file that it comes
//! from.
//!
//! Invariant: text beyond the size of a file is dropped, and [`Lines::is_full`] returns `true`.

use std::ops::Range;
use talea_config::FILE_MAX;

/// Text with the origin of its lines. `F` distinguishes several imported files.
pub(crate) struct Lines<F = ()> {
    pub(crate) text: String,
    origins: Vec<Option<(F, Range<usize>)>>,
}

impl<F> Default for Lines<F> {
    fn default() -> Lines<F> {
        Lines { text: String::new(), origins: Vec::new() }
    }
}

impl<F: Copy> Lines<F> {
    /// Appends a line without an origin.
    pub(crate) fn say(&mut self, line: &str) {
        self.push(line, None);
    }

    /// Appends a line that comes from position `at` of the imported `file`.
    pub(crate) fn from(&mut self, line: &str, file: F, at: &Range<usize>) {
        self.push(line, Some((file, at.clone())));
    }

    /// Whether the text exceeds the largest file. Then nothing more is written, and the text is
    /// incomplete.
    pub(crate) fn is_full(&self) -> bool {
        self.text.len() > FILE_MAX
    }

    fn push(&mut self, line: &str, origin: Option<(F, Range<usize>)>) {
        if self.is_full() {
            return;
        }
        assert!(!line.contains('\n'), "one line at a time, or origins would shift");
        self.text.push_str(line);
        self.text.push('\n');
        self.origins.push(origin);
    }

    /// Returns the origin of line `number` (from 1), or of the nearest earlier line with an origin.
    pub(crate) fn origin(&self, number: u32) -> Option<(F, Range<usize>)> {
        let upto = (number as usize).min(self.origins.len());
        self.origins[..upto].iter().rev().flatten().next().cloned()
    }
}
