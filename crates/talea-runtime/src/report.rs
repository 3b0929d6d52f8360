//! Report of a run.

use crate::config::Rights;
use std::time::Duration;
use talea_os::sched::Policy;

/// Report of an application from a start to a stop.
#[derive(Clone, Debug)]
pub struct Report {
    /// Length of the run.
    pub length: Duration,
    /// Whether its threads had real-time priorities in the required order. Without them nothing is
    /// guaranteed: the kernel ran other threads beside them.
    pub is_real_time: bool,
    /// Source of the right to them; [`Rights::Unused`] if there was none.
    pub rights: Rights,
    /// Reason why it had none, if it wanted them.
    pub rights_error: Option<String>,
    /// Whether the memory of the process was locked.
    pub is_locked: bool,
    /// Shield of its CPUs, if there was one.
    pub shield: Option<ShieldReport>,
    /// Reason why there was no shield, if one was requested.
    pub shield_error: Option<String>,
    /// Policy of the dispatcher of each CPU, read from the kernel.
    pub dispatchers: Vec<Policy>,
    /// CPU time of its dispatchers, including spinning.
    pub scheduling_time: Duration,
    /// Maximum duration of a step of a dispatcher, from waking to setting its next wake-up time; an
    /// event in it waits for that. A step delivers all jobs that are released at one instant.
    pub max_step: Duration,
    /// CPU time of the workers: their jobs, and what they do between them.
    pub worker_time: Duration,
    /// Activations that were refused because a backlog was full.
    pub refused: u64,
    /// Pushes to full channels.
    pub rejected_pushes: u64,
    /// Pops from empty channels.
    pub failed_pops: u64,
    /// Reports of the tasks, in the order of declaration.
    pub tasks: Vec<TaskReport>,
}

/// Report of the shield of its CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShieldReport {
    /// Threads that were moved away, including those of this process that were not part of the run.
    pub threads: u32,
    /// Interrupts that were moved away.
    pub interrupts: u32,
    /// Threads and interrupts that could still use these CPUs after that, each with the reason, by
    /// one scan of the system.
    pub not_moved: Vec<String>,
    /// Threads that could use the CPUs at the end and not at the beginning.
    pub foreign_threads: Vec<String>,
    /// Number of moved threads and interrupts that were unchanged at the end and were restored.
    pub restored: u32,
    /// Number of those that another process had changed meanwhile; they were left alone.
    pub changed: u32,
}

/// Report of one task.
#[derive(Clone, Debug, Default)]
pub struct TaskReport {
    /// Name.
    pub name: String,
    /// Jobs that have completed.
    pub jobs: u64,
    /// Completed jobs that missed their deadline.
    pub deadline_misses: u64,
    /// Maximum response time, from release to completion.
    pub max_response: Duration,
    /// Mean response time.
    pub mean_response: Duration,
    /// Jobs that started, by version.
    pub versions: Vec<u64>,
    /// Policy of its worker at the start, read from the kernel.
    pub policy: Option<Policy>,
    /// Jobs that panicked: each ended there, and its accelerators were released.
    pub panics: u64,
    /// Message of the first panic.
    pub first_panic: Option<String>,
}
