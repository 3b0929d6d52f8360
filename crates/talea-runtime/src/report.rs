//! What became of a run.

use crate::config::Rights;
use std::time::Duration;
use talea_os::sched::Policy;

/// Of an application between a start and a stop.
#[derive(Clone, Debug)]
pub struct Report {
    /// How long it was.
    pub length: Duration,
    /// Whether its threads had real-time priorities, in an order that keeps its promises. Without
    /// them nothing is promised: the kernel ran beside them whom it liked.
    pub is_real_time: bool,
    /// Whose right to them it was; [`Rights::Unused`] if there was none.
    pub rights: Rights,
    /// Why it had none, if it wanted them.
    pub why_not: Option<String>,
    /// Whether the process's memory was locked.
    pub is_locked: bool,
    /// What was done to keep its CPUs clear, if it was.
    pub shield: Option<ShieldReport>,
    /// Why that was not done, if it was wanted.
    pub why_not_shielded: Option<String>,
    /// How the kernel scheduled the dispatcher of each of its CPUs, read back from it.
    pub dispatchers: Vec<Policy>,
    /// CPU time that its dispatchers have used, that of waiting awake included.
    pub scheduling: Duration,
    /// The longest that one of them was at it at a time, from waking to having set its next alarm,
    /// by the clock: whoever comes then waits for that. All whose jobs come at one instant are
    /// served at a time.
    pub longest_step: Duration,
    /// CPU time of the threads that work: their jobs, and what they do between them.
    pub worked: Duration,
    /// Activations for which there was no room in a backlog.
    pub refused: u64,
    /// Data that were put into full channels, and so not taken.
    pub full: u64,
    /// Data that were wanted from empty channels.
    pub empty: u64,
    /// By task, in the order of their declaration.
    pub tasks: Vec<TaskReport>,
}

/// Of the CPUs that were kept clear of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShieldReport {
    /// Threads that were moved away, those of this process included that were no part of the run.
    pub threads: u32,
    /// Interrupts that were moved away.
    pub interrupts: u32,
    /// Whatever could still use these CPUs when that was done, each with the reason, as a look at
    /// the machine said.
    pub left: Vec<String>,
    /// Who could use them at the end, and could not at the beginning: somebody has moved there.
    pub strangers: Vec<String>,
    /// How many of what was moved were as they had been at the end.
    pub restored: u32,
    /// How many somebody else had changed meanwhile, and were left alone.
    pub changed: u32,
}

/// Of one task.
#[derive(Clone, Debug, Default)]
pub struct TaskReport {
    /// Its name.
    pub name: String,
    /// Jobs that have ended.
    pub jobs: u64,
    /// Of these, later than their deadlines.
    pub late: u64,
    /// The longest from release to end.
    pub longest: Duration,
    /// From release to end on the average.
    pub mean: Duration,
    /// By version: jobs that began in it.
    pub versions: Vec<u64>,
    /// How the kernel scheduled the thread of its jobs at the start, read back from it.
    pub policy: Option<Policy>,
    /// Jobs that panicked: each ended there, and its accelerators were given back.
    pub panics: u64,
    /// What the first of these said.
    pub first_panic: Option<String>,
}
