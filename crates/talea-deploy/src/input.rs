//! Inputs and effects of a deployment.

use crate::generation::{Command, Generation, TaskSpec};
pub use crate::ids::{EffectNumber, Errno, ProcessId, RequestId, SettingKind, ThreadId};
use crate::inactive::Inactive;
use crate::record::Record;
use std::sync::Arc;
use talea_core::{Attr, CpuSet, Monotonic, Policy, Span};

/// Input of the machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// An administrator made a request.
    Requested {
        /// Number of the request, repeated in the answer.
        request: RequestId,
        /// The request.
        what: Request,
    },
    /// The driver has observed the computer. Observations arrive in the order in which they were
    /// made.
    Observed(Observation),
    /// The driver could not execute an [`Effect::Start`] or an [`Effect::Set`].
    Failed {
        /// Number of the effect.
        effect: EffectNumber,
        /// Error of the kernel.
        error: Errno,
    },
    /// The time of the next wake-up has come.
    Timer,
}

/// Request of an administrator.
#[derive(Clone, Debug)]
pub enum Request {
    /// Puts a generation in force.
    Apply {
        /// The generation. Its number is above those of all earlier ones.
        generation: Arc<Generation>,
        /// Time within which [`Request::Confirm`] must follow; otherwise the deployment returns to
        /// the generation before. `None` means that no confirmation is necessary.
        confirm: Option<Span>,
    },
    /// Confirms the generation on trial.
    Confirm,
    /// Returns to an earlier generation.
    RollBack {
        /// The generation; `None` means the one before.
        to: Option<Arc<Generation>>,
    },
    /// Ends programs without a restart. They start again with the next [`Request::Apply`].
    Drain {
        /// Name of the task; `None` means all tasks.
        task: Option<String>,
        /// Time after which a program that has not exited is killed.
        within: Span,
    },
    /// Ends the deployment: no generation is in force.
    Remove,
}

/// Observed state of the computer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Number of the last effect before the observation. Each effect up to it has taken place, or
    /// will never do so.
    pub seen: EffectNumber,
    /// Programs of the deployment: those that run, and those that exited and are not forgotten.
    pub programs: Vec<Program>,
    /// Tasks whose ended programs have processes that have not ended yet. Their next programs wait.
    pub occupied: Vec<String>,
}

/// Observed program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its first process.
    pub process: ProcessId,
    /// Task for which it was started.
    pub task: String,
    /// Command with which it was started. The role of a governor has the table that it has reported
    /// since the last [`Effect::Adjust`](crate::Effect), and zeros before that report.
    pub command: Command,
    /// Exit; `None` while the program runs.
    pub exit: Option<Exit>,
    /// Whether the program has reported that it is ready.
    pub is_ready: bool,
    /// Its threads.
    pub threads: Vec<Thread>,
}

/// Observed thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread.
    pub id: ThreadId,
    /// Attributes, from the kernel.
    pub attr: Attr,
}

/// Exit of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The program returned this status; 0 means success.
    Code(i32),
    /// A signal with this number ended the program.
    Signal(i32),
}

impl Exit {
    /// Whether the program succeeded.
    pub fn is_success(self) -> bool {
        self == Exit::Code(0)
    }
}

/// Value of a thread that the machine keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Policy with its parameters, and whether children start as ordinary threads.
    Policy {
        /// The policy.
        policy: Policy,
        /// Whether children start as ordinary threads.
        reset_on_fork: bool,
    },
    /// CPUs.
    Cpus(CpuSet),
}

/// Way in which a program is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM: the program may finish.
    Terminate,
    /// SIGKILL, to all processes of the program.
    Kill,
}

/// Output of the machine. The driver executes effects in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Writes what a later machine needs. The following effects wait until it is durable.
    Store(Box<Record>),
    /// Observes the computer, after all earlier effects.
    Observe,
    /// Starts the program of this task.
    Start(Box<TaskSpec>),
    /// Stops a program.
    Stop {
        /// First process of the program.
        process: ProcessId,
        /// The way.
        signal: StopSignal,
    },
    /// Forgets the exit of a program, which later observations no longer contain.
    Forget {
        /// First process of the program.
        process: ProcessId,
    },
    /// Changes the table of a governor. It takes effect at the end of the frame, and the governor
    /// reports that. Until a report, no observation has a table of the governor: an earlier order
    /// may still take effect.
    Adjust {
        /// First process of the governor.
        process: ProcessId,
        /// Task of the governor.
        task: Box<TaskSpec>,
    },
    /// Sets a value of a thread.
    Set {
        /// The thread.
        thread: ThreadId,
        /// The value.
        setting: Setting,
    },
    /// Reports an event.
    Report(Event),
    /// Answers a request.
    Answer {
        /// Number of the request.
        request: RequestId,
        /// The answer.
        answer: Result<(), Refusal>,
    },
}

/// Refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The number of the generation is not above `last`.
    StaleGeneration {
        /// Highest number so far.
        last: u64,
    },
    /// A generation is on trial: the request needs its confirmation or its rollback first.
    OnTrial {
        /// Number of the generation.
        generation: u64,
    },
    /// No generation is on trial.
    NotOnTrial,
    /// The task is not ready, so its generation cannot be confirmed.
    NotReady {
        /// Name of the task.
        task: String,
    },
    /// No generation is in force.
    NothingInForce,
    /// There is no generation before the present one.
    NothingBefore,
    /// The task is a governor, which ends with the programs of its root only.
    Governor {
        /// Name of the task.
        task: String,
    },
    /// No task has this name.
    UnknownTask {
        /// The name.
        task: String,
    },
}

/// Event of the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A generation is in force from now on.
    InForce {
        /// Number of the generation.
        generation: u64,
        /// End of its trial, if it must be confirmed.
        until: Option<Monotonic>,
    },
    /// A generation was confirmed.
    Confirmed {
        /// Number of the generation.
        generation: u64,
    },
    /// The deployment returned to an earlier generation.
    RolledBack {
        /// Number of the generation that was in force.
        from: u64,
        /// Number of the generation in force; `None` if there is none.
        to: Option<u64>,
        /// Cause.
        cause: RollbackCause,
    },
    /// The deployment has ended.
    Removed {
        /// Number of the generation that was in force.
        generation: u64,
    },
    /// A program runs that the machine had not observed before.
    Started {
        /// Name of the task.
        task: String,
        /// Its first process.
        process: ProcessId,
    },
    /// A task has failed once.
    Failure {
        /// Name of the task.
        task: String,
        /// Cause.
        cause: FailureCause,
        /// Number of failures of the task so far.
        failures: u64,
    },
    /// The program of a task will start again.
    BackOff {
        /// Name of the task.
        task: String,
        /// Earliest time of the start.
        until: Monotonic,
    },
    /// The program of a task is not started any more.
    Inactive {
        /// Name of the task.
        task: String,
        /// Reason.
        why: Inactive,
    },
    /// Another writer had changed a value of a thread; the machine sets it again.
    Repaired {
        /// Name of the task.
        task: String,
        /// The thread.
        thread: ThreadId,
        /// The value.
        kind: SettingKind,
        /// Number of repairs of the task so far.
        repairs: u64,
    },
    /// Another writer changes a value again and again; the machine repairs it no longer.
    Contended {
        /// Name of the task.
        task: String,
        /// The thread.
        thread: ThreadId,
        /// The value.
        kind: SettingKind,
    },
    /// The kernel refused a value.
    SettingRefused {
        /// Name of the task.
        task: String,
        /// The thread.
        thread: ThreadId,
        /// The value.
        kind: SettingKind,
        /// Error of the kernel.
        error: Errno,
    },
}

/// Cause of a rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RollbackCause {
    /// A request.
    Requested,
    /// The trial ended without a confirmation.
    NotConfirmed,
    /// A task that the generation changed has failed during the trial.
    TaskFailed(String),
}

/// Cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The program exited.
    Exited(Exit),
    /// The program is gone, and its exit is unknown.
    Vanished,
    /// The program was not started; the error of the kernel if it is known.
    NotStarted(Option<Errno>),
    /// The program was not ready in time.
    NotReady,
    /// The governed program has left its CPUs again and again.
    LeftCpus,
}
