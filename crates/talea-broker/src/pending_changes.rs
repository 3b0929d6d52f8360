//! Changes that await the kernel's result. Meanwhile no other request may reserve: the capacity of
//! the old parameters must still be free if the kernel refuses the new ones.

use crate::admission::AdmissionRequest;
use crate::foreign::HostReply;
use crate::input::SessionId;
use crate::session::QueuedRequest;
use std::collections::VecDeque;

/// Item that waits until no change awaits the kernel's result.
#[derive(Debug)]
pub(crate) enum Blocked {
    /// A request that would reserve capacity.
    Request(SessionId, Box<QueuedRequest>),
    /// An admission that continues: with the answer of a foreign plugin, if it waited for one.
    Resume(Box<AdmissionRequest>, Option<HostReply>),
}

/// Number of specs whose changed parameters await the kernel's result, and the blocked items.
#[derive(Debug, Default)]
pub(crate) struct PendingChanges {
    count: u32,
    blocked: VecDeque<Blocked>,
}

impl PendingChanges {
    /// Records that a change awaits the kernel's result.
    pub(crate) fn begin(&mut self) {
        self.count += 1;
    }

    /// Records the end of a change.
    pub(crate) fn end(&mut self) {
        self.count -= 1;
    }

    /// Returns the number of changes.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether a change awaits the kernel's result, so that no request may reserve.
    pub(crate) fn is_any(&self) -> bool {
        self.count > 0
    }

    /// Returns the number of blocked items.
    pub(crate) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// Blocks an item until no change awaits the kernel's result.
    pub(crate) fn block(&mut self, item: Blocked) {
        self.blocked.push_back(item);
    }

    /// Removes and returns the oldest blocked item if it may continue.
    pub(crate) fn unblock(&mut self) -> Option<Blocked> {
        if self.is_any() { None } else { self.blocked.pop_front() }
    }

    /// Drops the blocked requests of a connection.
    pub(crate) fn drop_requests_of(&mut self, session: SessionId) {
        self.blocked
            .retain(|blocked| !matches!(blocked, Blocked::Request(id, _) if *id == session));
    }

    /// Removes and returns the blocked admissions that are `wanted`.
    pub(crate) fn take_admissions(
        &mut self,
        wanted: impl Fn(&AdmissionRequest) -> bool,
    ) -> Vec<AdmissionRequest> {
        let mut taken = Vec::new();
        for blocked in std::mem::take(&mut self.blocked) {
            match blocked {
                Blocked::Resume(request, _) if wanted(&request) => taken.push(*request),
                other => self.blocked.push_back(other),
            }
        }
        taken
    }
}
