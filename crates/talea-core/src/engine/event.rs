//! Interface between an engine and its driver: events, orders and results.

use super::versions::Condition;
use super::{ChannelId, Cpu, ResourceId, TaskId};
use crate::{Time, Work};

/// Input of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job of `task` has arrived. Its deadline counts from `arrival`, the *nominal* time, which
    /// may be earlier than now.
    Arrived {
        /// Task of the job.
        task: TaskId,
        /// Nominal time of the arrival.
        arrival: Time,
    },
    /// The current job has completed.
    Completed {
        /// Task of the job.
        task: TaskId,
    },
    /// The current job waits for an event other than a CPU.
    Blocked {
        /// Task of the job.
        task: TaskId,
    },
    /// The event that the current job waits for has occurred.
    Woke {
        /// Task of the job.
        task: TaskId,
    },
    /// The current job requests `resource`.
    ///
    /// It continues at its next order to run; immediately, unless the result is [`Handled::Waits`].
    Locked {
        /// Task of the job.
        task: TaskId,
        /// The resource; one that its task declares.
        resource: ResourceId,
    },
    /// The current job has released `resource`. Resources still held at its completion are released
    /// then.
    Unlocked {
        /// Task of the job.
        task: TaskId,
        /// The resource.
        resource: ResourceId,
    },
    /// The current job of the channel's source has pushed a token.
    Pushed {
        /// The channel.
        channel: ChannelId,
    },
    /// The current job of the channel's sink has popped a token.
    Popped {
        /// The channel.
        channel: ChannelId,
    },
    /// A condition for the selection of versions has changed.
    Changed(Condition),
    /// No further job is accepted. Pending jobs are completed, with all activations by their graphs
    /// (Y14).
    ///
    /// A new start uses a new engine of the same or an edited tree, with a new time zero: see
    /// [`Engine::keep_channels`](super::Engine::keep_channels).
    Stopped,
    /// The task on `cpu` has consumed `work` since the last report.
    ///
    /// To be reported before all other events of an instant, for every CPU with
    /// [`Engine::is_accounted`](super::Engine::is_accounted).
    Ran {
        /// The CPU.
        cpu: Cpu,
        /// Consumed CPU time.
        work: Work,
    },
    /// Only time has passed.
    Timer,
}

/// Output of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `cpu` runs this job until its next order.
    Run {
        /// The CPU.
        cpu: Cpu,
        /// Task of the job.
        task: TaskId,
        /// Number of the job.
        job: u64,
        /// Version of the job.
        version: u32,
    },
    /// `cpu` idles until its next order.
    Idle {
        /// The CPU.
        cpu: Cpu,
    },
}

/// Result of an event.
#[must_use = "a refused job will never run"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// The event was applied.
    Done,
    /// The job was refused: the backlog of its task is full.
    Refused,
    /// The resource is held; the job waits.
    Waits,
    /// The channel is full: the token is lost and counted.
    Full,
    /// The channel is empty: no token was popped, which is counted.
    Empty,
    /// The job was refused: the engine has been stopped.
    Stopped,
}
