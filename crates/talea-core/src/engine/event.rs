//! Interface between an engine and its driver: events, orders and results.

use super::ids::{ChannelId, Cpu, ResourceId, TaskId};
use super::versions::Condition;
use crate::{Time, Work};

/// Input of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job of `task` has arrived. The job's deadline counts from `arrival`, the *nominal* time,
    /// which may be before the instant of the event.
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
    /// The job continues immediately, unless the result is [`Handled::Waits`]. In that case the job
    /// continues at its next order to run.
    Locked {
        /// Task of the job.
        task: TaskId,
        /// Requested resource, which the task declares.
        resource: ResourceId,
    },
    /// The current job has released `resource`. The completion of the job releases all resources
    /// that the job still holds.
    Unlocked {
        /// Task of the job.
        task: TaskId,
        /// Released resource.
        resource: ResourceId,
    },
    /// The current job has reached a preemption point: siblings may preempt it at this instant.
    PreemptionPoint {
        /// Task of the job, with a [`Preemption`](super::Preemption) other than `Anywhere`.
        task: TaskId,
        /// Whether a nonpreemptive section begins here. It ends at the next point, or with the job.
        nonpreemptive: bool,
    },
    /// The current job of the channel's source has pushed a token.
    Pushed {
        /// Channel of the token.
        channel: ChannelId,
    },
    /// The current job of the channel's sink has popped a token.
    Popped {
        /// Channel of the token.
        channel: ChannelId,
    },
    /// The environment has changed (battery, mode or permissions), with effect from the next
    /// selection of a version.
    Changed(Condition),
    /// The run stops: the engine accepts no further job. Pending jobs are completed, with all
    /// activations by their graphs (Y14).
    ///
    /// A new start uses a new engine of the same or an edited tree, with a new time zero: see
    /// [`Engine::keep_tokens`](super::Engine::keep_tokens).
    Stopped,
    /// The task on `cpu` has consumed `work` since the last report.
    ///
    /// The driver reports the consumption before all other events of an instant, for every CPU with
    /// [`Engine::is_accounted`](super::Engine::is_accounted).
    Ran {
        /// CPU of the task.
        cpu: Cpu,
        /// Consumed CPU time.
        work: Work,
    },
    /// No event has occurred; only time has passed.
    Timer,
}

/// Output of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `cpu` runs this job until its next order.
    Run {
        /// CPU that the order is for.
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
        /// CPU that the order is for.
        cpu: Cpu,
    },
}

/// Result of an event.
#[must_use = "a refused job will never run"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// The event was applied.
    Done,
    /// The engine refused the job: the backlog of its task is full.
    Refused,
    /// Another job holds the resource, and the job waits.
    Waits,
    /// The channel is full. The engine drops the token and counts it.
    Full,
    /// The channel is empty. The engine pops no token and counts the attempt.
    Empty,
    /// The engine refused the job: it has been stopped.
    Stopped,
}
