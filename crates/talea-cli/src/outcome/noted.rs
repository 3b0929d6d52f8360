//! What happened in a run beside its jobs: overruns, tokens that were missing or lost, circles of
//! locks.

use crate::output::count;
use crate::report::Outline;
use serde::Serialize;
use talea_core::machine::{ChannelId, Machine, Note, TaskId};
use talea_core::mutate;

/// How often. Zero everywhere, unless the description or its load is not what its author took it
/// for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Noted {
    /// Entries of a table that ended before their jobs did.
    pub(crate) overruns: u64,
    /// Jobs that ended without a token for a channel of theirs, so that its sink was not activated.
    pub(crate) not_activated: u64,
    /// Tokens for which a channel had no room.
    pub(crate) overflows: u64,
    /// Times that a job wanted a token of an empty channel.
    pub(crate) underflows: u64,
    /// Circles of jobs that wait for each other's resources for ever.
    pub(crate) deadlocks: u64,
    /// Who has closed the first circle.
    #[serde(skip)]
    pub(super) closed: Option<TaskId>,
}

impl Noted {
    /// What the machine has just said.
    pub(super) fn note(&mut self, note: &Note) {
        match *note {
            Note::Overrun { .. } => self.overruns += 1,
            Note::Deadlock { task } => {
                self.deadlocks += 1;
                self.closed.get_or_insert(task);
            }
            // The first two are told as an arrival or a refusal, the third is counted by the
            // channel.
            Note::Activated { .. } | Note::Refused { .. } | Note::NotActivated { .. } => {}
        }
    }

    /// What `channels` channels have counted themselves.
    pub(super) fn channels(&mut self, machine: &Machine, channels: usize) {
        for channel in 0..channels as u32 {
            let traffic = machine.traffic(ChannelId(channel));
            self.not_activated += traffic.silent;
            self.overflows += mutate!("cli-noted-channels", traffic.overflows, traffic.popped);
            self.underflows += traffic.underflows;
        }
    }

    /// A line, unless there is nothing to say.
    pub(super) fn line(&self, closed: Option<&str>) -> String {
        let mut said = Vec::new();
        let mut say = |times: u64, one: &str, after: &str| {
            if times > 0 {
                said.push(format!("{}{after}", count(times as usize, one)));
            }
        };
        say(self.overruns, "overrun", " of a table's entry");
        say(self.not_activated, "job", " without a token for a channel");
        say(self.overflows, "token", " lost in a full channel");
        say(self.underflows, "token", " missing in an empty channel");
        let by = closed.map(|name| format!(", closed by {name}: who waits there waits for ever"));
        say(self.deadlocks, "deadlock", &by.unwrap_or_default());
        if said.is_empty() { String::new() } else { format!("noted: {}\n", said.join("; ")) }
    }
}

impl Noted {
    /// The name of who has closed the first circle.
    pub(super) fn who<'a>(&self, outline: &'a Outline) -> Option<&'a str> {
        Some(outline.tasks.get(self.closed?.0 as usize)?.name.as_str())
    }
}
