//! The result, line by line, each with the place in the original that it says again.
//!
//! Invariant: what is written beyond the size of a file is dropped, and [`Lines::is_full`] says so.

use crate::config::FILE_MAX;
use std::ops::Range;

/// Text with the origin of its lines; `F` tells several files apart.
pub(super) struct Lines<F = ()> {
    pub(super) text: String,
    origins: Vec<Option<(F, Range<usize>)>>,
}

impl<F> Default for Lines<F> {
    fn default() -> Lines<F> {
        Lines { text: String::new(), origins: Vec::new() }
    }
}

impl<F: Copy> Lines<F> {
    /// A line of our own.
    pub(super) fn say(&mut self, line: &str) {
        self.push(line, None);
    }

    /// A line that says what stands at `at`.
    pub(super) fn from(&mut self, line: &str, file: F, at: &Range<usize>) {
        self.push(line, Some((file, at.clone())));
    }

    /// Whether it is larger than a file may be: nothing more is written, and what is there ends too
    /// soon.
    pub(super) fn is_full(&self) -> bool {
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

    /// Source of line `number` (from 1), or of the nearest earlier line that has one.
    pub(super) fn origin(&self, number: u32) -> Option<(F, Range<usize>)> {
        let upto = (number as usize).min(self.origins.len());
        self.origins[..upto].iter().rev().flatten().next().cloned()
    }
}
