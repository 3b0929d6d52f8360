//! Names of tasks and schedulers of an imported system.

use std::collections::{BTreeMap, BTreeSet};

/// Names that are valid in system files, each used once.
#[derive(Default)]
pub(crate) struct Names {
    given: BTreeSet<String>,
    /// `next[prefix]`: the number to try next for names with this prefix. Without it, many requests
    /// for one name would take quadratic time.
    next: BTreeMap<String, usize>,
}

impl Names {
    /// Returns `text` as a valid name, or `instead` if it is empty. A number distinguishes equal
    /// names.
    pub(crate) fn give(&mut self, text: &str, instead: &str) -> String {
        const LONGEST: usize = 50;
        let fine = |c: char| {
            if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' }
        };
        let plain: String = text.chars().map(fine).take(LONGEST).collect();
        let start = if plain.is_empty() { instead.to_owned() } else { plain };
        let mut name = start.clone();
        while self.given.contains(&name) {
            let next = self.next.entry(start.clone()).or_insert(2);
            name = format!("{start}.{next}");
            *next += 1;
        }
        self.given.insert(name.clone());
        name
    }
}
