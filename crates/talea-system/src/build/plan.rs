//! Structure of the described trees, which all parts of the build read.

use crate::draft::{Draft, Named};
use crate::registry::Registry;
use std::collections::BTreeSet;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_config::suggest;

/// Maximum number of names in the search for a suggestion, which takes quadratic time.
pub(super) const NEAR: usize = 2_000;

/// Task of a `[[task]]` table: index of the table, and number of the copy.
pub(super) type Copy = (usize, u32);

/// A channel with its ends.
pub(super) struct Joined {
    pub(super) from: Copy,
    pub(super) to: Copy,
    /// Root of both ends.
    pub(super) root: usize,
}

/// Structure of the described trees.
pub(super) struct Plan<'d> {
    pub(super) draft: &'d Draft,
    pub(super) registry: &'d Registry,
    /// `parents[s]`: scheduler above scheduler `s`.
    pub(super) parents: Vec<Option<usize>>,
    /// `below[s]`: schedulers in scheduler `s`, in file order.
    pub(super) below: Vec<Vec<usize>>,
    /// `members[s]`: tasks in scheduler `s`, in file order.
    pub(super) members: Vec<Vec<usize>>,
    /// `owners[t]`: scheduler above task `t`.
    pub(super) owners: Vec<usize>,
    /// `tasks[s]`: tasks of root `s`.
    pub(super) tasks: Vec<Vec<usize>>,
    /// `accelerators[s]`: accelerators of root `s`.
    pub(super) accelerators: Vec<Vec<usize>>,
    /// `resources[s]`: resources of root `s`.
    pub(super) resources: Vec<Vec<usize>>,
    /// `joined[s]`: channels of root `s`.
    pub(super) joined: Vec<Vec<usize>>,
    /// Channels of all roots.
    pub(super) channels: Vec<Joined>,
    /// Tasks that a table releases: (number of the scheduler, name).
    pub(super) by_table: BTreeSet<(usize, &'d str)>,
}

impl Plan<'_> {
    /// Whether an entry of an off-line table activates the task or one of its copies.
    pub(super) fn table_activates(&self, task: usize) -> bool {
        let owner = self.owners[task];
        let in_table = !self.draft.schedulers[owner].policy.entries().is_empty();
        in_table
            && self.draft.tasks[task]
                .names()
                .any(|name| self.by_table.contains(&(owner, name.as_str())))
    }
}

/// Reports a name that no item has.
pub(super) fn unknown<'n>(
    named: &Named,
    what: &str,
    names: impl Iterator<Item = &'n str>,
    findings: &mut [Findings<'_>],
) {
    if findings[named.file].is_full() {
        return findings[named.file].count_errors(1);
    }
    let names = names.take(if findings[named.file].has_room() { NEAR } else { 0 });
    let remedy = match suggest::nearest(&named.name, names) {
        Some(near) => format!("did you mean {}?", quoted(near)),
        None if what == "version" => {
            "add a [[task.version]] with that name to its owner".to_owned()
        }
        None => format!("add a [[{what}]] with that name"),
    };
    let why = match what {
        "scheduler" => "it must stand somewhere",
        "version" => "its owner does not have it",
        _ => "nothing of that name is there",
    };
    let text = words(format!("no {what} is called {}", quoted(&named.name)), why, remedy);
    findings[named.file].error(&named.at, text);
}
