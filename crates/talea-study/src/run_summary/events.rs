//! Notifications of the engine during a run: overruns, missing or lost tokens, deadlocks.

use crate::output::count;
use crate::report::Outline;
use serde::Serialize;
use talea_core::engine::{ChannelId, Engine, Notification, TaskId};
use talea_core::mutate;

/// Number of events of each kind. All are zero unless the description or its load has a defect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct EventCounts {
    /// Number of entries of a table that ended before their jobs.
    pub overruns: u64,
    /// Number of jobs that completed without a token for one of their channels, so that the sink of
    /// the channel was not activated.
    pub not_activated: u64,
    /// Number of tokens that were lost in a full channel.
    pub overflows: u64,
    /// Number of tokens that were missing in an empty channel.
    pub underflows: u64,
    /// Number of cycles of jobs that wait for each other's resources forever.
    pub deadlocks: u64,
    /// Task that closed the first cycle.
    #[serde(skip)]
    pub(super) deadlocked_by: Option<TaskId>,
}

impl EventCounts {
    /// Counts a notification of the engine.
    pub(super) fn count_note(&mut self, note: &Notification) {
        match *note {
            Notification::Overrun { .. } => {
                self.overruns += mutate!("cli-noted-overruns", 1, 0);
            }
            Notification::Deadlock { task } => {
                self.deadlocks += 1;
                self.deadlocked_by.get_or_insert(task);
            }
            // The first two are reported as an arrival or a refusal; the channel counts the third.
            Notification::Activated { .. }
            | Notification::Refused { .. }
            | Notification::NotActivated { .. } => {}
        }
    }

    /// Adds the counters of the first `channels` channels.
    pub(super) fn add_channels(&mut self, machine: &Engine, channels: usize) {
        for channel in 0..channels as u32 {
            let traffic = machine.traffic(ChannelId(channel));
            self.not_activated += traffic.silent;
            self.overflows += mutate!("cli-noted-channels", traffic.overflows, traffic.popped);
            self.underflows += traffic.underflows;
        }
    }

    /// Formats the events in a line. Returns an empty text if there are none.
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
        let by = closed.map(|name| format!(", closed by {name}: its jobs wait forever"));
        say(self.deadlocks, "deadlock", &by.unwrap_or_default());
        if said.is_empty() { String::new() } else { format!("events: {}\n", said.join("; ")) }
    }
}

impl EventCounts {
    /// Returns the name of the task that closed the first cycle.
    pub(super) fn deadlocked_task<'a>(&self, outline: &'a Outline) -> Option<&'a str> {
        Some(outline.tasks.get(self.deadlocked_by?.0 as usize)?.name.as_str())
    }
}
