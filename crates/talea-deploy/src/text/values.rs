//! JSON forms of the values of a generation and of a record.

use super::TextError;
use crate::generation::{Command, FileHash, Governed, Role, RootSpec, TaskSpec};
use crate::ids::{ProcessId, SettingKind, ThreadId};
use crate::inactive::Inactive;
use serde::{Deserialize, Serialize};
use talea_core::health::{Health, OnFailure, Restart, RestartOn};
use talea_core::{Attr, CpuSet, Policy, Priority, Span, Work};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RootText {
    name: String,
    cpus: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskText {
    name: String,
    root: usize,
    program: Vec<String>,
    user: Option<String>,
    #[serde(default)]
    role: RoleText,
    attr: AttrText,
    health: HealthText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    governed: Option<GovernedText>,
}

/// JSON form of [`Role`]. A text of a version without governors has none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum RoleText {
    #[default]
    Linux,
    Governed {
        cpus: String,
    },
    Governor {
        sha256: String,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GovernedText {
    root: String,
    cpus: String,
    system: String,
    tasks: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttrText {
    policy: PolicyText,
    reset_on_fork: bool,
    cpus: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum PolicyText {
    Other { nice: i8 },
    Batch { nice: i8 },
    Idle,
    Fifo { priority: u8 },
    Rr { priority: u8 },
    Deadline { runtime_ns: u64, deadline_ns: u64, period_ns: u64 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthText {
    ready_ns: Option<u64>,
    on_failure: OnFailureText,
    restart: RestartText,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OnFailureText {
    Restart,
    Idle,
    Ignore,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestartText {
    when: RestartOnText,
    attempts: u32,
    within_ns: u64,
    backoff_ns: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RestartOnText {
    Failure,
    Always,
}

/// JSON form of [`ProcessId`] and [`ThreadId`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IdText {
    number: u32,
    start_ticks: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum InactiveText {
    Ended,
    Failed,
    Idle,
    Drained,
}

/// Kind of a value of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KindText {
    Policy,
    Cpus,
}

impl From<Role> for RoleText {
    fn from(role: Role) -> RoleText {
        match role {
            Role::Linux => RoleText::Linux,
            Role::Governed(cpus) => RoleText::Governed { cpus: cpus.to_string() },
            Role::Governor(hash) => RoleText::Governor { sha256: hash.to_string() },
        }
    }
}

impl TryFrom<RoleText> for Role {
    type Error = TextError;

    fn try_from(text: RoleText) -> Result<Role, TextError> {
        Ok(match text {
            RoleText::Linux => Role::Linux,
            RoleText::Governed { cpus: text } => Role::Governed(cpus(&text)?),
            RoleText::Governor { sha256 } => Role::Governor(sha256_of(&sha256)?),
        })
    }
}

impl From<&Governed> for GovernedText {
    fn from(governed: &Governed) -> GovernedText {
        let Governed { root, cpus, system, tasks } = governed.clone();
        GovernedText { root, cpus: cpus.to_string(), system, tasks }
    }
}

impl TryFrom<GovernedText> for Governed {
    type Error = TextError;

    fn try_from(text: GovernedText) -> Result<Governed, TextError> {
        let GovernedText { root, cpus: list, system, tasks } = text;
        Ok(Governed { root, cpus: cpus(&list)?, system, tasks })
    }
}

/// Reads a hash in hexadecimal digits.
pub(super) fn sha256_of(text: &str) -> Result<FileHash, TextError> {
    let why = "sha256 is not a number of 64 hexadecimal digits";
    FileHash::parse(text).ok_or_else(|| TextError::Malformed(why.to_owned()))
}

fn cpus(text: &str) -> Result<CpuSet, TextError> {
    if text.is_empty() {
        return Ok(CpuSet::EMPTY);
    }
    CpuSet::parse(text).map_err(|error| TextError::Malformed(format!("cpus: {error}")))
}

impl From<&RootSpec> for RootText {
    fn from(root: &RootSpec) -> RootText {
        RootText { name: root.name.clone(), cpus: root.cpus.to_string() }
    }
}

impl TryFrom<RootText> for RootSpec {
    type Error = TextError;

    fn try_from(text: RootText) -> Result<RootSpec, TextError> {
        Ok(RootSpec { cpus: cpus(&text.cpus)?, name: text.name })
    }
}

impl From<&TaskSpec> for TaskText {
    fn from(task: &TaskSpec) -> TaskText {
        let TaskSpec { name, root, command, attr, health, governed } = task;
        TaskText {
            name: name.clone(),
            root: *root,
            program: command.words.clone(),
            user: command.user.clone(),
            role: command.role.into(),
            attr: attr.into(),
            health: health.into(),
            governed: governed.as_ref().map(GovernedText::from),
        }
    }
}

impl TryFrom<TaskText> for TaskSpec {
    type Error = TextError;

    fn try_from(text: TaskText) -> Result<TaskSpec, TextError> {
        let TaskText { name, root, program, user, role, attr, health, governed } = text;
        let command = Command { words: program, user, role: role.try_into()? };
        let governed = governed.map(TryInto::try_into).transpose()?;
        Ok(TaskSpec {
            name,
            root,
            command,
            attr: attr.try_into()?,
            health: health.into(),
            governed,
        })
    }
}

impl From<&Attr> for AttrText {
    fn from(attr: &Attr) -> AttrText {
        let policy = match attr.policy {
            Policy::Other { nice } => PolicyText::Other { nice },
            Policy::Batch { nice } => PolicyText::Batch { nice },
            Policy::Idle => PolicyText::Idle,
            Policy::Fifo(Priority(priority)) => PolicyText::Fifo { priority },
            Policy::Rr(Priority(priority)) => PolicyText::Rr { priority },
            Policy::Deadline { runtime, deadline, period } => PolicyText::Deadline {
                runtime_ns: runtime.as_ns(),
                deadline_ns: deadline.as_ns(),
                period_ns: period.as_ns(),
            },
        };
        let is_empty = attr.cpus.is_empty();
        let cpus = if is_empty { String::new() } else { attr.cpus.to_string() };
        AttrText { policy, reset_on_fork: attr.reset_on_fork, cpus }
    }
}

impl TryFrom<AttrText> for Attr {
    type Error = TextError;

    fn try_from(text: AttrText) -> Result<Attr, TextError> {
        let policy = match text.policy {
            PolicyText::Other { nice } => Policy::Other { nice },
            PolicyText::Batch { nice } => Policy::Batch { nice },
            PolicyText::Idle => Policy::Idle,
            PolicyText::Fifo { priority } => Policy::Fifo(Priority(priority)),
            PolicyText::Rr { priority } => Policy::Rr(Priority(priority)),
            PolicyText::Deadline { runtime_ns, deadline_ns, period_ns } => Policy::Deadline {
                runtime: Work::from_ns(runtime_ns),
                deadline: Span::from_ns(deadline_ns),
                period: Span::from_ns(period_ns),
            },
        };
        Ok(Attr { policy, reset_on_fork: text.reset_on_fork, cpus: cpus(&text.cpus)? })
    }
}

impl From<&Health> for HealthText {
    fn from(health: &Health) -> HealthText {
        let Restart { when, attempts, within, backoff } = health.restart;
        HealthText {
            ready_ns: health.ready.map(Span::as_ns),
            on_failure: match health.on_failure {
                OnFailure::Restart => OnFailureText::Restart,
                OnFailure::Idle => OnFailureText::Idle,
                OnFailure::Ignore => OnFailureText::Ignore,
            },
            restart: RestartText {
                when: match when {
                    RestartOn::Failure => RestartOnText::Failure,
                    RestartOn::Always => RestartOnText::Always,
                },
                attempts,
                within_ns: within.as_ns(),
                backoff_ns: backoff.as_ns(),
            },
        }
    }
}

impl From<HealthText> for Health {
    fn from(text: HealthText) -> Health {
        let RestartText { when, attempts, within_ns, backoff_ns } = text.restart;
        Health {
            ready: text.ready_ns.map(Span::from_ns),
            on_failure: match text.on_failure {
                OnFailureText::Restart => OnFailure::Restart,
                OnFailureText::Idle => OnFailure::Idle,
                OnFailureText::Ignore => OnFailure::Ignore,
            },
            restart: Restart {
                when: match when {
                    RestartOnText::Failure => RestartOn::Failure,
                    RestartOnText::Always => RestartOn::Always,
                },
                attempts,
                within: Span::from_ns(within_ns),
                backoff: Span::from_ns(backoff_ns),
            },
        }
    }
}

impl From<ProcessId> for IdText {
    fn from(id: ProcessId) -> IdText {
        IdText { number: id.pid, start_ticks: id.start }
    }
}

impl From<IdText> for ProcessId {
    fn from(text: IdText) -> ProcessId {
        ProcessId { start: text.start_ticks, pid: text.number }
    }
}

impl From<ThreadId> for IdText {
    fn from(id: ThreadId) -> IdText {
        IdText { number: id.tid, start_ticks: id.start }
    }
}

impl From<IdText> for ThreadId {
    fn from(text: IdText) -> ThreadId {
        ThreadId { start: text.start_ticks, tid: text.number }
    }
}

impl From<Inactive> for InactiveText {
    fn from(why: Inactive) -> InactiveText {
        match why {
            Inactive::Ended => InactiveText::Ended,
            Inactive::Failed => InactiveText::Failed,
            Inactive::Idle => InactiveText::Idle,
            Inactive::Drained => InactiveText::Drained,
        }
    }
}

impl From<InactiveText> for Inactive {
    fn from(text: InactiveText) -> Inactive {
        match text {
            InactiveText::Ended => Inactive::Ended,
            InactiveText::Failed => Inactive::Failed,
            InactiveText::Idle => Inactive::Idle,
            InactiveText::Drained => Inactive::Drained,
        }
    }
}

impl From<SettingKind> for KindText {
    fn from(kind: SettingKind) -> KindText {
        match kind {
            SettingKind::Policy => KindText::Policy,
            SettingKind::Cpus => KindText::Cpus,
        }
    }
}

impl From<KindText> for SettingKind {
    fn from(text: KindText) -> SettingKind {
        match text {
            KindText::Policy => SettingKind::Policy,
            KindText::Cpus => SettingKind::Cpus,
        }
    }
}
