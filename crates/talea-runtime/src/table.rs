//! Off-line schedules: intervals of CPUs that were computed before the run (YASMIN section 3.4).
//!
//! Model (docs/model.md, section 9): entries on each CPU in a hyperperiod that repeats from the
//! start. Between entries the CPU is idle. A job that starts in an entry has the version of the
//! entry, and the engine does not check accelerators, because the table decided about both. Jobs
//! are released as declared, or an entry activates the job that it runs.

use crate::application::{Application, TaskId, VersionId};
use crate::running::Error;
use std::fmt::Write;
use std::time::Duration;
use talea_config::diagnostic;
use talea_config::write::text as quoted;
use talea_core::Span;
use talea_core::engine::{Affinity, NodeSpec, Tree};
use talea_core::mutate;
use talea_core::sched::{PolicySpec, TableEntry};
use talea_system as system;

/// Table for [`Application::set_table`].
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

impl Application {
    /// Sets the table that replaces the configured mapping, order and preemption from the next
    /// start on. `None` removes the table.
    pub fn set_table(&mut self, table: Option<Table>) {
        self.table = table;
    }

    /// Reads the table of a system file. The file is complete, with the task names of this
    /// application, or is the output of `talea analyze --synthesize table`, which has no tasks.
    ///
    /// # Errors
    /// The diagnostics of the file. Also an error if the file has no table, or has entries of tasks
    /// that the application does not have.
    pub fn read_table(&self, text: &str) -> Result<Table, Error> {
        let mut text = text.to_owned();
        if !text.lines().any(|line| line.trim_start().starts_with("[[task]]")) {
            self.write_names(&mut text);
        }
        let system = system::read(&text, "the table", &())
            .map_err(|found| Error::Declared(diagnostic::render(&found, false)))?;
        let tables = system.roots.iter().find_map(|root| match &root.tree.get(Tree::ROOT)?.spec {
            NodeSpec::Scheduler(spec) => match &spec.policy {
                PolicySpec::Table { hyperperiod, entries } => {
                    Some((&root.tree, *hyperperiod, entries))
                }
                _ => None,
            },
            NodeSpec::Task(_) => None,
        });
        let Some((tree, hyperperiod, entries)) = tables else {
            return Err(Error::Declared(
                "it has no table: no root has the policy \"table\"".to_owned(),
            ));
        };
        let entries = entries.iter().map(|entry| self.import_entry(tree, entry));
        Ok(Table { hyperperiod, entries: entries.collect::<Result<_, _>>()? })
    }

    /// Converts an entry of a file to an entry of this application.
    fn import_entry(&self, tree: &Tree, entry: &TableEntry) -> Result<(TaskId, TableEntry), Error> {
        let owner = tree.children(Tree::ROOT).nth(entry.owner as usize).map(|(_, node)| &node.spec);
        let Some(NodeSpec::Task(spec)) = owner else {
            return Err(Error::Declared("an entry of the table belongs to a scheduler".to_owned()));
        };
        let named =
            |name: &str| self.tasks.iter().position(|declared| declared.task.spec.name == name);
        let Some(task) = named(&spec.name) else {
            let name = &spec.name;
            return Err(Error::Declared(format!(
                "the table has entries of {name}, which is not a task of the application"
            )));
        };
        let version = |number: u32| {
            let name = &spec.versions[number as usize].name;
            let versions = self.tasks[task].versions.iter();
            let found = versions.into_iter().position(|version| version.spec.name == *name);
            found.map(|at| at as u32).ok_or_else(|| {
                let why =
                    format!("the table has {} in version {name}, which does not exist", spec.name);
                Error::Declared(why)
            })
        };
        let version = entry.version.map(version).transpose()?;
        Ok((
            TaskId::from_index(task),
            mutate!(
                "runtime-table-version",
                TableEntry { version, ..*entry },
                TableEntry { version: version.and(None), ..*entry }
            ),
        ))
    }

    /// Writes tasks and versions with their names, so that a reader accepts a table without tasks.
    fn write_names(&self, text: &mut String) {
        for declared in &self.tasks {
            // Writing to a String cannot fail.
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
