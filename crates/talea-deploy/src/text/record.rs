//! Text of a record. It names its generations by their numbers.

use super::values::{IdText, InactiveText, KindText};
use super::{TextError, open, seal};
use crate::generation::Generation;
use crate::record::{Counters, Record, TaskRecord};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use talea_core::{Monotonic, mutate};

/// Kind of the text.
const KIND: &str = "record";

/// Record in a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredRecord {
    /// Boot in which the record was written. Its times and processes are valid in this boot only.
    boot: String,
    last_number: u64,
    in_force: Option<u64>,
    before: Option<u64>,
    trial_until_ns: Option<u64>,
    tasks: Vec<TaskText>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskText {
    inactive: Option<InactiveText>,
    restarts_ns: Vec<u64>,
    not_before_ns: Option<u64>,
    process: Option<IdText>,
    started_at_ns: Option<u64>,
    starts: u64,
    failures: u64,
    repairs: u64,
    contended: Vec<(IdText, KindText)>,
}

impl StoredRecord {
    /// Returns the file of a record that is written in boot `boot`.
    pub fn new(record: &Record, boot: &str) -> StoredRecord {
        let number = |of: &Option<Arc<Generation>>| of.as_ref().map(|of| of.number());
        StoredRecord {
            boot: boot.to_owned(),
            last_number: record.last_number,
            in_force: number(&record.in_force),
            before: number(&record.before),
            trial_until_ns: record.trial_until.map(Monotonic::as_ns),
            tasks: record.tasks.iter().map(TaskText::from).collect(),
        }
    }

    /// Returns the text.
    pub fn to_text(&self) -> String {
        seal(KIND, self)
    }

    /// Reads a text of [`StoredRecord::to_text`].
    ///
    /// # Errors
    /// The first reason why the text is refused.
    pub fn from_text(text: &str) -> Result<StoredRecord, TextError> {
        open(KIND, text)
    }

    /// Returns the numbers of the generation in force and of the one before.
    pub fn generations(&self) -> (Option<u64>, Option<u64>) {
        (self.in_force, self.before)
    }

    /// Returns the record with its generations, in boot `boot`.
    ///
    /// # Errors
    /// If a generation is not the one that the record names.
    pub fn into_record(
        self,
        in_force: Option<Arc<Generation>>,
        before: Option<Arc<Generation>>,
        boot: &str,
    ) -> Result<Record, TextError> {
        let number = |of: &Option<Arc<Generation>>| of.as_ref().map(|of| of.number());
        let tasks = in_force.as_ref().map_or(0, |generation| generation.tasks().len());
        let is_same = (number(&in_force), number(&before)) == (self.in_force, self.before);
        if !is_same || tasks != self.tasks.len() {
            return Err(TextError::OtherGeneration);
        }
        let record = Record {
            last_number: self.last_number,
            in_force,
            before,
            trial_until: self.trial_until_ns.map(Monotonic::from_ns),
            tasks: self.tasks.into_iter().map(TaskRecord::from).collect(),
        };
        let is_same_boot = mutate!("deploy-record-boot", self.boot == boot, true);
        Ok(if is_same_boot { record } else { record.after_boot() })
    }
}

impl From<&TaskRecord> for TaskText {
    fn from(task: &TaskRecord) -> TaskText {
        let Counters { starts, failures, repairs } = task.counters;
        TaskText {
            inactive: task.inactive.map(InactiveText::from),
            restarts_ns: task.restarts.iter().map(|at| at.as_ns()).collect(),
            not_before_ns: task.not_before.map(Monotonic::as_ns),
            process: task.process.map(IdText::from),
            started_at_ns: task.started_at.map(Monotonic::as_ns),
            starts,
            failures,
            repairs,
            contended: task
                .contended
                .iter()
                .map(|&(thread, kind)| (thread.into(), kind.into()))
                .collect(),
        }
    }
}

impl From<TaskText> for TaskRecord {
    fn from(text: TaskText) -> TaskRecord {
        let TaskText { starts, failures, repairs, .. } = text;
        TaskRecord {
            inactive: text.inactive.map(Into::into),
            restarts: text.restarts_ns.into_iter().map(Monotonic::from_ns).collect(),
            not_before: text.not_before_ns.map(Monotonic::from_ns),
            process: text.process.map(Into::into),
            started_at: text.started_at_ns.map(Monotonic::from_ns),
            counters: Counters { starts, failures, repairs },
            contended: text
                .contended
                .into_iter()
                .map(|(thread, kind)| (thread.into(), kind.into()))
                .collect(),
        }
    }
}
