//! Generation: the desired state of a deployment, which never changes.

use crate::sha256::sha256;
use std::collections::BTreeSet;
use std::fmt;
use talea_core::health::{Health, OnFailure, Restart, RestartOn};
use talea_core::{Attr, CpuSet, Policy, Span};

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

    /// Reads 64 hexadecimal digits; `None` for any other text.
    pub fn parse(text: &str) -> Option<FileHash> {
        let mut hash = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(FileHash(hash))
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
/// a program, and CPUs of its root; a root with governed tasks has one governor, which governs them
/// and nothing else.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    /// Program with its arguments; at least one word.
    pub words: Vec<String>,
    /// Account of the program's processes; `None` stands for the account of the driver.
    pub user: Option<String>,
    /// Part of the program in its root.
    pub role: Role,
}

impl Command {
    /// Whether a program with this command can play a task with the command `other` without a
    /// restart: the commands are equal, or a governor is to govern by another table.
    pub fn is_same_program(&self, other: &Command) -> bool {
        let role = match (self.role, other.role) {
            (Role::Governor(_), Role::Governor(_)) => other.role,
            (role, _) => role,
        };
        (&self.words, &self.user, role) == (&other.words, &other.user, other.role)
    }
}

/// Part of a program in its root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Linux schedules the threads by the attributes of the task, which the machine keeps.
    #[default]
    Linux,
    /// A governor schedules the threads: the program starts frozen, on these CPUs, in the control
    /// group of its task.
    Governed(CpuSet),
    /// The program is the governor of its root, with the hash of the table by which it governs. A
    /// running governor changes its table ([`Effect::Adjust`](crate::Effect)).
    Governor(FileHash),
}

/// Root of a governor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Governed {
    /// Name of the root.
    pub root: String,
    /// CPUs of the root.
    pub cpus: CpuSet,
    /// Text of a system file with this root alone, which includes no other file.
    pub system: String,
    /// Names of the tasks of the root.
    pub tasks: Vec<String>,
}

impl Governed {
    /// Returns the hash, which differs if a governor needs another table or other tasks.
    pub fn hash(&self) -> FileHash {
        let cpus = self.cpus.to_string();
        let first = [self.root.as_str(), &cpus, &self.system];
        FileHash::of(first.into_iter().chain(self.tasks.iter().map(String::as_str)))
    }
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
    /// Root that the program governs, if it is a governor.
    pub governed: Option<Governed>,
}

/// Time within which a governor must govern.
const GOVERNOR_READY: Span = Span::from_ns(5_000_000_000);
/// Wait before the first restart of a governor. A killed one keeps its groups frozen for a second.
const GOVERNOR_BACKOFF: Span = Span::from_ns(10_000_000);
/// Longest wait before a restart of a governor.
const GOVERNOR_MAX_BACKOFF: Span = Span::from_ns(10_000_000_000);

impl TaskSpec {
    /// Returns the governor of root number `root`. Its words are the name of the program, the root,
    /// its CPUs and its tasks; the driver has its command line. It restarts without a limit of
    /// attempts.
    pub fn governor(root: usize, governed: Governed) -> TaskSpec {
        let name = "talea-governor".to_owned();
        let first = [name, governed.root.clone(), governed.cpus.to_string()];
        let words = first.into_iter().chain(governed.tasks.iter().cloned()).collect();
        let restart = Restart {
            when: RestartOn::Always,
            attempts: u32::MAX,
            within: GOVERNOR_MAX_BACKOFF,
            backoff: GOVERNOR_BACKOFF,
        };
        TaskSpec {
            name: format!("{} (governor)", governed.root),
            root,
            command: Command { words, user: None, role: Role::Governor(governed.hash()) },
            attr: Attr {
                policy: Policy::Other { nice: 0 },
                reset_on_fork: false,
                cpus: CpuSet::EMPTY,
            },
            health: Health { ready: Some(GOVERNOR_READY), on_failure: OnFailure::Restart, restart },
            governed: Some(governed),
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
    /// This governed task has not exactly one governor, which governs the governed tasks of its
    /// root; or this governor governs something else than its root.
    Ungoverned(String),
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
            InvalidGeneration::Ungoverned(task) => {
                write!(f, "{task} and the governor of its root do not fit")
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
        let parts = parts(roots.len(), &tasks);
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
            if !parts[task.root].fit(task, root) {
                return Err(InvalidGeneration::Ungoverned(name()));
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

/// Governors and governed tasks of one root.
#[derive(Clone, Debug, Default)]
struct Parts<'t> {
    governors: Vec<&'t TaskSpec>,
    governed: Vec<&'t String>,
}

impl Parts<'_> {
    /// Whether a task and the governor of its root fit. A task that Linux schedules needs none.
    fn fit(&self, task: &TaskSpec, root: &RootSpec) -> bool {
        match (task.command.role, &task.governed) {
            (Role::Linux, None) => true,
            (Role::Governed(cpus), None) => self.governors.len() == 1 && cpus == root.cpus,
            (Role::Governor(_), Some(governed)) => {
                task.command == TaskSpec::governor(task.root, governed.clone()).command
                    && (&governed.root, governed.cpus) == (&root.name, root.cpus)
                    && self.governed.iter().copied().eq(&governed.tasks)
            }
            _ => false,
        }
    }
}

/// Returns the parts of each root.
fn parts(roots: usize, tasks: &[TaskSpec]) -> Vec<Parts<'_>> {
    let mut parts = vec![Parts::default(); roots];
    for task in tasks {
        let Some(parts) = parts.get_mut(task.root) else { continue };
        match task.command.role {
            Role::Linux => {}
            Role::Governed(_) => parts.governed.push(&task.name),
            Role::Governor(_) => parts.governors.push(task),
        }
    }
    parts
}
