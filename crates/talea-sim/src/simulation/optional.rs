//! State of the optional features of a simulation: job steps, stalls and overheads, changes of
//! conditions.

use crate::interference::{Interference, Overheads};
use talea_core::engine::{Condition, TaskId};
use talea_core::heap::Heap;
use talea_core::mutate;
use talea_core::workload::job_program::JobProgram;
use talea_core::{Span, Time};

/// State of the optional features.
#[derive(Debug)]
pub(super) struct Optional {
    /// `programs[t]`: job program of task `t`.
    pub(super) programs: Vec<Option<JobProgram>>,
    /// Self-suspended tasks, by the end of their suspension.
    pub(super) suspended: Heap,
    /// `occupying[t]`: wait of task `t` for a device, in which its job keeps the CPU.
    pub(super) occupying: Vec<Option<Occupation>>,
    /// Changes of conditions, in order of time.
    pub(super) changes: Vec<(Time, Condition)>,
    /// Index of the next change.
    pub(super) changed: usize,
    pub(super) interference: Option<Interference>,
    /// Time of the current instant.
    pub(super) now: Time,
}

/// Wait for a device in which a job keeps its CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occupation {
    /// Time at which the device completes.
    pub(super) until: Time,
    pub(super) is_spinning: bool,
}

impl Optional {
    /// Returns the state of a simulation of `tasks` tasks that uses no feature yet.
    pub(super) fn new(tasks: usize) -> Optional {
        Optional {
            programs: vec![None; tasks],
            suspended: Heap::new(tasks),
            occupying: vec![None; tasks],
            changes: Vec::new(),
            changed: 0,
            interference: None,
            now: Time::ZERO,
        }
    }

    /// Returns the time of the next change of a condition.
    pub(super) fn next_change(&self) -> Time {
        self.changes.get(self.changed).map_or(Time::NEVER, |&(at, _)| at)
    }

    /// Returns the progress of a job on a CPU between `from` and `now`.
    pub(super) fn progress(&self, cpu: usize, from: Time, now: Time) -> Span {
        self.interference.as_ref().map_or_else(
            || now.since(from),
            |interference| {
                mutate!(
                    "sim-overhead-budget",
                    interference.progress(cpu, from, now),
                    now.since(from).max(interference.progress(cpu, from, now))
                )
            },
        )
    }

    /// Returns the CPU time that `task` has consumed while it waited for a device, if it does, for
    /// `progress` on its CPU.
    pub(super) fn consumption_of_wait(&self, task: TaskId, progress: Span) -> Option<Span> {
        let occupation = self.occupying[task.0 as usize]?;
        Some(if occupation.is_spinning { progress } else { Span::ZERO })
    }

    /// Adds the overhead of a dispatch of `task`.
    pub(super) fn add_dispatch_overhead(
        &mut self,
        now: Time,
        cpu: usize,
        task: TaskId,
        begins: bool,
    ) {
        let Some(interference) = &mut self.interference else { return };
        interference.discard_before(cpu, now);
        let Overheads { decision, level, switch, migration, .. } = interference.overheads;
        let levels = level.as_ns().saturating_mul(mutate!(
            "sim-overhead-level",
            u64::from(interference.levels[task.0 as usize]),
            u64::from(interference.levels[task.0 as usize] - 1)
        ));
        let mut cost = mutate!(
            "sim-overhead-switch",
            mutate!(
                "sim-overhead-decision",
                decision.as_ns().saturating_add(switch.as_ns()),
                switch.as_ns()
            )
            .saturating_add(levels),
            decision.as_ns().saturating_add(levels)
        );
        mutate!(
            "sim-overhead-migration",
            if core::mem::replace(&mut interference.last[task.0 as usize], cpu) != cpu && !begins {
                cost = cost.saturating_add(migration.as_ns());
            },
            if core::mem::replace(&mut interference.last[task.0 as usize], cpu) != cpu {
                cost = cost.saturating_add(migration.as_ns());
            }
        );
        interference.add_overhead(cpu, now, Span::from_ns(cost));
    }
}
