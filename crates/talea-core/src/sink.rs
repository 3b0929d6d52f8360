//! Receivers of the events of a run, in the one form of all runs: simulated, executed or replayed.

use crate::engine::{Cpu, Notification, TaskId};
use crate::mutate;
use crate::{Span, Time};
use alloc::vec;
use alloc::vec::Vec;

/// Data of a completed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Task of the job.
    pub task: TaskId,
    /// Number of the job, from 0.
    pub job: u64,
    /// Release of the job, its earliest start.
    pub release: Time,
    /// Absolute deadline.
    pub deadline: Time,
    /// Completion time.
    pub end: Time,
    /// CPU of the completion.
    pub cpu: Cpu,
}

impl Completion {
    /// Returns the response time: completion minus release.
    pub fn response(&self) -> Span {
        self.end.since(self.release)
    }

    /// Whether the job completed after its deadline.
    pub fn is_late(&self) -> bool {
        mutate!("sim-sink-late", self.end > self.deadline, self.end >= self.deadline)
    }
}

/// Interval in which a job ran without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// CPU of the job.
    pub cpu: Cpu,
    /// Task of the job.
    pub task: TaskId,
    /// Number of the job, from 0.
    pub job: u64,
    /// Start of the interval.
    pub start: Time,
    /// End of the interval.
    pub end: Time,
}

/// Receiver of events, in the order of their occurrence. Methods without an implementation cost
/// nothing.
#[allow(unused_variables, reason = "an open list")]
pub trait Sink {
    /// Receives the arrival of a job.
    fn on_arrival(&mut self, now: Time, task: TaskId, nominal: Time) {}
    /// Receives the refusal of an arrived job, whose backlog is full.
    fn on_refusal(&mut self, now: Time, task: TaskId) {}
    /// Receives a dispatch: `cpu` switches to a job.
    fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {}
    /// Receives the first dispatch of a job, in `version`.
    fn on_start(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64, version: u32) {}
    /// Receives a notification of the engine.
    fn on_notification(&mut self, now: Time, notification: &Notification) {}
    /// Receives an idle order of `cpu`.
    fn on_idle(&mut self, now: Time, cpu: Cpu) {}
    /// Receives the completion of a job.
    fn on_completion(&mut self, job: &Completion) {}
}

impl Sink for () {}

/// Forwards every event to two sinks.
impl<A: Sink, B: Sink> Sink for (A, B) {
    fn on_arrival(&mut self, now: Time, task: TaskId, nominal: Time) {
        self.0.on_arrival(now, task, nominal);
        self.1.on_arrival(now, task, nominal);
    }

    fn on_refusal(&mut self, now: Time, task: TaskId) {
        self.0.on_refusal(now, task);
        self.1.on_refusal(now, task);
    }

    fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.0.on_dispatch(now, cpu, task, job);
        self.1.on_dispatch(now, cpu, task, job);
    }

    fn on_start(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64, version: u32) {
        self.0.on_start(now, cpu, task, job, version);
        self.1.on_start(now, cpu, task, job, version);
    }

    fn on_notification(&mut self, now: Time, notification: &Notification) {
        self.0.on_notification(now, notification);
        self.1.on_notification(now, notification);
    }

    fn on_idle(&mut self, now: Time, cpu: Cpu) {
        self.0.on_idle(now, cpu);
        self.1.on_idle(now, cpu);
    }

    fn on_completion(&mut self, job: &Completion) {
        self.0.on_completion(job);
        mutate!("sim-sink-pair", self.1.on_completion(job));
    }
}

/// Counters of all tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `tasks[t]`: counters of task `t`.
    pub tasks: Vec<Count>,
}

/// Counters of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Arrived jobs.
    pub arrived: u64,
    /// Refused jobs.
    pub refused: u64,
    /// Completed jobs.
    pub completed: u64,
    /// Jobs that completed after their deadline.
    pub late: u64,
    /// Longest response time.
    pub worst: Span,
}

impl Counters {
    /// Creates counters for a number of tasks.
    pub fn new(tasks: usize) -> Counters {
        Counters { tasks: vec![Count::default(); tasks] }
    }

    /// Returns the totals over all tasks.
    pub fn total(&self) -> Count {
        self.tasks.iter().fold(Count::default(), |sum, task| Count {
            arrived: sum.arrived + task.arrived,
            refused: sum.refused + task.refused,
            completed: sum.completed + task.completed,
            late: sum.late + task.late,
            worst: mutate!("sim-sink-total", sum.worst.max(task.worst), sum.worst + task.worst),
        })
    }
}

impl Sink for Counters {
    #[inline]
    fn on_arrival(&mut self, _now: Time, task: TaskId, _nominal: Time) {
        self.tasks[task.0 as usize].arrived += 1;
    }

    fn on_refusal(&mut self, _now: Time, task: TaskId) {
        self.tasks[task.0 as usize].refused += mutate!("sim-sink-refused", 1, 0);
    }

    #[inline]
    fn on_completion(&mut self, job: &Completion) {
        let count = &mut self.tasks[job.task.0 as usize];
        count.completed += 1;
        count.late += u64::from(job.is_late());
        count.worst = mutate!("sim-sink-worst", count.worst.max(job.response()), job.response());
    }
}

/// Sink that stores all completed jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// Jobs in the order of completion.
    pub ended: Vec<Completion>,
}

impl Sink for Jobs {
    #[inline]
    fn on_completion(&mut self, job: &Completion) {
        self.ended.push(*job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    /// Sink that stores all received events as text.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Recorder(Vec<String>);

    impl Sink for Recorder {
        fn on_arrival(&mut self, now: Time, task: TaskId, nominal: Time) {
            self.0.push(format!("arrived {now:?} {task:?} {nominal:?}"));
        }
        fn on_refusal(&mut self, now: Time, task: TaskId) {
            self.0.push(format!("refused {now:?} {task:?}"));
        }
        fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
            self.0.push(format!("runs {now:?} {cpu:?} {task:?} {job}"));
        }
        fn on_start(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64, version: u32) {
            self.0.push(format!("begins {now:?} {cpu:?} {task:?} {job} {version}"));
        }
        fn on_notification(&mut self, now: Time, notification: &Notification) {
            self.0.push(format!("notification {now:?} {notification:?}"));
        }
        fn on_idle(&mut self, now: Time, cpu: Cpu) {
            self.0.push(format!("idles {now:?} {cpu:?}"));
        }
        fn on_completion(&mut self, job: &Completion) {
            self.0.push(format!("completed {job:?}"));
        }
    }

    #[test]
    fn both_of_two_sinks_receive_every_event() {
        let (now, cpu, task) = (Time::from_ns(3), Cpu(1), TaskId(2));
        let mut both = (Recorder::default(), Recorder::default());
        both.on_arrival(now, task, Time::ZERO);
        both.on_refusal(now, task);
        both.on_dispatch(now, cpu, task, 4);
        both.on_start(now, cpu, task, 4, 1);
        both.on_notification(now, &Notification::Refused { task });
        both.on_idle(now, cpu);
        both.on_completion(&Completion {
            task,
            job: 4,
            release: now,
            deadline: now,
            end: now,
            cpu,
        });
        assert_eq!(both.0.0.len(), 7);
        assert_eq!(both.0, both.1);
    }

    #[test]
    fn counters_count_each_task_and_all_together() {
        let mut counters = Counters::new(2);
        let job = |task, deadline, end| {
            let (release, end) = (Time::from_ns(10), Time::from_ns(end));
            Completion {
                task: TaskId(task),
                job: 0,
                release,
                deadline: Time::from_ns(deadline),
                end,
                cpu: Cpu(0),
            }
        };
        for task in [0, 0, 1, 1] {
            counters.on_arrival(Time::ZERO, TaskId(task), Time::ZERO);
        }
        counters.on_refusal(Time::ZERO, TaskId(1));
        // One job at its deadline, one late and longest, one short.
        for job in [job(0, 20, 20), job(0, 20, 21), job(1, 20, 15)] {
            counters.on_completion(&job);
        }
        let [a, b] = counters.tasks[..] else { panic!("two tasks") };
        let count = |arrived, refused, completed, late, worst| {
            let worst = Span::from_ns(worst);
            Count { arrived, refused, completed, late, worst }
        };
        assert_eq!((a, b), (count(2, 0, 2, 1, 11), count(2, 1, 1, 0, 5)));
        assert_eq!(counters.total(), count(4, 1, 3, 1, 11));
        counters.on_completion(&job(0, 20, 12));
        assert_eq!(counters.tasks[0].worst, Span::from_ns(11));
    }
}
