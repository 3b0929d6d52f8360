//! Statistics of a run that has not ended.

use crate::job_stats::JobStats;
use crate::mechanism::StoppedTime;
use std::fmt;
use talea_core::Time;

/// Statistics of one root since the start of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootStatistics {
    /// Time of the last step.
    pub now: Time,
    /// Number of refused jobs.
    pub refused: u64,
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

/// Source of the statistics of a root.
pub(crate) trait StatisticsSource: Send + Sync + fmt::Debug {
    /// Reads the statistics, under the lock of the root.
    fn statistics(&self) -> RootStatistics;
}
