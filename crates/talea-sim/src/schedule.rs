//! A schedule for a chart: the jobs that ran on each CPU, with their times.

use talea_core::Time;
use talea_core::engine::{Cpu, TaskId};
use talea_core::mutate;
use talea_core::sink::{Completion, Segment, Sink};

/// All data of a chart, up to a maximum number of segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Segments, in the order of their ends.
    pub segments: Vec<Segment>,
    /// Times of arrivals, with their tasks.
    pub arrivals: Vec<(Time, TaskId)>,
    /// Completed jobs.
    pub ended: Vec<Completion>,
    /// Time from which the schedule stored nothing, because it reached the maximum number of
    /// segments.
    pub cut: Option<Time>,
    open: Vec<Option<(TaskId, u64, Time)>>,
    max_segments: usize,
}

impl Schedule {
    /// Creates an empty schedule that stores at most `max_segments` segments.
    pub fn new(cpus: u32, max_segments: usize) -> Schedule {
        Schedule { open: vec![None; cpus as usize], max_segments, ..Schedule::default() }
    }

    fn close(&mut self, now: Time, cpu: Cpu) {
        let Some((task, job, start)) = self.open[cpu.0 as usize].take() else { return };
        if self.segments.len() >= self.max_segments {
            let first = self.cut.unwrap_or(now);
            self.cut = mutate!("sim-sink-cut", Some(first), None);
        } else if start < now {
            self.segments.push(Segment { cpu, task, job, start, end: now });
        }
    }

    /// Closes the open segments at the end of the run.
    pub fn finish(&mut self, now: Time) {
        for cpu in 0..self.open.len() as u32 {
            self.close(now, Cpu(cpu));
        }
    }
}

impl Sink for Schedule {
    fn on_arrival(&mut self, now: Time, task: TaskId, _nominal: Time) {
        if self.cut.is_none() {
            self.arrivals.push((now, task));
        }
    }

    fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        mutate!("sim-sink-schedule", self.close(now, cpu));

        self.open[cpu.0 as usize] = Some((task, job, now));
    }

    fn on_idle(&mut self, now: Time, cpu: Cpu) {
        self.close(now, cpu);
    }

    fn on_completion(&mut self, job: &Completion) {
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

    fn sample(max_segments: usize) -> Schedule {
        let (cpu, task) = (Cpu(0), TaskId);
        let mut schedule = Schedule::new(1, max_segments);
        schedule.on_arrival(at(0), task(0), at(0));
        schedule.on_dispatch(at(0), cpu, task(0), 0);
        // A preemption, and a second one within the same instant.
        schedule.on_dispatch(at(4), cpu, task(1), 0);
        schedule.on_dispatch(at(4), cpu, task(2), 0);
        let (release, deadline) = (at(4), at(9));
        schedule.on_completion(&Completion {
            task: task(2),
            job: 0,
            release,
            deadline,
            end: at(6),
            cpu,
        });
        schedule.on_dispatch(at(6), cpu, task(0), 0);
        schedule.on_idle(at(9), cpu);
        schedule.on_arrival(at(10), task(0), at(10));
        schedule.on_dispatch(at(10), cpu, task(0), 1);
        schedule.finish(at(15));
        schedule
    }

    #[test]
    fn segments_are_the_intervals_in_which_jobs_ran() {
        let schedule = sample(100);
        let segments = schedule.segments.iter();
        let intervals: Vec<(u32, u64, u64, u64)> =
            segments.map(|s| (s.task.0, s.job, s.start.as_ns(), s.end.as_ns())).collect();
        assert_eq!(intervals, [(0, 0, 0, 4), (2, 0, 4, 6), (0, 0, 6, 9), (0, 1, 10, 15)]);
        assert_eq!((schedule.arrivals.len(), schedule.ended.len(), schedule.cut), (2, 1, None));
    }

    #[test]
    fn segments_beyond_the_limit_are_dropped_and_reported() {
        let schedule = sample(2);
        assert_eq!(schedule.segments.len(), 2);
        assert_eq!((schedule.arrivals.len(), schedule.cut), (1, Some(at(9))));
    }
}
