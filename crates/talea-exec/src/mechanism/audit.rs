//! Mechanism that wraps another mechanism and measures the CPU time of each worker, with and
//! without an order.
//!
//! [`Audited`] reads the CPU clock of a worker at each dispatch and at each stop or completion.
//! *Ordered* time is the sum of the differences. *Stray* time is the rest at the end of the run:
//! some microseconds per job between its completion and the wait for the next job, and other
//! unordered execution. [`LostTime`] is the length of an order minus the progress of the worker's
//! clock.

use super::{Deferred, Mechanism};
use crate::lost_time::{LostTime, LostTimes};
use crate::suspension_state::WorkerReport;
use crate::work::Job;
use talea_core::engine::{Cpu, TaskId};
use talea_core::{Span, Time, Work};

/// CPU time of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// CPU time that the task consumed while it was dispatched.
    pub ordered: Work,
    /// CPU time that the task consumed in total, from the start of the run to the last read.
    pub total: Work,
    open: Option<OpenInterval>,
    /// Whether the worker waits for a device with an idle CPU.
    is_asleep: bool,
}

/// Start of an interval in which a worker is dispatched: the value of the worker's CPU clock, the
/// time and the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenInterval {
    used: Work,
    now: Time,
    cpu: Cpu,
}

impl Consumed {
    /// Creates the CPU time of a worker that measures itself.
    pub(crate) fn new(ordered: Work, total: Work) -> Consumed {
        Consumed { ordered, total, ..Consumed::default() }
    }

    /// Returns the CPU time that the task has consumed without an order.
    pub fn stray(&self) -> Work {
        self.total.checked_sub(self.ordered).unwrap_or(Work::ZERO)
    }
}

/// Mechanism with the measurement of its workers' CPU time. A disabled measurement yields only the
/// total at the end.
#[derive(Debug)]
pub struct Audited<M> {
    inner: M,
    is_enabled: bool,
    tasks: Vec<Consumed>,
    /// `initial[n]`: clock of task `n`'s worker at the start.
    initial: Vec<Work>,
    now: Time,
    lost_times: LostTimes,
}

impl<M: Mechanism> Audited<M> {
    /// Creates the measurement of `inner` with `tasks` tasks, enabled if `on`. An enabled
    /// measurement reads a clock twice per dispatch.
    pub fn new(mut inner: M, tasks: usize, on: bool) -> Result<Audited<M>, M::Error> {
        let from =
            (0..tasks).map(|task| inner.cpu_time(TaskId(task as u32))).collect::<Result<_, _>>()?;
        let (tasks, lost_times) = (vec![Consumed::default(); tasks], LostTimes::new());
        Ok(Audited { inner, is_enabled: on, tasks, initial: from, now: Time::ZERO, lost_times })
    }

    /// Returns the measured mechanism.
    pub(crate) fn inner(&self) -> &M {
        &self.inner
    }

    /// Returns the CPU time of each task. If the measurement is disabled, all CPU time counts as
    /// ordered.
    pub fn consumed(&self) -> &[Consumed] {
        &self.tasks
    }

    /// Returns the orders that lasted longer than their workers ran. If the measurement is
    /// disabled, there are none.
    pub(crate) fn lost_times(&self) -> &LostTimes {
        &self.lost_times
    }

    fn open(&mut self, cpu: Cpu, task: TaskId) -> Result<(), M::Error> {
        if !self.is_enabled {
            return Ok(());
        }
        let since = OpenInterval { used: self.inner.cpu_time(task)?, now: self.now, cpu };
        self.tasks[task.0 as usize].open.get_or_insert(since);
        Ok(())
    }

    fn close(&mut self, task: TaskId) -> Result<(), M::Error> {
        let Some(since) = self.tasks[task.0 as usize].open.take() else { return Ok(()) };
        let used = self.inner.cpu_time(task)?.checked_sub(since.used).unwrap_or(Work::ZERO);
        self.tasks[task.0 as usize].ordered += used;
        let OpenInterval { now: from, cpu, .. } = since;
        let lasted = self.now.since(from);
        let by = lasted.checked_sub(Span::from_ns(used.as_ns())).unwrap_or(Span::ZERO);
        // A worker that waits for a device with an idle CPU loses nothing.
        if !self.tasks[task.0 as usize].is_asleep {
            self.lost_times.push(LostTime { cpu: cpu.0, from, to: self.now, amount: by });
        }
        Ok(())
    }
}

impl<M: Mechanism> Mechanism for Audited<M> {
    type Error = M::Error;

    fn begin_decision(&mut self, now: Time, by: Option<TaskId>) {
        self.now = now;
        self.inner.begin_decision(now, by);
    }

    fn cpu_time(&mut self, task: TaskId) -> Result<Work, M::Error> {
        self.inner.cpu_time(task)
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> Result<(), M::Error> {
        self.open(cpu, task)?;
        self.tasks[task.0 as usize].is_asleep = job.wait.is_some_and(|wait| !wait.is_spinning);
        self.inner.begin(cpu, task, job)
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> Result<(), M::Error> {
        self.open(cpu, task)?;
        self.inner.resume(cpu, task)
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, successor: bool) -> Result<(), M::Error> {
        self.inner.stop(cpu, task, successor)?;
        // Afterwards: on another CPU it ran until then.
        self.close(task)
    }

    fn complete(&mut self, task: TaskId) -> Result<(), M::Error> {
        self.close(task)?;
        self.inner.complete(task)
    }

    fn read_report(&mut self, task: TaskId, is_suspended: bool) -> WorkerReport {
        self.inner.read_report(task, is_suspended)
    }

    fn suspend(&mut self, task: TaskId) -> Result<(), M::Error> {
        self.close(task)?;
        self.inner.suspend(task)
    }

    fn set_levels(&mut self, levels: &[u8]) -> Result<(), M::Error> {
        self.inner.set_levels(levels)
    }

    fn unpark(&mut self, task: TaskId) -> Result<(), M::Error> {
        self.inner.unpark(task)
    }

    fn take_deferred(&mut self) -> Deferred {
        self.inner.take_deferred()
    }

    fn idle(&mut self, cpu: Cpu) -> Result<(), M::Error> {
        self.inner.idle(cpu)
    }

    fn take_idle(&mut self, cpu: Cpu) -> Option<TaskId> {
        self.inner.take_idle(cpu)
    }

    fn take_woken(&mut self) -> Result<Option<(TaskId, Span)>, M::Error> {
        self.inner.take_woken()
    }

    fn commit(&mut self) -> Result<(), M::Error> {
        self.inner.commit()
    }

    fn shut_down(&mut self) {
        for at in 0..self.tasks.len() {
            let task = TaskId(at as u32);
            // A worker that panicked has no clock any more; its run failed.
            let closed = self.close(task);
            let tasks = &mut self.tasks[at];
            tasks.total = match (closed, self.inner.cpu_time(task)) {
                (Ok(()), Ok(used)) => used.checked_sub(self.initial[at]).unwrap_or(Work::ZERO),
                _ => tasks.ordered,
            };
            if !self.is_enabled {
                tasks.ordered = tasks.total;
            }
        }
        self.inner.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A mechanism with one worker, whose clock the test sets.
    #[derive(Default)]
    struct Clock(u64);

    impl Mechanism for Clock {
        type Error = Infallible;

        fn cpu_time(&mut self, _task: TaskId) -> Result<Work, Infallible> {
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

        fn complete(&mut self, _task: TaskId) -> Result<(), Infallible> {
            Ok(())
        }

        fn idle(&mut self, _cpu: Cpu) -> Result<(), Infallible> {
            Ok(())
        }
    }

    #[test]
    fn an_order_that_lasts_longer_than_its_worker_runs_is_lost_time() {
        const TASK: TaskId = TaskId(0);
        let at = |us: u64| Time::from_ns(us * 1_000);
        let Ok(mut audited) = Audited::new(Clock::default(), 1, true);
        let job = Job::new(0, 0, Work::from_ns(9_000_000));
        // Start, end, and progress of the clock of each order.
        for (from, to, used) in [(100, 5_100, 3_000), (6_000, 8_000, 1_901), (9_000, 9_500, 700)] {
            audited.begin_decision(at(from), None);
            let Ok(()) = audited.begin(Cpu(2), TASK, job);
            // Already dispatched.
            audited.begin_decision(at(from + 50), None);
            let Ok(()) = audited.resume(Cpu(2), TASK);
            audited.begin_decision(at(to), None);
            audited.inner.0 += used;
            let Ok(()) = audited.stop(Cpu(2), TASK, true);
            // Time without an order.
            audited.inner.0 += 10;
        }
        audited.shut_down();
        let lost =
            LostTime { cpu: 2, from: at(100), to: at(5_100), amount: Span::from_ns(2_000_000) };
        assert_eq!(audited.lost_times().all(), [lost]);
        let consumed = audited.consumed()[0];
        assert_eq!((consumed.ordered.as_ns(), consumed.stray().as_ns()), (5_601_000, 30_000));
    }
}
