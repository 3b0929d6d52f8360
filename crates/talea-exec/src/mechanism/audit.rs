//! Another mechanism under observation: what did each worker consume while it was chosen, and what
//! besides?
//!
//! The kernel's CPU clock of each worker is read whenever it is let run and whenever it is stopped.
//! What lies between is *ordered*; what its clock shows at the end beyond that is *stray*: the way
//! from the end of a job to the wait for the next (a few microseconds a job), and anything that
//! should not have been. What an order lasted longer than its worker's clock went on is a
//! [`Stretch`].

use super::{After, Mechanism};
use crate::stretch::{Stretch, Stretches};
use crate::work::Job;
use talea_core::machine::{Cpu, TaskId};
use talea_core::{Span, Time, Work};

/// Of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// While it was chosen.
    pub ordered: Work,
    /// In all, from the begin of the run to when it was last looked at.
    pub total: Work,
    since: Option<Since>,
}

/// What a worker's clock showed when it was ordered to run, and when and where that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Since {
    used: Work,
    now: Time,
    cpu: Cpu,
}

impl Consumed {
    /// Of a worker that knows it itself.
    pub(crate) fn told(ordered: Work, total: Work) -> Consumed {
        Consumed { ordered, total, since: None }
    }

    /// What it has consumed without having been chosen.
    pub fn stray(&self) -> Work {
        self.total.checked_sub(self.ordered).unwrap_or(Work::ZERO)
    }
}

/// A mechanism that is watched, or is not: then only the end of the run is seen.
#[derive(Debug)]
pub struct Audited<M> {
    inner: M,
    on: bool,
    tasks: Vec<Consumed>,
    /// What their clocks showed at the begin.
    from: Vec<Work>,
    now: Time,
    stretches: Stretches,
}

impl<M: Mechanism> Audited<M> {
    /// Watches the workers of so many tasks, if `on`: two looks at a clock each time that somebody
    /// runs.
    pub fn new(mut inner: M, tasks: usize, on: bool) -> Result<Audited<M>, M::Error> {
        let from =
            (0..tasks).map(|task| inner.used(TaskId(task as u32))).collect::<Result<_, _>>()?;
        let (tasks, stretches) = (vec![Consumed::default(); tasks], Stretches::new());
        Ok(Audited { inner, on, tasks, from, now: Time::ZERO, stretches })
    }

    /// What each has consumed until the run was over; of a mechanism that was not watched all of it
    /// counts as ordered.
    pub fn consumed(&self) -> &[Consumed] {
        &self.tasks
    }

    /// Orders that lasted longer than their workers ran; of a mechanism that was not watched none
    /// are known.
    pub(crate) fn stretches(&self) -> &Stretches {
        &self.stretches
    }

    fn open(&mut self, cpu: Cpu, task: TaskId) -> Result<(), M::Error> {
        if !self.on {
            return Ok(());
        }
        let since = Since { used: self.inner.used(task)?, now: self.now, cpu };
        self.tasks[task.0 as usize].since.get_or_insert(since);
        Ok(())
    }

    fn close(&mut self, task: TaskId) -> Result<(), M::Error> {
        let Some(since) = self.tasks[task.0 as usize].since.take() else { return Ok(()) };
        let used = self.inner.used(task)?.checked_sub(since.used).unwrap_or(Work::ZERO);
        self.tasks[task.0 as usize].ordered += used;
        let Since { now: from, cpu, .. } = since;
        let lasted = self.now.since(from);
        let by = lasted.checked_sub(Span::from_ns(used.as_ns())).unwrap_or(Span::ZERO);
        self.stretches.put(Stretch { cpu: cpu.0, from, to: self.now, by });
        Ok(())
    }
}

impl<M: Mechanism> Mechanism for Audited<M> {
    type Error = M::Error;

    fn at(&mut self, now: Time, by: Option<TaskId>) {
        self.now = now;
        self.inner.at(now, by);
    }

    fn used(&mut self, task: TaskId) -> Result<Work, M::Error> {
        self.inner.used(task)
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> Result<(), M::Error> {
        self.open(cpu, task)?;
        self.inner.begin(cpu, task, job)
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> Result<(), M::Error> {
        self.open(cpu, task)?;
        self.inner.resume(cpu, task)
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, successor: bool) -> Result<(), M::Error> {
        self.inner.stop(cpu, task, successor)?;
        // After it: on another CPU it ran until then.
        self.close(task)
    }

    fn ended(&mut self, task: TaskId) -> Result<(), M::Error> {
        self.close(task)?;
        self.inner.ended(task)
    }

    fn grade(&mut self, grades: &[u8]) -> Result<(), M::Error> {
        self.inner.grade(grades)
    }

    fn ready(&mut self, task: TaskId) -> Result<(), M::Error> {
        self.inner.ready(task)
    }

    fn after(&mut self) -> After {
        self.inner.after()
    }

    fn rest(&mut self, cpu: Cpu) -> Result<(), M::Error> {
        self.inner.rest(cpu)
    }

    fn quiet(&mut self, cpu: Cpu) -> Option<TaskId> {
        self.inner.quiet(cpu)
    }

    fn woke(&mut self) -> Option<TaskId> {
        self.inner.woke()
    }

    fn settle(&mut self) -> Result<(), M::Error> {
        self.inner.settle()
    }

    fn leave(&mut self) {
        for at in 0..self.tasks.len() {
            let task = TaskId(at as u32);
            // A worker that has fallen has no clock any more, and its run is no run.
            let closed = self.close(task);
            let tasks = &mut self.tasks[at];
            tasks.total = match (closed, self.inner.used(task)) {
                (Ok(()), Ok(used)) => used.checked_sub(self.from[at]).unwrap_or(Work::ZERO),
                _ => tasks.ordered,
            };
            if !self.on {
                tasks.ordered = tasks.total;
            }
        }
        self.inner.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// One worker; its clock is set by hand.
    #[derive(Default)]
    struct Clock(u64);

    impl Mechanism for Clock {
        type Error = Infallible;

        fn used(&mut self, _task: TaskId) -> Result<Work, Infallible> {
            Ok(Work::from_ns(self.0 * 1_000))
        }

        fn begin(&mut self, _cpu: Cpu, _task: TaskId, _job: Job) -> Result<(), Infallible> {
            Ok(())
        }

        fn resume(&mut self, _cpu: Cpu, _task: TaskId) -> Result<(), Infallible> {
            Ok(())
        }

        fn stop(&mut self, _cpu: Cpu, _task: TaskId, _successor: bool) -> Result<(), Infallible> {
            Ok(())
        }

        fn ended(&mut self, _task: TaskId) -> Result<(), Infallible> {
            Ok(())
        }

        fn rest(&mut self, _cpu: Cpu) -> Result<(), Infallible> {
            Ok(())
        }
    }

    #[test]
    fn an_order_that_lasts_longer_than_its_worker_runs_is_a_stretch() {
        const TASK: TaskId = TaskId(0);
        let at = |us: u64| Time::from_ns(us * 1_000);
        let Ok(mut audited) = Audited::new(Clock::default(), 1, true);
        let job = Job { number: 0, version: 0, cost: Work::from_ns(9_000_000) };
        // From, to, what its clock has gone on by, and in between: who knows.
        for (from, to, used) in [(100, 5_100, 3_000), (6_000, 8_000, 1_901), (9_000, 9_500, 700)] {
            audited.at(at(from), None);
            let Ok(()) = audited.begin(Cpu(2), TASK, job);
            // It is chosen already.
            audited.at(at(from + 50), None);
            let Ok(()) = audited.resume(Cpu(2), TASK);
            audited.at(at(to), None);
            audited.inner.0 += used;
            let Ok(()) = audited.stop(Cpu(2), TASK, true);
            // Nobody's order.
            audited.inner.0 += 10;
        }
        audited.leave();
        let lost = Stretch { cpu: 2, from: at(100), to: at(5_100), by: Span::from_ns(2_000_000) };
        assert_eq!(audited.stretches().all(), [lost]);
        let consumed = audited.consumed()[0];
        assert_eq!((consumed.ordered.as_ns(), consumed.stray().as_ns()), (5_601_000, 30_000));
    }
}
