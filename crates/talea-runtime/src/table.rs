//! Off-line schedules: who has which CPU from when to when, computed beforehand (YASMIN section
//! 3.4).
//!
//! Model (docs/model.md, section 9): entries on each CPU in a hyperperiod that repeats from the
//! start; what lies between them is a delay. A job that begins in an entry is done in the entry's
//! version, and accelerators are not asked for: both were the table's business. Jobs come as they
//! are declared to, or an entry makes the one that it runs.

use crate::application::{Application, TaskId, VersionId};
use crate::running::Error;
use std::fmt::Write;
use std::time::Duration;
use talea_core::Span;
use talea_core::machine::{Affinity, Body, Tree};
use talea_core::mutate;
use talea_core::sched::{Policy, TableEntry};
use talea_system::diagnostic;
use talea_system::system;
use talea_system::write::text as quoted;

/// A table, for [`Application::follow`].
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) hyperperiod: Span,
    /// In the order in which they were said; whose they are is said by task.
    pub(crate) entries: Vec<(TaskId, TableEntry)>,
}

fn span(duration: Duration) -> Span {
    Span::from_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Table {
    /// An empty one, which repeats so often.
    pub fn new(hyperperiod: Duration) -> Table {
        Table { hyperperiod: span(hyperperiod), entries: Vec::new() }
    }

    /// From `start` on for `length` the application's CPU `core`, from 0, belongs to `task`.
    #[must_use]
    pub fn entry(mut self, core: u32, start: Duration, length: Duration, task: TaskId) -> Table {
        let (start, end) = (span(start), span(start.saturating_add(length)));
        self.entries.push((task, TableEntry::new(core, start, end, 0)));
        self
    }

    /// Where a task has entries.
    pub(crate) fn cores(&self, task: TaskId) -> Affinity {
        let own = self.entries.iter().filter(|(owner, _)| *owner == task);
        Affinity(own.fold(0, |all, (_, entry)| all | 1_u64.checked_shl(entry.cpu).unwrap_or(0)))
    }

    /// The last entry is for a job in this version, which is one of its task's.
    #[must_use]
    pub fn in_version(mut self, version: VersionId) -> Table {
        self.last().version = Some(version.number as u32);
        self
    }

    /// The last entry makes the job that it runs. Its task's jobs come from such entries only.
    #[must_use]
    pub fn activating(mut self) -> Table {
        self.last().activates = true;
        self
    }

    /// The job in the last entry is meant to go on in a later one, and no overrun if it does.
    #[must_use]
    pub fn going_on(mut self) -> Table {
        self.last().goes_on = true;
        self
    }

    /// # Panics
    /// If there is none: whoever says something of an entry has said one before.
    fn last(&mut self) -> &mut TableEntry {
        &mut self.entries.last_mut().expect("an entry").1
    }

    /// Whether it makes the jobs of `task`.
    pub(crate) fn activates(&self, task: TaskId) -> bool {
        self.entries.iter().any(|(owner, entry)| *owner == task && entry.activates)
    }

    /// Whose its entries are.
    pub(crate) fn owners(&self) -> impl Iterator<Item = TaskId> {
        self.entries.iter().map(|&(task, _)| task)
    }

    /// As the root of `tree` follows it, whose children are the servers and then the tasks.
    pub(crate) fn policy(&self, tree: &Tree) -> Policy {
        let first = tree.children(Tree::ROOT).count();
        let tasks = tree.nodes().filter(|(_, node)| matches!(node.body, Body::Task(_)));
        let tasks: Vec<_> = tasks.map(|(id, _)| id).collect();
        let number = |task: TaskId| {
            let id = tasks[task.number()];
            // One that a server serves is no child of the root: told by a number that no child has.
            tree.children(Tree::ROOT).position(|(child, _)| child == id).unwrap_or(first) as u32
        };
        let entries =
            self.entries.iter().map(|&(task, entry)| TableEntry { owner: number(task), ..entry });
        Policy::Table { hyperperiod: self.hyperperiod, entries: entries.collect() }
    }
}

impl Application {
    /// Follows a table from the next start on, whatever is configured of mapping, priorities and
    /// preemption; or no longer.
    pub fn follow(&mut self, table: Option<Table>) {
        self.table = table;
    }

    /// The table in a system file: of a whole one, whose tasks are called as this application's, or
    /// of what `talea analyze --synthesize table` answers, which has none.
    ///
    /// # Errors
    /// The complaints about the file; that it has no table, or that its entries are somebody's whom
    /// the application does not know.
    pub fn read_table(&self, text: &str) -> Result<Table, Error> {
        let mut text = text.to_owned();
        if !text.lines().any(|line| line.trim_start().starts_with("[[task]]")) {
            self.write_names(&mut text);
        }
        let system = system::read(&text, "the table", &())
            .map_err(|found| Error::Declared(diagnostic::render(&found, false)))?;
        let tables = system.roots.iter().find_map(|root| match &root.tree.get(Tree::ROOT)?.body {
            Body::Scheduler(spec) => match &spec.policy {
                Policy::Table { hyperperiod, entries } => Some((&root.tree, *hyperperiod, entries)),
                _ => None,
            },
            Body::Task(_) => None,
        });
        let Some((tree, hyperperiod, entries)) = tables else {
            return Err(Error::Declared(
                "there is no table in it: no root has the policy \"table\"".to_owned(),
            ));
        };
        let entries = entries.iter().map(|entry| self.adopt(tree, entry));
        Ok(Table { hyperperiod, entries: entries.collect::<Result<_, _>>()? })
    }

    /// An entry of a file as one of this application.
    fn adopt(&self, tree: &Tree, entry: &TableEntry) -> Result<(TaskId, TableEntry), Error> {
        let owner = tree.children(Tree::ROOT).nth(entry.owner as usize).map(|(_, node)| &node.body);
        let Some(Body::Task(spec)) = owner else {
            return Err(Error::Declared("an entry of the table belongs to a scheduler".to_owned()));
        };
        let named =
            |name: &str| self.tasks.iter().position(|declared| declared.task.spec.name == name);
        let Some(task) = named(&spec.name) else {
            let name = &spec.name;
            return Err(Error::Declared(format!(
                "the table has entries of {name}, which is no task here"
            )));
        };
        let version = |number: u32| {
            let name = &spec.versions[number as usize].name;
            let versions = self.tasks[task].versions.iter();
            let found = versions.into_iter().position(|version| version.spec.name == *name);
            found.map(|at| at as u32).ok_or_else(|| {
                let why = format!(
                    "the table wants {} in its version {name}, which it has not",
                    spec.name
                );
                Error::Declared(why)
            })
        };
        let version = entry.version.map(version).transpose()?;
        Ok((
            TaskId::of_number(task),
            mutate!(
                "runtime-table-version",
                TableEntry { version, ..*entry },
                TableEntry { version: version.and(None), ..*entry }
            ),
        ))
    }

    /// Tasks and versions by name, so that a table without any can be read.
    fn write_names(&self, text: &mut String) {
        for declared in &self.tasks {
            // Writing to a String can't fail.
            let _ = writeln!(
                text,
                "\n[[task]]\nname = {}\nperiod = \"1s\"",
                quoted(&declared.task.spec.name)
            );
            for version in &declared.versions {
                let _ = writeln!(
                    text,
                    "[[task.version]]\nname = {}\ncost = \"1ns\"",
                    quoted(&version.spec.name)
                );
            }
        }
    }
}
