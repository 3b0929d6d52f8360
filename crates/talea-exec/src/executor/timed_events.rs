//! Events at known times besides releases: ends of suspensions, and changes of conditions.

use talea_core::Time;
use talea_core::engine::{Condition, TaskId};
use talea_core::heap::Heap;
use talea_core::mutate;

/// Events that are still to come.
#[derive(Debug)]
pub(super) struct TimedEvents {
    /// End of the suspension of each suspended task.
    resumptions: Heap,
    /// Changes of battery, mode and permissions, in order of time. `next_change` is the index of
    /// the next change.
    changes: Vec<(Time, Condition)>,
    next_change: usize,
}

impl TimedEvents {
    /// Creates the events of a root with `tasks` tasks. The caller passes `changes` in order of
    /// time.
    pub(super) fn new(tasks: usize, changes: Vec<(Time, Condition)>) -> TimedEvents {
        TimedEvents { resumptions: Heap::new(tasks), changes, next_change: 0 }
    }

    /// Replaces the changes, in order of time, and returns the old ones in their place.
    pub(super) fn replace_changes(&mut self, changes: &mut Vec<(Time, Condition)>) {
        std::mem::swap(&mut self.changes, changes);
        self.next_change = 0;
    }

    /// Suspends `task` until `until`.
    pub(super) fn suspend(&mut self, task: TaskId, until: Time) {
        self.resumptions.set(task.0, until.as_ns());
    }

    /// Takes a task whose suspension is over at `now`.
    pub(super) fn take_resumed(&mut self, now: Time) -> Option<TaskId> {
        let (_, task) = self.resumptions.first().filter(|&(at, _)| at <= now.as_ns())?;
        self.resumptions.remove(task);
        Some(TaskId(task))
    }

    /// Takes the next change, if that is due at `now`.
    pub(super) fn take_change(&mut self, now: Time) -> Option<Condition> {
        let &(_, condition) = self.changes.get(self.next_change).filter(|&&(at, _)| at <= now)?;
        self.next_change += 1;
        Some(condition)
    }

    /// Returns the time of the next event.
    pub(super) fn next(&self) -> Time {
        let change = self.changes.get(self.next_change).map_or(Time::NEVER, |&(at, _)| at);
        let resumption = self.resumptions.first().map_or(Time::NEVER, |(at, _)| Time::from_ns(at));
        mutate!("exec-alarm-wake", resumption.min(change), change)
    }
}
