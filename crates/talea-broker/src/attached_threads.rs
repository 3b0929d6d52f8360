//! Index of the attached threads: by handle, by unique identity, and by process.

use crate::input::{ThreadFacts, ThreadId};
use crate::spec::Attached;
use std::collections::{BTreeMap, BTreeSet};

/// Slots of the attached threads. Each thread is in every list, or in none.
#[derive(Debug, Default)]
pub(crate) struct AttachedThreads {
    handles: BTreeMap<ThreadId, u32>,
    identities: BTreeMap<(u32, u64), u32>,
    /// Process and slot of each thread.
    processes: BTreeSet<(u32, u32)>,
}

impl AttachedThreads {
    /// Adds the thread of `slot`.
    ///
    /// # Panics
    /// If the thread is attached already.
    pub(crate) fn insert(&mut self, thread: &Attached, slot: u32) {
        let taken = self.identities.insert(thread.identity(), slot).is_some()
            || self.handles.insert(thread.thread, slot).is_some()
            || !self.processes.insert((thread.tgid, slot));
        assert!(!taken, "thread {} is attached twice", thread.tid);
    }

    /// Removes the thread of `slot`.
    pub(crate) fn remove(&mut self, thread: &Attached, slot: u32) {
        self.identities.remove(&thread.identity());
        self.handles.remove(&thread.thread);
        self.processes.remove(&(thread.tgid, slot));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Returns the slot of the thread with this handle.
    pub(crate) fn slot_of(&self, thread: ThreadId) -> Option<u32> {
        self.handles.get(&thread).copied()
    }

    /// Returns the slot of the thread with this identity.
    pub(crate) fn slot_of_identity(&self, identity: (u32, u64)) -> Option<u32> {
        self.identities.get(&identity).copied()
    }

    /// Whether a thread with this handle is attached.
    pub(crate) fn has_handle(&self, thread: ThreadId) -> bool {
        self.handles.contains_key(&thread)
    }

    /// Whether the thread is attached, by the same or by another handle.
    pub(crate) fn has(&self, facts: &ThreadFacts) -> bool {
        self.identities.contains_key(&facts.identity()) || self.has_handle(facts.thread)
    }

    /// Whether a thread with this thread id is attached.
    pub(crate) fn has_tid(&self, tid: u32) -> bool {
        self.identities.range((tid, 0)..=(tid, u64::MAX)).next().is_some()
    }

    /// Iterates over the handles and slots of all threads.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ThreadId, u32)> {
        self.handles.iter().map(|(&thread, &slot)| (thread, slot))
    }

    /// Iterates over the slots of all threads.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.handles.values().copied()
    }

    /// Iterates over the slots of the threads of a process.
    pub(crate) fn of_process(&self, process: u32) -> impl Iterator<Item = u32> {
        self.processes.range((process, 0)..=(process, u32::MAX)).map(|&(_, slot)| slot)
    }

    /// Whether every list has the thread at this slot, for the audit.
    pub(crate) fn is_consistent(&self, thread: &Attached, slot: u32) -> bool {
        self.slot_of(thread.thread) == Some(slot)
            && self.slot_of_identity(thread.identity()) == Some(slot)
            && self.processes.contains(&(thread.tgid, slot))
    }

    /// Returns the lengths of the lists, with their names, for the audit.
    pub(crate) fn lengths(&self) -> [(&'static str, usize); 3] {
        [
            ("threads", self.handles.len()),
            ("identities", self.identities.len()),
            ("threads by process", self.processes.len()),
        ]
    }
}
