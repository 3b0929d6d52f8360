//! Status of a deployment, for an administrator.

use crate::generation::Generation;
use crate::ids::{ProcessId, SettingKind, ThreadId};
use crate::inactive::Inactive;
use crate::record::Counters;
use std::sync::Arc;
use talea_core::Monotonic;

/// Status of a deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Generation in force.
    pub in_force: Option<Arc<Generation>>,
    /// Generation before, for a rollback.
    pub before: Option<Arc<Generation>>,
    /// End of the trial of the generation in force, if it must be confirmed.
    pub trial_until: Option<Monotonic>,
    /// Tasks of the generation in force, in the order of the file.
    pub tasks: Vec<TaskStatus>,
}

/// Status of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStatus {
    /// Name of the task.
    pub name: String,
    /// Condition of its program.
    pub condition: Condition,
    /// First process of its program.
    pub process: Option<ProcessId>,
    /// Counters.
    pub counters: Counters,
    /// Values of threads that another writer changes again and again.
    pub contended: Vec<(ThreadId, SettingKind)>,
}

/// Condition of the program of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The program is to be started, or its start is not observed yet.
    Starting,
    /// The program runs, and is ready if it reports that.
    Running,
    /// The program runs and has not reported that it is ready.
    NotReady,
    /// The program is being stopped.
    Stopping,
    /// The program starts again at this time.
    BackOff(Monotonic),
    /// The program is not started.
    Inactive(Inactive),
}
