//! Statistics of a run that has not ended.

use crate::job_stats::JobStats;
use crate::mechanism::StoppedTime;
use crate::successor::{Successor, TreeInForce};
use std::fmt;
use talea_core::Time;

/// Statistics of one root since the start of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootStatistics {
    /// Time of the last step.
    pub now: Time,
    /// Number of refused jobs.
    pub refused: u64,
    /// Tree in force: its number, and when and why it began.
    pub tree: TreeInForce,
    /// `tasks[n]`: statistics of task `n`.
    pub tasks: Vec<TaskStatistics>,
}

/// Statistics of one task since the start of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStatistics {
    /// Statistics of the completed jobs.
    pub jobs: JobStats,
    /// CPU time that the program consumed while it was stopped. `None` for a thread.
    pub stopped: Option<StoppedTime>,
    /// Description of the first change of policy or affinity of one of the program's threads that
    /// the run did not make.
    pub policy_changed: Option<String>,
}

/// Root of a run that an engine schedules. Each method takes the lock of the root.
pub(crate) trait RunningRoot: Send + Sync + fmt::Debug {
    /// Reads the statistics.
    fn statistics(&self) -> RootStatistics;
    /// Requests a switch to another tree. Returns whether the root switches.
    fn request_switch(&self, successor: Box<Successor>) -> bool;
}
