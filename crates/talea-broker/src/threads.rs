//! Attached threads: identity, ordered attributes and the kernel's results.
//!
//! A thread is identified by its id and its pidfd's inode, or its start time if there is no inode,
//! never by the id alone (R32).
//!
//! *Order of changes.* A decision may move the kernel priorities of attached threads. The broker
//! orders the changes so that it inverts no pair of threads meanwhile: first the threads that rise,
//! highest first; then the threads that fall, lowest first. Proof: the decision keeps the order of
//! every pair without the changed spec. Of two rising threads, the upper one has left before the
//! lower one arrives; of two falling threads, the lower one. A rising and a falling thread share no
//! level on their ways. The changed spec is sorted in with the others, so a single change inverts
//! each pair that it must invert.

mod orders;

use crate::input::ThreadFacts;
use crate::spec::{Attached, Attempts, ThreadTrail};
use talea_core::{Attr, Span};
use talea_proto::record::RecordThread;

/// Delay before a refused order is repeated.
pub(crate) const RETRY_AFTER: Span = Span::from_ns(1_000_000_000);

/// Change of a thread's attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttrChange {
    slot: u32,
    attr: Attr,
    /// Sort key: rising threads first, highest first; then falling threads, lowest first.
    order: (bool, i16),
}

impl ThreadFacts {
    /// Returns the unique identity of the thread.
    pub(crate) fn identity(&self) -> (u32, u64) {
        identity(self.tid, self.inode, self.start)
    }
}

/// Returns the unique identity: an inode is never reused during a boot, and a start time not for
/// the same id.
fn identity(tid: u32, inode: u64, start: u64) -> (u32, u64) {
    (tid, if inode == 0 { start } else { inode })
}

impl Attached {
    pub(crate) fn new(facts: &ThreadFacts, previous: Attr, applied: Attr) -> Attached {
        Attached {
            thread: facts.thread,
            tid: facts.tid,
            tgid: facts.tgid,
            start: facts.start,
            inode: facts.inode,
            uids: facts.uids,
            previous,
            applied,
            limit: None,
            ticket: None,
            attempts: Attempts::default(),
            exited: false,
            returned_at: None,
            trail: ThreadTrail::default(),
        }
    }

    /// Returns the unique identity of the thread.
    pub(crate) fn identity(&self) -> (u32, u64) {
        identity(self.tid, self.inode, self.start)
    }

    pub(crate) fn record(&self) -> RecordThread {
        let Attached { tid, tgid, start, inode, previous, applied, .. } = *self;
        RecordThread { tid, tgid, start, inode, previous, applied }
    }
}
