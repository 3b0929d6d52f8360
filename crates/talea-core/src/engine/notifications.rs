//! Notifications for a driver: jobs that the engine itself released, and irregularities that are no
//! errors.
//!
//! Model: a queue of fixed length, which
//! [`Engine::poll_notification`](super::Engine::poll_notification) drains. If the queue is full,
//! the engine drops the newest notification and counts it. An engine that cannot produce
//! notifications allocates no queue.

use super::ids::{ChannelId, Cpu, TaskId};
use crate::Time;
use alloc::vec::Vec;

/// Output of the engine for observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// A graph or a table has activated a task. The engine released a job, as for an arrival.
    Activated {
        /// Task of the job.
        task: TaskId,
        /// Absolute deadline of the job.
        deadline: Time,
    },
    /// The engine refused an activation: the backlog of the task is full.
    Refused {
        /// Task of the refused job.
        task: TaskId,
    },
    /// A job has completed without a token for this channel, so its sink is not activated (Y2.5-5).
    NotActivated {
        /// Channel without a token.
        channel: ChannelId,
    },
    /// An entry of a table has ended before its job.
    Overrun {
        /// CPU of the entry.
        cpu: Cpu,
        /// Task of the job.
        task: TaskId,
        /// Number of the job.
        job: u64,
    },
    /// A deadlock: the task waits for a resource whose holder waits, directly or indirectly, for
    /// the task.
    Deadlock {
        /// Task whose request closed the cycle.
        task: TaskId,
    },
}

#[derive(Debug, Default)]
pub(super) struct NotificationQueue {
    queue: Vec<Notification>,
    first: usize,
    len: usize,
    lost: u64,
}

impl NotificationQueue {
    pub(super) fn new(capacity: usize) -> NotificationQueue {
        let filler = Notification::Refused { task: TaskId(0) };
        NotificationQueue { queue: alloc::vec![filler; capacity], ..NotificationQueue::default() }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn push(&mut self, notification: Notification) {
        if self.len == self.queue.len() {
            self.lost += 1;
            return;
        }
        let at = (self.first + self.len) % self.queue.len();
        self.queue[at] = notification;
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<Notification> {
        self.len = self.len.checked_sub(1)?;
        let notification = self.queue[self.first];
        self.first = (self.first + 1) % self.queue.len();
        Some(notification)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}
