//! What passes between a machine and its driver.

use super::versions::Condition;
use super::{ChannelId, Cpu, ResourceId, TaskId};
use crate::{Time, Work};

/// What the world tells the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job of `task` has come. Its deadline counts from `arrival`, the *nominal* time, which may
    /// be earlier than now.
    Arrived {
        /// Whose job.
        task: TaskId,
        /// When it should have come.
        arrival: Time,
    },
    /// The job under way has ended.
    Completed {
        /// Whose job.
        task: TaskId,
    },
    /// The job under way waits for something that is not a CPU.
    Blocked {
        /// Whose job.
        task: TaskId,
    },
    /// It waits no longer.
    Woke {
        /// Whose job.
        task: TaskId,
    },
    /// The job under way has come to where it locks `resource`. It goes on when it is next ordered
    /// to run, at once unless the answer is [`Handled::Waits`].
    Locked {
        /// Whose job.
        task: TaskId,
        /// What it locks; one of those that its task uses.
        resource: ResourceId,
    },
    /// The job under way has unlocked `resource`. What it has not unlocked at its end is unlocked
    /// then.
    Unlocked {
        /// Whose job.
        task: TaskId,
        /// What it held.
        resource: ResourceId,
    },
    /// The job under way of the channel's source has put a token in.
    Pushed {
        /// Where.
        channel: ChannelId,
    },
    /// The job under way of the channel's sink has taken a token out.
    Popped {
        /// Where.
        channel: ChannelId,
    },
    /// The world has changed as far as versions depend on it.
    Changed(Condition),
    /// No job is taken from now on; those that have come are done, and what their graphs activate
    /// (Y14). A new start is a new machine of the same tree, or of an edited one, with a new zero:
    /// see [`Machine::keep_channels`](super::Machine::keep_channels).
    Stopped,
    /// The task that runs on `cpu` has consumed so much since this was last told. To be told before
    /// everything else of an instant, for every CPU that
    /// [`Machine::is_metered`](super::Machine::is_metered).
    Ran {
        /// Where.
        cpu: Cpu,
        /// How much.
        work: Work,
    },
    /// Nothing but that time has passed.
    Timer,
}

/// What the machine asks of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `cpu` runs this job until the next order for it.
    Run {
        /// Where.
        cpu: Cpu,
        /// Whose job.
        task: TaskId,
        /// Which one.
        job: u64,
        /// In which version.
        version: u32,
    },
    /// `cpu` has nothing to run.
    Idle {
        /// Where.
        cpu: Cpu,
    },
}

/// What became of an arrival.
#[must_use = "a refused job will never run"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// As it should.
    Done,
    /// There was no room for the job in its task's backlog.
    Refused,
    /// Somebody holds the resource; the job waits.
    Waits,
    /// The channel is full: the token is lost, and counted.
    Full,
    /// The channel is empty: there is nothing to take, which is counted.
    Empty,
    /// The machine was stopped before the job came.
    Stopped,
}
