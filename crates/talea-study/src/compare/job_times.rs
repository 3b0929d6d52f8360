//! Start and end times of jobs.

use crate::live_run;
use std::collections::{BTreeMap, BTreeSet};
use talea_core::engine::{Cpu, Job, TaskId, Tree};
use talea_core::{Span, Time};
use talea_exec::RootReport;
use talea_sim::{Completion, Sink};

/// Identification of a job: task and number.
pub type JobId = (TaskId, u64);

/// Times of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTimes {
    /// Start of the job. `None` if it did not start.
    pub begin: Option<Time>,
    /// End of the job. `None` if it did not end.
    pub end: Option<Time>,
    /// Release of the job. Only known if the job has ended or is known to be unfinished.
    pub release: Option<Time>,
    /// Absolute deadline.
    pub deadline: Option<Time>,
}

/// Times of all jobs of a root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLog {
    /// Times of each job.
    pub jobs: BTreeMap<JobId, JobTimes>,
    /// Number of jobs that have arrived and not ended.
    pub pending: u64,
    /// Times at which `pending` became zero.
    pub idle_times: Vec<Time>,
    /// Tasks that are programs. Their jobs may be endless and are limited by budgets, so they do
    /// not count as pending.
    pub programs: BTreeSet<TaskId>,
}

impl JobLog {
    /// Reads the log of a root with this tree from the record of real threads.
    pub fn from_record(tree: &Tree, real: &RootReport) -> anyhow::Result<JobLog> {
        let programs =
            (0..).map(TaskId).zip(&real.programs).filter(|(_, program)| program.is_some());
        let mut log =
            JobLog { programs: programs.map(|(task, _)| task).collect(), ..JobLog::default() };
        let mut machine = tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
        talea_exec::replay::replay_to_sink(&mut machine, &real.record, &mut log, |_, _, _| {})
            .map_err(live_run::replay_error)?;
        let tasks = (0..machine.tasks() as u32).map(TaskId);
        let unfinished: Vec<_> =
            tasks.flat_map(|task| machine.unfinished(task).map(move |job| (task, job))).collect();
        log.add_unfinished(&unfinished);
        Ok(log)
    }

    /// Reads the log of a run of this length, with any mechanism.
    pub fn from_run(tree: &Tree, real: &RootReport, length: Span) -> anyhow::Result<JobLog> {
        let mut log = JobLog::default();
        match live_run::replay_if_native(real, length, &mut log) {
            Some(unfinished) => log.add_unfinished(&unfinished),
            None => return JobLog::from_record(tree, real),
        }
        Ok(log)
    }

    /// Adds the jobs that had not ended at the end of the run.
    pub fn add_unfinished(&mut self, unfinished: &[(TaskId, Job)]) {
        for (task, job) in unfinished {
            let times = self.jobs.entry((*task, job.number)).or_default();
            (times.release, times.deadline) = (Some(job.release), Some(job.deadline));
        }
    }
}

impl Sink for JobLog {
    fn on_arrival(&mut self, _now: Time, task: TaskId, _nominal: Time) {
        self.pending += u64::from(!self.programs.contains(&task));
    }

    fn on_refusal(&mut self, _now: Time, task: TaskId) {
        self.pending -= u64::from(!self.programs.contains(&task));
    }

    fn on_start(&mut self, now: Time, _cpu: Cpu, task: TaskId, job: u64, _version: u32) {
        self.jobs.entry((task, job)).or_default().begin = Some(now);
    }

    fn on_completion(&mut self, job: &Completion) {
        let times = self.jobs.entry((job.task, job.job)).or_default();
        (times.end, times.release, times.deadline) =
            (Some(job.end), Some(job.release), Some(job.deadline));
        if self.programs.contains(&job.task) {
            return;
        }
        self.pending = self.pending.saturating_sub(1);
        if self.pending == 0 {
            self.idle_times.push(job.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_does_not_prevent_an_idle_time() {
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        let mut log = JobLog { programs: [TaskId(0)].into(), ..JobLog::default() };
        let ended = |task, end| {
            let (task, job, release, deadline, end) = (TaskId(task), 0, at(1), at(9), at(end));
            Completion { task, job, release, deadline, end, cpu: Cpu(0) }
        };
        for task in [0, 1] {
            log.on_arrival(at(1), TaskId(task), at(1));
        }
        log.on_completion(&ended(1, 4));
        log.on_completion(&ended(0, 6));
        assert_eq!((log.idle_times.as_slice(), log.jobs.len()), (&[at(4)][..], 2));
    }
}
