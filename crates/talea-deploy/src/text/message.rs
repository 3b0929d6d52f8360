//! Requests of an administrator's program to the driver, and its answers.

use super::generation::{GenerationText, StoredGenerationText};
use super::values::KindText;
use super::{StoredGeneration, TextError, VERSION, json, parse};
use crate::generation::Generation;
use crate::ids::SettingKind;
use crate::inactive::Inactive;
use crate::input::Refusal;
use crate::status::{Condition, Status, TaskStatus};
use serde::{Deserialize, Serialize};
use talea_core::{Monotonic, Span};

/// Request to the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Puts a generation in force. The driver assigns its number.
    Apply {
        /// The generation, with the texts of its system file.
        generation: StoredGeneration,
        /// Time within which [`Ask::Confirm`] must follow.
        confirm: Option<Span>,
    },
    /// Confirms the generation on trial.
    Confirm,
    /// Returns to the generation with this number; `None` stands for the one before.
    RollBack(Option<u64>),
    /// Ends programs.
    Drain {
        /// Name of the task; `None` stands for all tasks.
        task: Option<String>,
        /// Time after which a program is killed.
        within: Span,
    },
    /// Ends the deployment.
    Remove,
    /// Returns the status.
    Status,
    /// Returns the generation in force.
    InForce,
}

/// Answer of the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The request is done, and this generation is in force.
    Done(Option<u64>),
    /// The request was refused, for this reason.
    Refused(String),
    /// Status of the deployment.
    Status(StatusText),
    /// Generation in force.
    InForce(Option<Generation>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskMessage {
    version: u32,
    request: AskText,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum AskText {
    Apply { generation: Box<StoredGenerationText>, confirm_ns: Option<u64> },
    Confirm,
    RollBack { to: Option<u64> },
    Drain { task: Option<String>, within_ns: u64 },
    Remove,
    Status,
    InForce,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum AnswerText {
    Done { in_force: Option<u64> },
    Refused { why: String },
    Status(StatusText),
    InForce { generation: Option<GenerationText> },
}

impl Ask {
    /// Returns the message.
    pub fn to_text(&self) -> String {
        let request = match self {
            Ask::Apply { generation, confirm } => AskText::Apply {
                generation: Box::new(generation.into()),
                confirm_ns: confirm.map(Span::as_ns),
            },
            Ask::Confirm => AskText::Confirm,
            &Ask::RollBack(to) => AskText::RollBack { to },
            Ask::Drain { task, within } => {
                AskText::Drain { task: task.clone(), within_ns: within.as_ns() }
            }
            Ask::Remove => AskText::Remove,
            Ask::Status => AskText::Status,
            Ask::InForce => AskText::InForce,
        };
        json(&AskMessage { version: VERSION, request })
    }

    /// Reads a message of [`Ask::to_text`].
    ///
    /// # Errors
    /// The first reason why the message is refused.
    pub fn from_text(text: &str) -> Result<Ask, TextError> {
        let message: AskMessage = parse(text)?;
        if message.version != VERSION {
            return Err(TextError::Version { found: message.version });
        }
        Ok(match message.request {
            AskText::Apply { generation, confirm_ns } => Ask::Apply {
                generation: (*generation).try_into()?,
                confirm: confirm_ns.map(Span::from_ns),
            },
            AskText::Confirm => Ask::Confirm,
            AskText::RollBack { to } => Ask::RollBack(to),
            AskText::Drain { task, within_ns } => {
                Ask::Drain { task, within: Span::from_ns(within_ns) }
            }
            AskText::Remove => Ask::Remove,
            AskText::Status => Ask::Status,
            AskText::InForce => Ask::InForce,
        })
    }
}

impl Answer {
    /// Returns the message.
    pub fn to_text(&self) -> String {
        json(&match self {
            &Answer::Done(in_force) => AnswerText::Done { in_force },
            Answer::Refused(why) => AnswerText::Refused { why: why.clone() },
            Answer::Status(status) => AnswerText::Status(status.clone()),
            Answer::InForce(generation) => {
                AnswerText::InForce { generation: generation.as_ref().map(GenerationText::from) }
            }
        })
    }

    /// Reads a message of [`Answer::to_text`].
    ///
    /// # Errors
    /// The first reason why the message is refused.
    pub fn from_text(text: &str) -> Result<Answer, TextError> {
        Ok(match parse(text)? {
            AnswerText::Done { in_force } => Answer::Done(in_force),
            AnswerText::Refused { why } => Answer::Refused(why),
            AnswerText::Status(status) => Answer::Status(status),
            AnswerText::InForce { generation } => {
                Answer::InForce(generation.map(TryInto::try_into).transpose()?)
            }
        })
    }
}

/// Status of a deployment, as an administrator reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusText {
    /// Generation in force; `None` without one.
    pub in_force: Option<InForceText>,
    /// Number of the generation before, for a rollback.
    pub before: Option<u64>,
    /// Time until the end of the trial, if the generation must be confirmed.
    pub trial_left_ns: Option<u64>,
    /// Tasks of the generation, in the order of the file.
    pub tasks: Vec<TaskStatusText>,
}

/// Generation in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InForceText {
    /// Number of the generation.
    pub number: u64,
    /// SHA-256 of the system file with all included files.
    pub sha256: String,
    /// Whether it was admitted although not every deadline is proved.
    pub unproved: bool,
}

/// Status of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskStatusText {
    /// Name of the task.
    pub name: String,
    /// Condition of its program.
    pub condition: ConditionText,
    /// Time until the next start, during a back-off.
    pub back_off_left_ns: Option<u64>,
    /// First process of the program.
    pub pid: Option<u32>,
    /// Number of starts after the first one.
    pub restarts: u64,
    /// Number of failures.
    pub failures: u64,
    /// Number of repairs.
    pub repairs: u64,
    /// Values of threads that another writer changes again and again.
    pub contended: Vec<ContendedText>,
}

/// Contended value of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContendedText {
    /// Number of the thread.
    pub tid: u32,
    value: KindText,
}

impl ContendedText {
    /// Returns the kind of the value in words.
    pub fn value(&self) -> &'static str {
        match self.value {
            KindText::Policy => "policy",
            KindText::Cpus => "CPUs",
        }
    }
}

/// Condition of the program of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConditionText {
    /// Waits for its start, or is not observed yet.
    Starting,
    /// Runs.
    Running,
    /// Runs, and has not reported that it is ready.
    NotReady,
    /// Is being stopped.
    Stopping,
    /// Starts again after a time.
    BackOff,
    /// Has ended, and nothing starts it again.
    Ended,
    /// Has failed more often than its attempts permit.
    Failed,
    /// Has failed once, and stays idle.
    Idle,
    /// Was drained.
    Drained,
}

impl ConditionText {
    /// Returns the condition in words.
    pub fn words(self) -> &'static str {
        match self {
            ConditionText::Starting => "starting",
            ConditionText::Running => "running",
            ConditionText::NotReady => "not ready",
            ConditionText::Stopping => "stopping",
            ConditionText::BackOff => "back-off",
            ConditionText::Ended => "ended",
            ConditionText::Failed => "failed",
            ConditionText::Idle => "idle",
            ConditionText::Drained => "drained",
        }
    }
}

impl StatusText {
    /// Returns the status at time `now`.
    pub fn of(status: &Status, now: Monotonic) -> StatusText {
        let in_force = status.in_force.as_ref().map(|generation| InForceText {
            number: generation.number(),
            sha256: generation.hash().to_string(),
            unproved: generation.is_unproved(),
        });
        StatusText {
            in_force,
            before: status.before.as_ref().map(|generation| generation.number()),
            trial_left_ns: status.trial_until.map(|until| left(until, now)),
            tasks: status.tasks.iter().map(|task| TaskStatusText::of(task, now)).collect(),
        }
    }

    /// Whether a task has failed, or a value is contended.
    pub fn has_problem(&self) -> bool {
        self.tasks.iter().any(|task| {
            matches!(task.condition, ConditionText::Failed | ConditionText::Idle)
                || !task.contended.is_empty()
        })
    }
}

fn left(until: Monotonic, now: Monotonic) -> u64 {
    until.saturating_since(now).as_ns()
}

impl TaskStatusText {
    fn of(task: &TaskStatus, now: Monotonic) -> TaskStatusText {
        let (condition, back_off_left_ns) = match task.condition {
            Condition::Starting => (ConditionText::Starting, None),
            Condition::Running => (ConditionText::Running, None),
            Condition::NotReady => (ConditionText::NotReady, None),
            Condition::Stopping => (ConditionText::Stopping, None),
            Condition::BackOff(until) => (ConditionText::BackOff, Some(left(until, now))),
            Condition::Inactive(Inactive::Ended) => (ConditionText::Ended, None),
            Condition::Inactive(Inactive::Failed) => (ConditionText::Failed, None),
            Condition::Inactive(Inactive::Idle) => (ConditionText::Idle, None),
            Condition::Inactive(Inactive::Drained) => (ConditionText::Drained, None),
        };
        let contended = task.contended.iter().map(|&(thread, kind): &(_, SettingKind)| {
            ContendedText { tid: thread.tid, value: kind.into() }
        });
        TaskStatusText {
            name: task.name.clone(),
            condition,
            back_off_left_ns,
            pid: task.process.map(|process| process.pid),
            restarts: task.counters.starts.saturating_sub(1),
            failures: task.counters.failures,
            repairs: task.counters.repairs,
            contended: contended.collect(),
        }
    }
}

/// Returns a refusal as a sentence without a full stop, with a remedy.
pub fn refusal_sentence(refusal: &Refusal) -> String {
    match refusal {
        Refusal::StaleGeneration { last } => {
            format!("the number of the generation is not above {last}; apply the file again")
        }
        Refusal::OnTrial { generation } => format!(
            "generation {generation} is on trial; run talea deploy confirm or talea deploy \
             rollback first"
        ),
        Refusal::NotOnTrial => {
            "no generation is on trial; talea deploy apply --confirm starts a trial".to_owned()
        }
        Refusal::NotReady { task } => {
            format!("{task} is not ready; look at talea deploy status, and confirm later")
        }
        Refusal::NothingInForce => {
            "no generation is in force; talea deploy apply puts one in force".to_owned()
        }
        Refusal::NothingBefore => {
            "there is no generation before the present one; name a number, or run talea deploy \
             remove"
                .to_owned()
        }
        Refusal::Governor { task } => {
            format!("{task} is a governor; drain the tasks of its root, which need it")
        }
        Refusal::UnknownTask { task } => {
            format!("no task has the name {task}; talea deploy status lists the tasks")
        }
    }
}
