//! A system: its trees, with the load and the names of their tasks.

use talea_config::Diagnostic;
use talea_config::suggest::nearest;
use talea_core::Span;
use talea_core::chain::Link;
use talea_core::engine::Tree;
use talea_core::health::Health;
use talea_core::mutate;
use talea_core::workload::Source as Load;
use talea_core::workload::{Environment, Workload};

/// A complete system.
#[derive(Clone, Debug)]
pub struct System {
    /// Length of a run.
    pub duration: Span,
    /// Seed of all random values.
    pub seed: u64,
    /// The trees, in the order of the file.
    pub roots: Vec<Root>,
    /// Chains of tasks with their required latencies.
    pub chains: Vec<Chain>,
    /// Conditions that a run must meet.
    pub expectations: Vec<Expectation>,
    /// Warnings about a system that can be run.
    pub warnings: Vec<Diagnostic>,
    /// Modes of the file, in its order; empty if it has none. The other fields are those of the
    /// initial mode.
    pub modes: Vec<Mode>,
}

/// Mode of a system: one of several sets of tasks and parameters.
#[derive(Clone, Debug)]
pub struct Mode {
    /// Name in the file.
    pub name: String,
    /// Whether the system starts in the mode. Exactly one mode is initial.
    pub initial: bool,
    /// Whether failures lead to the mode.
    pub fallback: bool,
    /// The system in this mode. It has no modes itself.
    pub system: System,
}

impl System {
    /// Returns the system in the mode `name`.
    ///
    /// # Errors
    /// The system has no such mode: a message with the modes that it has.
    pub fn in_mode(mut self, name: &str) -> Result<System, String> {
        if let Some(at) = self.modes.iter().position(|mode| mode.name == name) {
            return Ok(self.modes.swap_remove(at).system);
        }
        let names: Vec<&str> = self.modes.iter().map(|mode| mode.name.as_str()).collect();
        let known = match nearest(name, names.iter().copied()) {
            Some(meant) => format!("did you mean {meant}?"),
            None if names.is_empty() => "the file has no [[mode]]".into(),
            None => format!("there are {}", names.join(", ")),
        };
        Err(format!("there is no mode {name:?}; {known}"))
    }
}

/// Tree with the load of its tasks.
#[derive(Clone, Debug)]
pub struct Root {
    /// Name in the file.
    pub name: String,
    /// Tree from which an engine is built.
    pub tree: Tree,
    /// `sources[t]`: source of task `t`, in the order of the engine's tasks.
    pub sources: Vec<Load>,
    /// `tasks[t]`: name of task `t`.
    pub tasks: Vec<String>,
    /// `programs[t]`: program with its arguments that runs on real threads in place of the
    /// generated work of task `t`. It has at least one word.
    pub programs: Vec<Option<Vec<String>>>,
    /// `users[t]`: account of the program of task `t`, if the file names one.
    pub users: Vec<Option<String>>,
    /// `health[t]`: readiness of the program of task `t`, and actions at its failures.
    pub health: Vec<Health>,
    /// `logical[t]`: whether the jobs of task `t` read their input at their release and write their
    /// output at their deadline (logical execution time), in chains.
    pub logical: Vec<bool>,
    /// Whether some task of the file states an `offset`, also of zero: then an analysis assumes the
    /// stated phases.
    pub phases_known: bool,
    /// Overheads, stalls, and changes of battery, mode and mask.
    pub surroundings: Environment,
}

impl Root {
    /// Returns the workload of the root's tasks. A caller with several roots passes a separate seed
    /// for each root.
    pub fn workload(&self, seed: u64) -> Workload {
        Workload { sources: self.sources.clone(), seed }
    }
}

/// Cause-effect chain: a path of data through tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Name for reports.
    pub name: String,
    /// Tasks on the path.
    pub tasks: Vec<ChainTask>,
    /// `links[i]`: communication from task `i` to task `i + 1`.
    pub links: Vec<Link>,
    /// Required maximum of the reaction time.
    pub reaction: Option<Span>,
    /// Required maximum of the data age.
    pub age: Option<Span>,
    /// Line number for reports.
    pub line: u32,
}

/// Task of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainTask {
    /// Index of the root.
    pub root: usize,
    /// Index of the task in its root.
    pub task: usize,
}

impl Chain {
    /// Returns the names of the chain's tasks, which are tasks of `roots`.
    pub fn task_names<'r>(&self, roots: &'r [Root]) -> impl Iterator<Item = &'r str> {
        self.tasks.iter().map(|of| roots[of.root].tasks[of.task].as_str())
    }
}

/// Condition that a run must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Name of a task, or a prefix of several names with `*`; `None` means all tasks.
    pub task: Option<String>,
    /// Maximum number of late jobs.
    pub misses: Option<u64>,
    /// Maximum response time.
    pub response: Option<Span>,
    /// Line number for reports.
    pub line: u32,
}

impl Expectation {
    /// Whether the expectation applies to the task with the name `name`.
    pub fn is_about(&self, name: &str) -> bool {
        match &self.task {
            None => true,
            Some(task) => match task.strip_suffix('*') {
                Some(start) => {
                    mutate!("system-expect-star", name.starts_with(start), name == start)
                }
                None => task == name,
            },
        }
    }
}
