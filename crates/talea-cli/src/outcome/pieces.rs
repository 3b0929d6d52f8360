//! The pieces in which a job ran: what a file of jobs says beside when it was released and when it
//! ended.
//!
//! As in LITMUS^RT's `st-job-stats`, from when a CPU goes over to a job until it goes over to
//! something else: overheads and holes that fall into a piece belong to it. A piece of no length is
//! none: within an instant only the last order counts.

use talea_core::machine::{Cpu, TaskId};
use talea_core::mutate;
use talea_core::{Span, Time};

/// What is known of the job of a task that has run last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ran {
    /// How long it had a CPU.
    pub(super) total: Span,
    /// How often it stopped before its end: for others, for want of a budget or a slot, or to wait.
    pub(super) stops: u64,
    /// How often it went on on another CPU.
    pub(super) moves: u64,
    /// Whether a table has stopped it because its entry was over.
    pub(super) overrun: bool,
    job: u64,
    /// Where and until when it ran last.
    last: Option<(Cpu, Time)>,
}

/// Of a root.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    tasks: Vec<Ran>,
    /// By CPU: who runs there since when.
    open: Vec<Option<(TaskId, Time)>>,
}

impl Pieces {
    pub(super) fn new(cpus: u32, tasks: usize) -> Pieces {
        Pieces { tasks: vec![Ran::default(); tasks], open: vec![None; cpus as usize] }
    }

    /// `cpu` goes over to a job.
    pub(super) fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.idles(now, cpu);
        self.leaves(now, task);
        let ran = &mut self.tasks[task.0 as usize];
        if ran.job != job || ran.last.is_none() {
            *ran = Ran { job, ..Ran::default() };
        }
        self.open[cpu.0 as usize] = Some((task, now));
    }

    /// `cpu` goes over to something else.
    pub(super) fn idles(&mut self, now: Time, cpu: Cpu) {
        let Some((task, since)) =
            self.open[cpu.0 as usize].take().filter(|&(_, since)| since < now)
        else {
            return;
        };
        let ran = &mut self.tasks[task.0 as usize];
        if let Some((before, until)) = ran.last.replace((cpu, now)) {
            ran.stops += mutate!(
                "cli-jobs-stops",
                u64::from((before, until) != (cpu, since)),
                u64::from((before, until) != (cpu, since) || until == since)
            );
            ran.moves += u64::from(mutate!("cli-jobs-moves", before != cpu, before.0 > cpu.0));
        }
        ran.total += now.since(since);
    }

    /// It has no CPU any more: it may be told that it runs there first, and that it has gone from
    /// here then.
    fn leaves(&mut self, now: Time, task: TaskId) {
        for cpu in 0..self.open.len() {
            if self.open[cpu].is_some_and(|(here, _)| here == task) {
                self.idles(now, Cpu(cpu as u32));
            }
        }
    }

    /// The entry of a job is over.
    pub(super) fn overran(&mut self, task: TaskId, job: u64) {
        let ran = &mut self.tasks[task.0 as usize];
        ran.overrun |= ran.job == job;
    }

    /// A job has ended; what is known of it.
    pub(super) fn ended(&mut self, now: Time, task: TaskId) -> Ran {
        self.leaves(now, task);
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
        let mut pieces = Pieces::new(2, 2);
        let [one, other] = [TaskId(0), TaskId(1)];
        pieces.runs(at(0), here, one, 7);
        // Given the other CPU and back within an instant.
        pieces.runs(at(3), there, one, 7);
        pieces.runs(at(3), here, one, 7);
        pieces.idles(at(3), there);
        // Stopped for another, and gone on elsewhere; the old CPU is told later that it is free.
        pieces.runs(at(5), here, other, 0);
        pieces.runs(at(6), there, one, 7);
        pieces.overran(one, 7);
        pieces.runs(at(8), here, one, 7);
        pieces.idles(at(8), there);
        let ran = pieces.ended(at(10), one);
        assert_eq!((ran.total.as_ns(), ran.moves, ran.overrun), (9, 2, true));
        // At 5 and at 8; at 3 it went on where it was.
        assert_eq!(ran.stops, 2);
        // The next job begins anew, also with the same number: a run that is told again.
        pieces.runs(at(20), there, one, 7);
        let ran = pieces.ended(at(21), one);
        assert_eq!((ran.total.as_ns(), ran.stops, ran.moves, ran.overrun), (1, 0, 0, false));
    }
}
