//! What a driver may want to know and did not ask for: jobs that nobody reported, because the
//! machine made them, and what went wrong without being an error.
//!
//! Model: a queue of a fixed length, emptied by [`Machine::poll_note`](super::Machine::poll_note).
//! When nobody empties it, the newest are dropped and counted. A machine that can't have notes has
//! none of the memory.

use super::{ChannelId, Cpu, TaskId};
use crate::Time;
use alloc::vec::Vec;

/// One thing worth knowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A graph or a table has activated a task: a job is released, as if it had arrived.
    Activated {
        /// Whose job.
        task: TaskId,
        /// Its absolute deadline.
        deadline: Time,
    },
    /// The same, but there was no room in the task's backlog.
    Refused {
        /// Whose job it would have been.
        task: TaskId,
    },
    /// A job has ended without a token for this channel: its sink is not activated by it (Y2.5-5).
    NotActivated {
        /// Which channel.
        channel: ChannelId,
    },
    /// An entry of a table is over and its job has not ended.
    Overrun {
        /// Where.
        cpu: Cpu,
        /// Whose job.
        task: TaskId,
        /// Which one.
        job: u64,
    },
    /// A task waits for a resource whose holder waits, in the end, for it.
    Deadlock {
        /// Who has closed the circle.
        task: TaskId,
    },
}

#[derive(Debug, Default)]
pub(super) struct Notes {
    queue: Vec<Note>,
    first: usize,
    len: usize,
    lost: u64,
}

impl Notes {
    pub(super) fn new(capacity: usize) -> Notes {
        let filler = Note::Refused { task: TaskId(0) };
        Notes { queue: alloc::vec![filler; capacity], ..Notes::default() }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn push(&mut self, note: Note) {
        if self.len == self.queue.len() {
            self.lost += 1;
            return;
        }
        let at = (self.first + self.len) % self.queue.len();
        self.queue[at] = note;
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<Note> {
        self.len = self.len.checked_sub(1)?;
        let note = self.queue[self.first];
        self.first = (self.first + 1) % self.queue.len();
        Some(note)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}
