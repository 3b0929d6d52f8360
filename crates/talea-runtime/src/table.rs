//! Off-line schedules: intervals of CPUs that were computed before the run (YASMIN section 3.4).
//!
//! Model (docs/model.md, section 9): entries on each CPU in a hyperperiod that repeats from the
//! start. Between entries the CPU is idle. A job that starts in an entry has the version of the
//! entry, and the engine does not check accelerators, because the table decided about both. Jobs
//! are released as declared, or an entry activates the job that it runs.

use crate::task::{TaskId, VersionId};
use std::time::Duration;
use talea_core::Span;
use talea_core::engine::{Affinity, NodeSpec, Tree};
use talea_core::sched::{PolicySpec, TableEntry};

/// Table for [`Application::set_table`](crate::Application::set_table).
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) hyperperiod: Span,
    /// Entries in the order of declaration, each with its task.
    pub(crate) entries: Vec<(TaskId, TableEntry)>,
}

fn span(duration: Duration) -> Span {
    Span::from_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Table {
    /// Creates an empty table with hyperperiod `hyperperiod`.
    pub fn new(hyperperiod: Duration) -> Table {
        Table { hyperperiod: span(hyperperiod), entries: Vec::new() }
    }

    /// Adds an entry: CPU `core` of the application, from 0, belongs to `task` from `start` for
    /// `length`.
    #[must_use]
    pub fn entry(mut self, core: u32, start: Duration, length: Duration, task: TaskId) -> Table {
        let (start, end) = (span(start), span(start.saturating_add(length)));
        self.entries.push((task, TableEntry::new(core, start, end, 0)));
        self
    }

    /// Returns the CPUs of the entries of a task.
    pub(crate) fn cores(&self, task: TaskId) -> Affinity {
        let own = self.entries.iter().filter(|(owner, _)| *owner == task);
        Affinity(own.fold(0, |all, (_, entry)| all | 1_u64.checked_shl(entry.cpu).unwrap_or(0)))
    }

    /// Sets the version of the last entry, which must be a version of the entry's task.
    #[must_use]
    pub fn in_version(mut self, version: VersionId) -> Table {
        self.last().version = Some(version.number as u32);
        self
    }

    /// Makes the last entry activate the job that it runs. All jobs of the entry's task then come
    /// from such entries.
    #[must_use]
    pub fn activating(mut self) -> Table {
        self.last().activates = true;
        self
    }

    /// Lets the job of the last entry continue in a later entry. Without this call a job that does
    /// not end in its entry is an overrun.
    #[must_use]
    pub fn continues(mut self) -> Table {
        self.last().continues = true;
        self
    }

    /// Returns the last entry.
    ///
    /// # Panics
    /// If there is no entry: an entry must be added before it is modified.
    fn last(&mut self) -> &mut TableEntry {
        &mut self.entries.last_mut().expect("an entry").1
    }

    /// Whether the table activates the jobs of `task`.
    pub(crate) fn activates(&self, task: TaskId) -> bool {
        self.entries.iter().any(|(owner, entry)| *owner == task && entry.activates)
    }

    /// Returns the tasks of the entries.
    pub(crate) fn owners(&self) -> impl Iterator<Item = TaskId> {
        self.entries.iter().map(|&(task, _)| task)
    }

    /// Returns the policy of the root of `tree`, whose children are the servers and then the tasks.
    pub(crate) fn policy(&self, tree: &Tree) -> PolicySpec {
        let first = tree.children(Tree::ROOT).count();
        let tasks = tree.nodes().filter(|(_, node)| matches!(node.spec, NodeSpec::Task(_)));
        let tasks: Vec<_> = tasks.map(|(id, _)| id).collect();
        let number = |task: TaskId| {
            let id = tasks[task.number()];
            // A served task is no child of the root; it gets a number that no child has.
            tree.children(Tree::ROOT).position(|(child, _)| child == id).unwrap_or(first) as u32
        };
        let entries =
            self.entries.iter().map(|&(task, entry)| TableEntry { owner: number(task), ..entry });
        PolicySpec::Table { hyperperiod: self.hyperperiod, entries: entries.collect() }
    }
}
