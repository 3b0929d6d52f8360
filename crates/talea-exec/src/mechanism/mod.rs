//! Mechanisms: how a worker is made to run and to stand still.
//!
//! One mechanism serves one root. It receives changes only, never the whole assignment. Within one
//! decision, and for each CPU, it is called first for the task that starts or resumes there and
//! then for the one that stops. So between two calls the old or the new task runs, and no other.
//! The calls end with the CPUs that become idle. One exception: a worker that makes the decision
//! and moves to another CPU itself starts there after the old task has stopped.

pub mod audit;
mod choice;
pub(crate) mod freeze;
mod mixed;
mod priority;

pub use choice::{MechanismChoice, MechanismKind, RequestedMechanism};
pub(crate) use mixed::Mixed;
pub(crate) use priority::{PriorityMechanism, WorkerThread};

use crate::root_shared::{PriorityMap, RootShared};
use crate::work::Job;
use talea_core::engine::{Cpu, TaskId};
use talea_core::{Time, Work};
use talea_os::Tid;

/// System calls that a stepping worker makes after it has released the lock: the woken worker may
/// preempt it.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Deferred {
    /// Task that was assigned a job and whose worker has to be woken.
    pub(crate) wake: Option<TaskId>,
    /// Thread to be set back to its level: it was raised for its step.
    pub(crate) restore: Option<(PriorityMap, Tid, u8)>,
}

impl Deferred {
    pub(crate) fn run(self, shared: &RootShared) {
        if let Some(task) = self.wake {
            shared.slots[task.0 as usize].wake();
        }
        if let Some((priorities, tid, level)) = self.restore {
            priorities.set_runnable(tid, level).expect("a thread may lower its own priority");
        }
    }
}

/// A way to apply orders.
pub trait Mechanism {
    /// Error of the kernel.
    type Error;

    /// Starts a decision: all calls up to the next one belong to this instant. They are made by the
    /// worker of `_by`, or by a dispatcher.
    fn begin_decision(&mut self, _now: Time, _by: Option<TaskId>) {}

    /// CPU time that the worker of `task` has consumed since it was created, also between jobs.
    fn cpu_time(&mut self, task: TaskId) -> Result<Work, Self::Error>;

    /// Assigns a job, or its next segment, to the worker of `task`, which waits for one, and runs
    /// it on `cpu`.
    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> Result<(), Self::Error>;

    /// Resumes the worker of `task`, which was stopped within a job, on `cpu`. It may run on
    /// another CPU until then, for which `stop` is not called.
    fn resume(&mut self, cpu: Cpu, task: TaskId) -> Result<(), Self::Error>;

    /// Stops the worker of `task` on `cpu` within a job. `successor`: another task has the CPU now.
    fn stop(&mut self, cpu: Cpu, task: TaskId, successor: bool) -> Result<(), Self::Error>;

    /// Notes that the worker of `task` has reported the end of its segment; it waits for the next,
    /// or will when it next runs.
    fn complete(&mut self, task: TaskId) -> Result<(), Self::Error>;

    /// Sets the level of each worker, by task: a worker with a smaller level preempts one with a
    /// larger level. Called between two decisions; there are no more levels than were promised.
    fn set_levels(&mut self, _levels: &[u8]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Restores the level of the worker of `task`, which is about to wait and will wake by its own
    /// timer.
    fn unpark(&mut self, _task: TaskId) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Returns what the stepping worker has to do after it has released the lock; once.
    fn take_deferred(&mut self) -> Deferred {
        Deferred::default()
    }

    /// Makes `cpu` idle: no worker stopped there may run.
    fn idle(&mut self, cpu: Cpu) -> Result<(), Self::Error>;

    /// Returns the program that has `cpu` and was found idle, if any.
    fn take_idle(&mut self, _cpu: Cpu) -> Option<TaskId> {
        None
    }

    /// Returns a program that was idle and has woken, if any; it may have a CPU.
    fn take_woken(&mut self) -> Option<TaskId> {
        None
    }

    /// Ends a decision.
    fn commit(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Ends the run: no calls follow, and the workers are about to be released.
    fn shut_down(&mut self) {}
}
