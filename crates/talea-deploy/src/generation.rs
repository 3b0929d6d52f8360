//! Generation: the desired state of a deployment, which never changes.

use std::collections::BTreeSet;
use std::fmt;
use talea_core::{Attr, CpuSet, Span};

/// Hash of the text of a system file with all included files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHash(pub [u8; 32]);

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
    /// Time from the start within which the program reports that it is ready; `None` if it reports
    /// nothing.
    pub ready: Option<Span>,
    /// Action at a failure.
    pub on_failure: OnFailure,
    /// Restarts; they matter under [`OnFailure::Restart`] only.
    pub restart: Restart,
}

/// Action at a failure: an exit with another status than success, or a program that is not ready in
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The program is started again, within the limits of [`Restart`].
    #[default]
    Restart,
    /// The program is stopped and not started again.
    Idle,
    /// No action: a program that is not ready runs on, and one that exited stays away.
    Ignore,
}

/// Exits after which a program is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartOn {
    /// Failures only.
    #[default]
    Failure,
    /// Every exit, also a successful one.
    Always,
}

/// Limits of restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Exits after which the program is started again.
    pub when: RestartOn,
    /// Maximum number of restarts within `within`. After that the task has failed.
    pub attempts: u32,
    /// Window of `attempts`.
    pub within: Span,
    /// Time before the first restart; each further one within the window waits twice as long, up to
    /// the window.
    pub backoff: Span,
}

impl Default for Restart {
    /// Three restarts within a minute, the first after a second.
    fn default() -> Restart {
        Restart {
            when: RestartOn::Failure,
            attempts: 3,
            within: Span::from_ns(60_000_000_000),
            backoff: Span::from_ns(1_000_000_000),
        }
    }
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
