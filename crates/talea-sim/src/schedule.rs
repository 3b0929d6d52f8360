//! Who ran where, from when to when: what a chart draws.

use crate::sink::{Completion, Sink};
use talea_core::Time;
use talea_core::machine::{Cpu, TaskId};

/// An interval in which a job ran without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where.
    pub cpu: Cpu,
    /// Whose job.
    pub task: TaskId,
    /// Which, from 0.
    pub job: u64,
    /// From when.
    pub start: Time,
    /// To when.
    pub end: Time,
}

/// Everything that a chart draws, up to a number of segments that its reader can stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// In the order of their ends.
    pub segments: Vec<Segment>,
    /// When jobs arrived.
    pub arrivals: Vec<(Time, TaskId)>,
    /// Jobs that ended.
    pub ended: Vec<Completion>,
    /// From here on nothing was kept, because there were too many segments.
    pub cut: Option<Time>,
    open: Vec<Option<(TaskId, u64, Time)>>,
    most: usize,
}

impl Schedule {
    /// Keeps at most so many segments, and what happens beside them.
    pub fn new(cpus: u32, most: usize) -> Schedule {
        Schedule { open: vec![None; cpus as usize], most, ..Schedule::default() }
    }

    fn close(&mut self, now: Time, cpu: Cpu) {
        let Some((task, job, start)) = self.open[cpu.0 as usize].take() else { return };
        if self.segments.len() >= self.most {
            self.cut.get_or_insert(now);
        } else if start < now {
            self.segments.push(Segment { cpu, task, job, start, end: now });
        }
    }

    /// The run is over: what still runs has run until now.
    pub fn finish(&mut self, now: Time) {
        for cpu in 0..self.open.len() as u32 {
            self.close(now, Cpu(cpu));
        }
    }
}

impl Sink for Schedule {
    fn arrived(&mut self, now: Time, task: TaskId, _nominal: Time) {
        if self.cut.is_none() {
            self.arrivals.push((now, task));
        }
    }

    fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.close(now, cpu);
        self.open[cpu.0 as usize] = Some((task, job, now));
    }

    fn idles(&mut self, now: Time, cpu: Cpu) {
        self.close(now, cpu);
    }

    fn completed(&mut self, job: &Completion) {
        self.close(job.end, job.cpu);
        if self.cut.is_none() {
            self.ended.push(*job);
        }
    }
}
