//! Execution intervals of jobs, for the file of jobs.
//!
//! As in LITMUS^RT's `st-job-stats`, an interval lasts from the dispatch of a job until the CPU
//! switches: it includes overheads and stalls. An interval of length zero does not count, because
//! within an instant only the last order has an effect.

use talea_core::engine::{Cpu, TaskId};
use talea_core::mutate;
use talea_core::{Span, Time};

/// Execution of the last job of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobExecution {
    /// Total time of the job on CPUs.
    pub(super) total: Span,
    /// Number of interruptions of the job before its end: by other jobs, by an exhausted budget, by
    /// the end of a slot, or by waiting.
    pub(super) preemptions: u64,
    /// Number of continuations of the job on another CPU.
    pub(super) migrations: u64,
    /// Whether a table has stopped the job at the end of its entry.
    pub(super) overrun: bool,
    job: u64,
    /// CPU and end of the job's last interval.
    last: Option<(Cpu, Time)>,
}

/// Execution intervals of one root.
#[derive(Clone, Debug)]
pub(super) struct ExecIntervals {
    tasks: Vec<JobExecution>,
    /// `open[cpu]`: task that runs on the CPU, and the start of its interval.
    open: Vec<Option<(TaskId, Time)>>,
}

impl ExecIntervals {
    pub(super) fn new(cpus: u32, tasks: usize) -> ExecIntervals {
        ExecIntervals {
            tasks: vec![JobExecution::default(); tasks],
            open: vec![None; cpus as usize],
        }
    }

    /// Records that `cpu` dispatches a job.
    pub(super) fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.idles(now, cpu);
        self.close_task(now, task);
        let ran = &mut self.tasks[task.0 as usize];
        if ran.job != job || ran.last.is_none() {
            *ran = JobExecution { job, ..JobExecution::default() };
        }
        self.open[cpu.0 as usize] = Some((task, now));
    }

    /// Records that `cpu` stops its job.
    pub(super) fn idles(&mut self, now: Time, cpu: Cpu) {
        let Some((task, since)) =
            self.open[cpu.0 as usize].take().filter(|&(_, since)| since < now)
        else {
            return;
        };
        let ran = &mut self.tasks[task.0 as usize];
        if let Some((before, until)) = ran.last.replace((cpu, now)) {
            ran.preemptions += mutate!(
                "cli-jobs-preemptions",
                u64::from((before, until) != (cpu, since)),
                u64::from((before, until) != (cpu, since) || until == since)
            );
            ran.migrations +=
                u64::from(mutate!("cli-jobs-migrations", before != cpu, before.0 > cpu.0));
        }
        ran.total += now.since(since);
    }

    /// Closes the interval of a task. The dispatch on the new CPU may be reported before the end on
    /// the old one.
    fn close_task(&mut self, now: Time, task: TaskId) {
        for cpu in 0..self.open.len() {
            if self.open[cpu].is_some_and(|(here, _)| here == task) {
                self.idles(now, Cpu(cpu as u32));
            }
        }
    }

    /// Records that the entry of a job has ended.
    pub(super) fn overran(&mut self, task: TaskId, job: u64) {
        let ran = &mut self.tasks[task.0 as usize];
        ran.overrun |= ran.job == job;
    }

    /// Records the end of a job and returns its execution.
    pub(super) fn ended(&mut self, now: Time, task: TaskId) -> JobExecution {
        self.close_task(now, task);
        std::mem::take(&mut self.tasks[task.0 as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    #[test]
    fn l22_stops_and_moves_are_those_of_pieces_that_have_a_length() {
        let [here, there] = [Cpu(0), Cpu(1)];
        let mut pieces = ExecIntervals::new(2, 2);
        let [one, other] = [TaskId(0), TaskId(1)];
        pieces.runs(at(0), here, one, 7);
        // On the other CPU and back within an instant.
        pieces.runs(at(3), there, one, 7);
        pieces.runs(at(3), here, one, 7);
        pieces.idles(at(3), there);
        // Preempted, and continued on another CPU; the end on the old CPU is reported later.
        pieces.runs(at(5), here, other, 0);
        pieces.runs(at(6), there, one, 7);
        pieces.overran(one, 7);
        pieces.runs(at(8), here, one, 7);
        pieces.idles(at(8), there);
        let ran = pieces.ended(at(10), one);
        assert_eq!((ran.total.as_ns(), ran.migrations, ran.overrun), (9, 2, true));
        // At 5 and at 8; at 3 it continued on its CPU.
        assert_eq!(ran.preemptions, 2);
        // The next job starts anew, also with the same number.
        pieces.runs(at(20), there, one, 7);
        let ran = pieces.ended(at(21), one);
        assert_eq!(
            (ran.total.as_ns(), ran.preemptions, ran.migrations, ran.overrun),
            (1, 0, 0, false)
        );
    }
}
