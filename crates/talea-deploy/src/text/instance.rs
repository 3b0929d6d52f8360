//! Text of an instance: a program that a driver has started, for a later driver that adopts it.

use super::values::{IdText, RoleText};
use super::{TextError, open, seal};
use crate::generation::Command;
use crate::ids::ProcessId;
use serde::{Deserialize, Serialize};

/// Kind of the text.
const KIND: &str = "instance";

/// Started program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Boot in which the program was started.
    pub boot: String,
    /// Task for which it was started.
    pub task: String,
    /// Command with which it was started. The role of a governor has the table that it has reported
    /// since the last [`Effect::Adjust`](crate::Effect), and zeros before that report.
    pub command: Command,
    /// Path of its control group. No other program has had it. The programs of a governed task
    /// share one, one after the other.
    pub group: String,
    /// Its first process. `None` before the start, and if the driver ended during the start: then
    /// the first process is the oldest one in the group.
    pub process: Option<ProcessId>,
    /// Whether the program has reported that it is ready.
    pub is_ready: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InstanceText {
    boot: String,
    task: String,
    program: Vec<String>,
    user: Option<String>,
    #[serde(default)]
    role: RoleText,
    group: String,
    process: Option<IdText>,
    ready: bool,
}

impl Instance {
    /// Returns the text.
    pub fn to_text(&self) -> String {
        let Instance { boot, task, command, group, process, is_ready } = self.clone();
        let Command { words: program, user, role } = command;
        let (process, role) = (process.map(IdText::from), role.into());
        let ready = is_ready;
        seal(KIND, &InstanceText { boot, task, program, user, role, group, process, ready })
    }

    /// Reads a text of [`Instance::to_text`].
    ///
    /// # Errors
    /// The first reason why the text is refused.
    pub fn from_text(text: &str) -> Result<Instance, TextError> {
        let text: InstanceText = open(KIND, text)?;
        let InstanceText { boot, task, program, user, role, group, process, ready } = text;
        let command = Command { words: program, user, role: role.try_into()? };
        let process = process.map(ProcessId::from);
        Ok(Instance { boot, task, command, group, process, is_ready: ready })
    }
}
