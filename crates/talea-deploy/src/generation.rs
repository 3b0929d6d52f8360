//! Generation: the desired state of a deployment, which never changes.

use crate::sha256::sha256;
use std::collections::BTreeSet;
use std::fmt;
use talea_core::health::Health;
use talea_core::{Attr, CpuSet};

/// Hash of the text of a system file with all included files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHash(pub [u8; 32]);

impl FileHash {
    /// Returns the SHA-256 of texts, each with its length in bytes before it.
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> FileHash {
        let mut all = Vec::new();
        for text in texts {
            all.extend((text.len() as u64).to_be_bytes());
            all.extend(text.as_bytes());
        }
        FileHash(sha256(&all))
    }
}

impl fmt::Display for FileHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Desired state of a deployment.
///
/// Invariants, checked by [`Generation::new`]: the names of tasks are unique; each task has a root,
/// a program, and CPUs of its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    number: u64,
    hash: FileHash,
    is_unproved: bool,
    roots: Vec<RootSpec>,
    tasks: Vec<TaskSpec>,
    report: String,
}

/// Root of the described system, on the computer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootSpec {
    /// Name in the file.
    pub name: String,
    /// CPUs of the computer that the root owns.
    pub cpus: CpuSet,
}

/// Program of a task with the user that it runs as.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Command {
    /// Program with its arguments; at least one word.
    pub words: Vec<String>,
    /// Account of the program's processes; `None` stands for the account of the driver.
    pub user: Option<String>,
}

/// Task of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// Name in the file.
    pub name: String,
    /// Index of the root.
    pub root: usize,
    /// Program that plays the task.
    pub command: Command,
    /// Attributes of all threads of the program. An empty set of CPUs leaves the CPUs as they are.
    pub attr: Attr,
    /// Readiness, and actions at failures.
    pub health: Health,
}

/// Reason why a generation is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidGeneration {
    /// Two tasks have this name.
    DuplicateName(String),
    /// The root of this task does not exist.
    UnknownRoot(String),
    /// The program of this task has no word.
    NoProgram(String),
    /// This task uses CPUs that its root does not own.
    ForeignCpus(String),
}

impl fmt::Display for InvalidGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidGeneration::DuplicateName(task) => write!(f, "two tasks have the name {task}"),
            InvalidGeneration::UnknownRoot(task) => write!(f, "the root of {task} does not exist"),
            InvalidGeneration::NoProgram(task) => write!(f, "{task} has no program"),
            InvalidGeneration::ForeignCpus(task) => {
                write!(f, "{task} uses CPUs that its root does not own")
            }
        }
    }
}

impl std::error::Error for InvalidGeneration {}

impl Generation {
    /// Creates a generation. `report` is the text of its analysis. `is_unproved` records that it
    /// was admitted although not every deadline is proved.
    ///
    /// # Errors
    /// The first violated invariant.
    pub fn new(
        number: u64,
        hash: FileHash,
        roots: Vec<RootSpec>,
        tasks: Vec<TaskSpec>,
        report: String,
        is_unproved: bool,
    ) -> Result<Generation, InvalidGeneration> {
        let mut names = BTreeSet::new();
        for task in &tasks {
            let name = || task.name.clone();
            if !names.insert(&task.name) {
                return Err(InvalidGeneration::DuplicateName(name()));
            }
            let Some(root) = roots.get(task.root) else {
                return Err(InvalidGeneration::UnknownRoot(name()));
            };
            if task.command.words.is_empty() {
                return Err(InvalidGeneration::NoProgram(name()));
            }
            if !task.attr.cpus.is_subset(&root.cpus) {
                return Err(InvalidGeneration::ForeignCpus(name()));
            }
        }
        Ok(Generation { number, hash, is_unproved, roots, tasks, report })
    }

    /// Returns the number, which no other generation of the computer has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the generation with another number.
    #[must_use]
    pub fn with_number(self, number: u64) -> Generation {
        Generation { number, ..self }
    }

    /// Returns the hash of the file.
    pub fn hash(&self) -> FileHash {
        self.hash
    }

    /// Whether the generation was admitted although not every deadline is proved.
    pub fn is_unproved(&self) -> bool {
        self.is_unproved
    }

    /// Returns the roots, in the order of the file.
    pub fn roots(&self) -> &[RootSpec] {
        &self.roots
    }

    /// Returns the tasks, in the order of the file.
    pub fn tasks(&self) -> &[TaskSpec] {
        &self.tasks
    }

    /// Returns the text of the analysis.
    pub fn report(&self) -> &str {
        &self.report
    }

    /// Returns the task with this name.
    pub fn task(&self, name: &str) -> Option<&TaskSpec> {
        self.tasks.iter().find(|task| task.name == name)
    }
}
