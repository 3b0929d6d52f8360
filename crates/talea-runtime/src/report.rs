//! Report of a run.

use crate::config::Rights;
use std::time::Duration;
use talea_os::sched::Policy;

/// Report of an application from a start to a stop.
#[derive(Clone, Debug)]
pub struct Report {
    /// Length of the run.
    pub length: Duration,
    /// Whether the threads of the run had real-time priorities in the required order. Without them
    /// nothing is guaranteed, because the kernel ran other threads beside them.
    pub is_real_time: bool,
    /// Source of the right to the priorities; [`Rights::Unused`] if there was none.
    pub rights: Rights,
    /// Reason why the run had no right, if the configuration requested one.
    pub rights_error: Option<String>,
    /// Whether the memory of the process was locked.
    pub is_locked: bool,
    /// Report of the shield of the run's CPUs, if there was one.
    pub shield: Option<ShieldReport>,
    /// Reason why there was no shield, if one was requested.
    pub shield_error: Option<String>,
    /// `dispatchers[c]`: policy of the dispatcher of CPU `c`, read from the kernel.
    pub dispatchers: Vec<Policy>,
    /// CPU time of the run's dispatchers, including spinning.
    pub scheduling_time: Duration,
    /// Maximum duration of a step of a dispatcher, from waking to setting the next wake-up time. An
    /// event during the step waits for that long. A step delivers all jobs that are released at one
    /// instant.
    pub max_step: Duration,
    /// CPU time of the workers, for jobs and between jobs.
    pub worker_time: Duration,
    /// Number of activations that were refused because a backlog was full.
    pub refused: u64,
    /// Number of pushes to full channels.
    pub rejected_pushes: u64,
    /// Number of pops from empty channels.
    pub failed_pops: u64,
    /// Reports of the tasks, in the order of declaration.
    pub tasks: Vec<TaskReport>,
}

/// Report of the shield of a run's CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShieldReport {
    /// Number of threads that were moved away, including those of this process that were not part
    /// of the run.
    pub threads: u32,
    /// Number of interrupts that were moved away.
    pub interrupts: u32,
    /// Threads and interrupts that could still use these CPUs after the move, each with the reason.
    /// The list is from one scan of the system.
    pub not_moved: Vec<String>,
    /// Threads that could use the CPUs at the end of the run and not at its beginning.
    pub foreign_threads: Vec<String>,
    /// Number of moved threads and interrupts that were unchanged at the end and were restored.
    pub restored: u32,
    /// Number of moved threads and interrupts that another process had changed meanwhile, so that
    /// they were not restored.
    pub changed: u32,
}

/// Report of one task.
#[derive(Clone, Debug, Default)]
pub struct TaskReport {
    /// Name of the task.
    pub name: String,
    /// Number of jobs that have completed.
    pub jobs: u64,
    /// Number of completed jobs that missed their deadline.
    pub deadline_misses: u64,
    /// Maximum response time, from release to completion.
    pub max_response: Duration,
    /// Mean response time.
    pub mean_response: Duration,
    /// `versions[v]`: number of jobs that started in version `v`.
    pub versions: Vec<u64>,
    /// Policy of the task's worker at the start, read from the kernel.
    pub policy: Option<Policy>,
    /// Number of jobs that panicked. The panic ended the job, and the runtime released its
    /// accelerators.
    pub panics: u64,
    /// Message of the first panic.
    pub first_panic: Option<String>,
}
