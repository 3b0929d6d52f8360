//! Another mechanism under observation: what did each worker consume while it was chosen, and what besides?
//!
//! The kernel's CPU clock of each worker is read whenever it is let run and whenever it is stopped. What lies between is
//! *ordered*; what its clock shows at the end beyond that is *stray*: the way from the end of a job to the wait for the next
//! (a few microseconds a job), and anything that should not have been.

use super::Mechanism;
use crate::work::Job;
use talea_core::Work;
use talea_core::machine::{Cpu, TaskId};

/// Of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// While it was chosen.
    pub ordered: Work,
    /// In all, from the begin of the run to when it was last looked at.
    pub total: Work,
    since: Option<Work>,
}

impl Consumed {
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
}

impl<M: Mechanism> Audited<M> {
    /// Watches the workers of so many tasks, if `on`: two looks at a clock each time that somebody runs.
    pub fn new(mut inner: M, tasks: usize, on: bool) -> Result<Audited<M>, M::Error> {
        let from = (0..tasks).map(|task| inner.used(TaskId(task as u32))).collect::<Result<_, _>>()?;
        Ok(Audited { inner, on, tasks: vec![Consumed::default(); tasks], from })
    }

    /// What each has consumed until the run was over; of a mechanism that was not watched all of it counts as ordered.
    pub fn consumed(&self) -> &[Consumed] {
        &self.tasks
    }

    fn open(&mut self, task: TaskId) -> Result<(), M::Error> {
        if !self.on {
            return Ok(());
        }
        let used = self.inner.used(task)?;
        self.tasks[task.0 as usize].since.get_or_insert(used);
        Ok(())
    }

    fn close(&mut self, task: TaskId) -> Result<(), M::Error> {
        let Some(since) = self.tasks[task.0 as usize].since.take() else { return Ok(()) };
        let used = self.inner.used(task)?;
        self.tasks[task.0 as usize].ordered += used.checked_sub(since).unwrap_or(Work::ZERO);
        Ok(())
    }
}

impl<M: Mechanism> Mechanism for Audited<M> {
    type Error = M::Error;

    fn used(&mut self, task: TaskId) -> Result<Work, M::Error> {
        self.inner.used(task)
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> Result<(), M::Error> {
        self.open(task)?;
        self.inner.begin(cpu, task, job)
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> Result<(), M::Error> {
        self.open(task)?;
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

    fn rest(&mut self, cpu: Cpu) -> Result<(), M::Error> {
        self.inner.rest(cpu)
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
