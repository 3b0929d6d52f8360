//! Record: what a restart of the machine needs.
//!
//! The driver writes a record before the effects that follow from it ([`crate::Effect::Store`]).
//! All else is observed again. A lost record costs no program: running programs are adopted by the
//! names of their tasks.

use crate::generation::Generation;
use crate::ids::{ProcessId, SettingKind, ThreadId};
use crate::inactive::Inactive;
use std::sync::Arc;
use talea_core::Monotonic;

/// State of a deployment that outlives the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Highest number of a generation so far.
    pub last_number: u64,
    /// Generation in force.
    pub in_force: Option<Arc<Generation>>,
    /// Generation before, for a rollback.
    pub before: Option<Arc<Generation>>,
    /// End of the trial of the generation in force, if it must be confirmed.
    pub trial_until: Option<Monotonic>,
    /// `tasks[i]`: state of task `i` of the generation in force.
    pub tasks: Vec<TaskRecord>,
}

/// State of one task that outlives the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskRecord {
    /// Reason why the program is not started; `None` if it must run.
    pub inactive: Option<Inactive>,
    /// Times of the restarts, in order; at most as many as the task may have within its window.
    pub restarts: Vec<Monotonic>,
    /// Earliest time of the next start.
    pub not_before: Option<Monotonic>,
    /// The program that was observed last.
    pub process: Option<ProcessId>,
    /// Time of the last start.
    pub started_at: Option<Monotonic>,
    /// Counters.
    pub counters: Counters,
    /// Values of threads that the machine repairs no longer.
    pub contended: Vec<(ThreadId, SettingKind)>,
}

/// Counters of a task since its generation was applied first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of starts that the machine ordered.
    pub starts: u64,
    /// Number of failures.
    pub failures: u64,
    /// Number of repairs.
    pub repairs: u64,
}

impl Record {
    /// Returns the record for a machine after a reboot: no process and no point in time is valid
    /// any more. A generation on trial was not confirmed, so the one before is in force.
    #[must_use]
    pub fn after_boot(self) -> Record {
        let rolls_back = self.trial_until.is_some();
        let in_force = if rolls_back { self.before.clone() } else { self.in_force };
        let kept = if rolls_back { Vec::new() } else { self.tasks };
        let count = in_force.as_ref().map_or(0, |generation| generation.tasks().len());
        let mut tasks: Vec<TaskRecord> = kept
            .into_iter()
            .map(|task| TaskRecord {
                // A program that ended or failed starts again; an administrator's drain lasts.
                inactive: task.inactive.filter(|why| *why == Inactive::Drained),
                counters: task.counters,
                ..TaskRecord::default()
            })
            .collect();
        tasks.resize(count, TaskRecord::default());
        Record {
            last_number: self.last_number,
            in_force,
            before: self.before.filter(|_| !rolls_back),
            trial_until: None,
            tasks,
        }
    }
}
