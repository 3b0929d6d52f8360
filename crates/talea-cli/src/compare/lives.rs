//! When each job began and ended.

use crate::measured;
use std::collections::{BTreeMap, BTreeSet};
use talea_core::machine::{Cpu, Job, TaskId, Tree};
use talea_core::{Span, Time};
use talea_exec::RootReport;
use talea_sim::{Completion, Sink};

/// Whose job, and which.
pub(crate) type Name = (TaskId, u64);

/// What is known of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) begin: Option<Time>,
    pub(crate) end: Option<Time>,
    /// Of one that has ended, or is known not to have.
    pub(crate) release: Option<Time>,
    pub(crate) deadline: Option<Time>,
}

/// All jobs of a root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lives {
    pub(crate) jobs: BTreeMap<Name, Life>,
    /// Jobs that have arrived and not ended.
    pub(crate) pending: u64,
    /// When there were none any more.
    pub(crate) clear: Vec<Time>,
    /// Programs, whose jobs may have no end and are held to their budgets: nobody waits for them.
    pub(crate) aside: BTreeSet<TaskId>,
}

impl Lives {
    /// What real threads of a root with this tree did.
    pub(crate) fn of(tree: &Tree, real: &RootReport) -> anyhow::Result<Lives> {
        let programs =
            (0..).map(TaskId).zip(&real.programs).filter(|(_, program)| program.is_some());
        let mut lives =
            Lives { aside: programs.map(|(task, _)| task).collect(), ..Lives::default() };
        let mut machine = tree.build().map_err(|error| anyhow::anyhow!("{}", error.why))?;
        measured::retell(&mut machine, &real.record, &mut lives, |_, _, _| {})
            .map_err(measured::not_replayed)?;
        let tasks = (0..machine.tasks() as u32).map(TaskId);
        let unfinished: Vec<_> =
            tasks.flat_map(|task| machine.unfinished(task).map(move |job| (task, job))).collect();
        lives.finish(&unfinished);
        Ok(lives)
    }

    /// The same by whatever mechanism, in a run of this length.
    pub(crate) fn of_any(tree: &Tree, real: &RootReport, length: Span) -> anyhow::Result<Lives> {
        let mut lives = Lives::default();
        match measured::told_natively(real, length, &mut lives) {
            Some(unfinished) => lives.finish(&unfinished),
            None => return Lives::of(tree, real),
        }
        Ok(lives)
    }

    /// What had not ended when the run did.
    pub(crate) fn finish(&mut self, unfinished: &[(TaskId, Job)]) {
        for (task, job) in unfinished {
            let life = self.jobs.entry((*task, job.number)).or_default();
            (life.release, life.deadline) = (Some(job.release), Some(job.deadline));
        }
    }
}

impl Sink for Lives {
    fn arrived(&mut self, _now: Time, task: TaskId, _nominal: Time) {
        self.pending += u64::from(!self.aside.contains(&task));
    }

    fn refused(&mut self, _now: Time, task: TaskId) {
        self.pending -= u64::from(!self.aside.contains(&task));
    }

    fn begins(&mut self, now: Time, _cpu: Cpu, task: TaskId, job: u64, _version: u32) {
        self.jobs.entry((task, job)).or_default().begin = Some(now);
    }

    fn completed(&mut self, job: &Completion) {
        let life = self.jobs.entry((job.task, job.job)).or_default();
        (life.end, life.release, life.deadline) =
            (Some(job.end), Some(job.release), Some(job.deadline));
        if self.aside.contains(&job.task) {
            return;
        }
        self.pending = self.pending.saturating_sub(1);
        if self.pending == 0 {
            self.clear.push(job.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_has_to_do_keeps_nobody_from_being_done() {
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        let mut lives = Lives { aside: [TaskId(0)].into(), ..Lives::default() };
        let ended = |task, end| {
            let (task, job, release, deadline, end) = (TaskId(task), 0, at(1), at(9), at(end));
            Completion { task, job, release, deadline, end, cpu: Cpu(0) }
        };
        for task in [0, 1] {
            lives.arrived(at(1), TaskId(task), at(1));
        }
        lives.completed(&ended(1, 4));
        lives.completed(&ended(0, 6));
        assert_eq!((lives.clear.as_slice(), lives.jobs.len()), (&[at(4)][..], 2));
    }
}
