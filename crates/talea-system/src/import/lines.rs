//! The result, line by line, each with the place in the original that it says again.

use super::Which;
use std::ops::Range;

/// Text with the origin of its lines.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) text: String,
    origins: Vec<Option<(Which, Range<usize>)>>,
}

impl Lines {
    /// A line of our own.
    pub(super) fn say(&mut self, line: &str) {
        self.push(line, None);
    }

    /// A line that says what stands at `at`.
    pub(super) fn from(&mut self, line: &str, which: Which, at: &Range<usize>) {
        self.push(line, Some((which, at.clone())));
    }

    fn push(&mut self, line: &str, origin: Option<(Which, Range<usize>)>) {
        assert!(!line.contains('\n'), "one line at a time, or origins would shift");
        self.text.push_str(line);
        self.text.push('\n');
        self.origins.push(origin);
    }

    /// Where line `number` (from 1) comes from, or else the nearest line before it that comes from anywhere.
    pub(super) fn origin(&self, number: u32) -> Option<(Which, Range<usize>)> {
        let upto = (number as usize).min(self.origins.len());
        self.origins[..upto].iter().rev().flatten().next().cloned()
    }
}
