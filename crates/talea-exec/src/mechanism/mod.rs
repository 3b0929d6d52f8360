//! How a worker is made to run and to stand still.
//!
//! One mechanism serves one root. It is told what is to change, never who is to run on the whole:
//! it touches only what changes. Of one decision it is told, CPU by CPU, first who begins or goes
//! on there and then who stops, so that between two calls the old one or the new one runs and
//! nobody else; and at the end which CPUs rest. Only a worker that makes the decision and goes to
//! another CPU itself begins there when the old one has stopped.

pub mod audit;
mod chosen;
mod flip;
pub(crate) mod freeze;
mod mixed;

pub use chosen::{Chosen, Means, Wish};
pub(crate) use flip::{Flip, Identity};
pub(crate) use mixed::Mixed;

use crate::stage::{Ranks, Stage};
use crate::work::Job;
use talea_core::machine::{Cpu, TaskId};
use talea_core::{Time, Work};
use talea_os::Tid;

/// What a worker that has stepped does without the lock: whom it lets go may take the CPU from it.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct After {
    /// Who was given a job, and is not awake.
    pub(crate) call: Option<TaskId>,
    /// The worker stands above its grade for the time of its step.
    pub(crate) back: Option<(Ranks, Tid, u8)>,
}

impl After {
    pub(crate) fn finish(self, stage: &Stage) {
        if let Some(task) = self.call {
            stage.slots[task.0 as usize].call();
        }
        if let Some((ranks, tid, grade)) = self.back {
            ranks.raised(tid, grade).expect("a thread may lower itself");
        }
    }
}

/// One way to obey orders.
pub trait Mechanism {
    /// The kernel said no.
    type Error;

    /// All that follows, up to the next of these, belongs to this instant, and is done by a worker
    /// or, if by none, by a dispatcher.
    fn at(&mut self, _now: Time, _by: Option<TaskId>) {}

    /// What the worker of `task` has used of any CPU since it was made, its work between jobs
    /// included.
    fn used(&mut self, task: TaskId) -> Result<Work, Self::Error>;

    /// The worker of `task`, which waits for one, gets a job, or the next piece of its job, and
    /// runs it on `cpu`.
    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> Result<(), Self::Error>;

    /// The worker of `task`, which was stopped within a job, goes on with it on `cpu`. It may be
    /// one that runs on another CPU so far, which does not say that it stops there.
    fn resume(&mut self, cpu: Cpu, task: TaskId) -> Result<(), Self::Error>;

    /// The worker of `task` has `cpu` no longer, within a job. `successor`: somebody else has it
    /// now.
    fn stop(&mut self, cpu: Cpu, task: TaskId, successor: bool) -> Result<(), Self::Error>;

    /// The worker of `task` has told that its piece is over; it waits for the next, or will at once
    /// when it next runs.
    fn ended(&mut self, task: TaskId) -> Result<(), Self::Error>;

    /// From now on the workers stand by these grades, by task: one with a smaller one is awake
    /// while one with a larger one runs. Between two decisions; there are no more than were
    /// promised.
    fn grade(&mut self, _grades: &[u8]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The worker of `task`, which steps the machine and is about to wait for a job, is to be awake
    /// by itself when that comes.
    fn ready(&mut self, _task: TaskId) -> Result<(), Self::Error> {
        Ok(())
    }

    /// What the worker that steps has yet to do when it has given back the lock. Said once.
    fn after(&mut self) -> After {
        After::default()
    }

    /// Nobody has `cpu`: whoever was stopped there must not run although nobody else does.
    fn rest(&mut self, cpu: Cpu) -> Result<(), Self::Error>;

    /// Whoever has `cpu` and does not tell when it has nothing left to do, if it was seen to have
    /// nothing.
    fn quiet(&mut self, _cpu: Cpu) -> Option<TaskId> {
        None
    }

    /// One more that had nothing to do, and was seen to want a CPU; it may have one.
    fn woke(&mut self) -> Option<TaskId> {
        None
    }

    /// Everything that this decision changes has been said.
    fn settle(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The run is over: nothing is asked after this, and workers are about to be let go.
    fn leave(&mut self) {}
}
