//! Mechanisms: the ways to make a worker run and to stop it.
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
pub use freeze::StoppedTime;
pub(crate) use mixed::Mixed;
pub(crate) use priority::{PriorityMechanism, WorkerThread};

use crate::root_shared::{PriorityMap, RootShared};
use crate::suspension_state::WorkerReport;
use crate::work::Job;
use talea_core::engine::{Cpu, TaskId};
use talea_core::{Span, Time, Work};
use talea_os::Tid;

/// System calls that a stepping worker makes after it has released the lock: the woken worker may
/// preempt it.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Deferred {
    /// Task that was assigned a job and whose worker has to be woken.
    pub(crate) wake: Option<TaskId>,
    /// Thread that the worker raised for its step, and the level to restore.
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

/// Way to apply orders.
pub trait Mechanism {
    /// Error of the kernel.
    type Error;

    /// Starts a decision: all calls up to the next decision belong to instant `_now`. The calls are
    /// made by the worker of `_by`, or by a dispatcher if `_by` is `None`.
    fn begin_decision(&mut self, _now: Time, _by: Option<TaskId>) {}

    /// Returns the CPU time that the worker of `task` has consumed since its creation, including
    /// the time between jobs.
    fn cpu_time(&mut self, task: TaskId) -> Result<Work, Self::Error>;

    /// Assigns a job or its next segment to the waiting worker of `task`, and runs the worker on
    /// `cpu`.
    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> Result<(), Self::Error>;

    /// Resumes the worker of `task` on `cpu`, after it was stopped within a job. If the worker
    /// still runs on another CPU, the executor does not call `stop` for that CPU.
    fn resume(&mut self, cpu: Cpu, task: TaskId) -> Result<(), Self::Error>;

    /// Stops the worker of `task` on `cpu` within a job. `successor` says whether another task has
    /// the CPU now.
    fn stop(&mut self, cpu: Cpu, task: TaskId, successor: bool) -> Result<(), Self::Error>;

    /// Notes that the worker of `task` has reported the end of its segment. The worker waits for
    /// the next segment, or will wait when it next runs.
    fn complete(&mut self, task: TaskId) -> Result<(), Self::Error>;

    /// Returns what a report of the worker of `_task` means. `_is_suspended` says whether an
    /// earlier report was [`WorkerReport::Suspended`], and none since then
    /// [`WorkerReport::Resumed`].
    fn read_report(&mut self, _task: TaskId, _is_suspended: bool) -> WorkerReport {
        WorkerReport::Ended
    }

    /// Notes that the worker of `task` has suspended its job. The worker waits for a device, and
    /// nothing may keep it from noticing the end of that wait.
    fn suspend(&mut self, task: TaskId) -> Result<(), Self::Error> {
        self.complete(task)
    }

    /// Sets the level of each worker: `_levels[n]` for task `n`. A worker with a smaller level
    /// preempts one with a larger level. The executor makes the call between two decisions, with no
    /// more levels than were promised.
    fn set_levels(&mut self, _levels: &[u8]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Restores the level of the worker of `task`, which is about to wait and will wake by its own
    /// timer.
    fn unpark(&mut self, _task: TaskId) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Returns what the stepping worker has to do after it has released the lock. A second call
    /// returns nothing to do.
    fn take_deferred(&mut self) -> Deferred {
        Deferred::default()
    }

    /// Makes `cpu` idle: no worker that was stopped on `cpu` may run.
    fn idle(&mut self, cpu: Cpu) -> Result<(), Self::Error>;

    /// Returns the program that has `cpu` if the idle detector found it idle.
    fn take_idle(&mut self, _cpu: Cpu) -> Option<TaskId> {
        None
    }

    /// Returns a program that was idle and has woken, and the time since its wake-up. The program
    /// may have a CPU.
    fn take_woken(&mut self) -> Result<Option<(TaskId, Span)>, Self::Error> {
        Ok(None)
    }

    /// Ends a decision.
    fn commit(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Ends the run. No calls follow, and the executor is about to release the workers.
    fn shut_down(&mut self) {}
}
