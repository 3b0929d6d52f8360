//! Tables from system files, which name the tasks and versions of an application.

use crate::application::Application;
use crate::error::Error;
use crate::table::Table;
use crate::task::TaskId;
use std::fmt::Write;
use talea_config::diagnostic;
use talea_config::write::text as quoted;
use talea_core::engine::{NodeSpec, Tree};
use talea_core::mutate;
use talea_core::sched::{PolicySpec, TableEntry};
use talea_system as system;

impl Application {
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
