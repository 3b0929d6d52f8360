//! Whoever wants to know what happened.

use talea_core::machine::{Cpu, Note, TaskId};
use talea_core::mutate;
use talea_core::{Span, Time};

/// A job that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Whose.
    pub task: TaskId,
    /// Which, from 0.
    pub job: u64,
    /// From when it could run.
    pub release: Time,
    /// Absolute.
    pub deadline: Time,
    /// When it ended.
    pub end: Time,
    /// Where it ended.
    pub cpu: Cpu,
}

impl Completion {
    /// From release to end.
    pub fn response(&self) -> Span {
        self.end.since(self.release)
    }

    /// Whether it ended after its deadline.
    pub fn is_late(&self) -> bool {
        mutate!("sim-sink-late", self.end > self.deadline, self.end >= self.deadline)
    }
}

/// Is told what happens, in the order in which it does. What is not overridden costs nothing.
#[allow(unused_variables, reason = "an open list")]
pub trait Sink {
    /// A job has arrived.
    fn arrived(&mut self, now: Time, task: TaskId, nominal: Time) {}
    /// A job has arrived and there was no room for it.
    fn refused(&mut self, now: Time, task: TaskId) {}
    /// `cpu` goes over to a job.
    fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {}
    /// A job is dispatched for the first time, in this version.
    fn begins(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64, version: u32) {}
    /// The machine had something to say.
    fn noted(&mut self, now: Time, note: &Note) {}
    /// `cpu` goes over to nothing.
    fn idles(&mut self, now: Time, cpu: Cpu) {}
    /// A job has ended.
    fn completed(&mut self, job: &Completion) {}
}

impl Sink for () {}

/// Two sinks at once.
impl<A: Sink, B: Sink> Sink for (A, B) {
    fn arrived(&mut self, now: Time, task: TaskId, nominal: Time) {
        self.0.arrived(now, task, nominal);
        self.1.arrived(now, task, nominal);
    }

    fn refused(&mut self, now: Time, task: TaskId) {
        self.0.refused(now, task);
        self.1.refused(now, task);
    }

    fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.0.runs(now, cpu, task, job);
        self.1.runs(now, cpu, task, job);
    }

    fn begins(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64, version: u32) {
        self.0.begins(now, cpu, task, job, version);
        self.1.begins(now, cpu, task, job, version);
    }

    fn noted(&mut self, now: Time, note: &Note) {
        self.0.noted(now, note);
        self.1.noted(now, note);
    }

    fn idles(&mut self, now: Time, cpu: Cpu) {
        self.0.idles(now, cpu);
        self.1.idles(now, cpu);
    }

    fn completed(&mut self, job: &Completion) {
        self.0.completed(job);
        mutate!(
            "sim-sink-pair",
            {
                self.1.completed(job);
            },
            {}
        );
    }
}

/// Per task: how many, how late, how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By task.
    pub tasks: Vec<Count>,
}

/// The sums of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Jobs that arrived.
    pub arrived: u64,
    /// Of these, had no room.
    pub refused: u64,
    /// Ended.
    pub completed: u64,
    /// Of these, after their deadline.
    pub late: u64,
    /// The longest response time.
    pub worst: Span,
}

impl Counters {
    /// For so many tasks.
    pub fn new(tasks: usize) -> Counters {
        Counters { tasks: vec![Count::default(); tasks] }
    }

    /// All tasks together.
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
    fn arrived(&mut self, _now: Time, task: TaskId, _nominal: Time) {
        self.tasks[task.0 as usize].arrived += 1;
    }

    fn refused(&mut self, _now: Time, task: TaskId) {
        self.tasks[task.0 as usize].refused += 1;
    }

    #[inline]
    fn completed(&mut self, job: &Completion) {
        let count = &mut self.tasks[job.task.0 as usize];
        count.completed += 1;
        count.late += u64::from(job.is_late());
        count.worst = mutate!("sim-sink-worst", count.worst.max(job.response()), job.response());
    }
}

/// Every job that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// In the order in which they ended.
    pub ended: Vec<Completion>,
}

impl Sink for Jobs {
    #[inline]
    fn completed(&mut self, job: &Completion) {
        self.ended.push(*job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that it was told, in words.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Heard(Vec<String>);

    impl Sink for Heard {
        fn arrived(&mut self, now: Time, task: TaskId, nominal: Time) {
            self.0.push(format!("arrived {now:?} {task:?} {nominal:?}"));
        }
        fn refused(&mut self, now: Time, task: TaskId) {
            self.0.push(format!("refused {now:?} {task:?}"));
        }
        fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
            self.0.push(format!("runs {now:?} {cpu:?} {task:?} {job}"));
        }
        fn begins(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64, version: u32) {
            self.0.push(format!("begins {now:?} {cpu:?} {task:?} {job} {version}"));
        }
        fn noted(&mut self, now: Time, note: &Note) {
            self.0.push(format!("noted {now:?} {note:?}"));
        }
        fn idles(&mut self, now: Time, cpu: Cpu) {
            self.0.push(format!("idles {now:?} {cpu:?}"));
        }
        fn completed(&mut self, job: &Completion) {
            self.0.push(format!("completed {job:?}"));
        }
    }

    #[test]
    fn both_of_two_sinks_are_told_everything() {
        let (now, cpu, task) = (Time::from_ns(3), Cpu(1), TaskId(2));
        let mut both = (Heard::default(), Heard::default());
        both.arrived(now, task, Time::ZERO);
        both.refused(now, task);
        both.runs(now, cpu, task, 4);
        both.begins(now, cpu, task, 4, 1);
        both.noted(now, &Note::Refused { task });
        both.idles(now, cpu);
        both.completed(&Completion { task, job: 4, release: now, deadline: now, end: now, cpu });
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
            counters.arrived(Time::ZERO, TaskId(task), Time::ZERO);
        }
        counters.refused(Time::ZERO, TaskId(1));
        // At its deadline; late, and the longest; short.
        for job in [job(0, 20, 20), job(0, 20, 21), job(1, 20, 15)] {
            counters.completed(&job);
        }
        let [a, b] = counters.tasks[..] else { panic!("two tasks") };
        let count = |arrived, refused, completed, late, worst| {
            let worst = Span::from_ns(worst);
            Count { arrived, refused, completed, late, worst }
        };
        assert_eq!((a, b), (count(2, 0, 2, 1, 11), count(2, 1, 1, 0, 5)));
        assert_eq!(counters.total(), count(4, 1, 3, 1, 11));
        counters.completed(&job(0, 20, 12));
        assert_eq!(counters.tasks[0].worst, Span::from_ns(11));
    }
}
