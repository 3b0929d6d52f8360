//! Who ran where, from when to when: what a chart draws.

use crate::sink::{Completion, Sink};
use talea_core::Time;
use talea_core::machine::{Cpu, TaskId};
use talea_core::mutate;

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
        mutate!(
            "sim-sink-schedule",
            {
                self.close(now, cpu);
            },
            {}
        );

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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    fn told(most: usize) -> Schedule {
        let (cpu, task) = (Cpu(0), TaskId);
        let mut schedule = Schedule::new(1, most);
        schedule.arrived(at(0), task(0), at(0));
        schedule.runs(at(0), cpu, task(0), 0);
        // Interrupted, and the one that interrupts is taken back within the instant.
        schedule.runs(at(4), cpu, task(1), 0);
        schedule.runs(at(4), cpu, task(2), 0);
        let (release, deadline) = (at(4), at(9));
        schedule.completed(&Completion {
            task: task(2),
            job: 0,
            release,
            deadline,
            end: at(6),
            cpu,
        });
        schedule.runs(at(6), cpu, task(0), 0);
        schedule.idles(at(9), cpu);
        schedule.arrived(at(10), task(0), at(10));
        schedule.runs(at(10), cpu, task(0), 1);
        schedule.finish(at(15));
        schedule
    }

    #[test]
    fn segments_are_who_ran_from_when_to_when() {
        let schedule = told(100);
        let segments = schedule.segments.iter();
        let seen: Vec<(u32, u64, u64, u64)> =
            segments.map(|s| (s.task.0, s.job, s.start.as_ns(), s.end.as_ns())).collect();
        assert_eq!(seen, [(0, 0, 0, 4), (2, 0, 4, 6), (0, 0, 6, 9), (0, 1, 10, 15)]);
        assert_eq!((schedule.arrivals.len(), schedule.ended.len(), schedule.cut), (2, 1, None));
    }

    #[test]
    fn what_is_beyond_the_most_is_left_out_and_said() {
        let schedule = told(2);
        assert_eq!(schedule.segments.len(), 2);
        assert_eq!((schedule.arrivals.len(), schedule.cut), (1, Some(at(9))));
    }
}
