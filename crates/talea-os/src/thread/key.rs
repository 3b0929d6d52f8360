//! Names of threads in the table of [overruns](super::dl_overruns), which outlive the handles.

use crate::Tid;
use talea_core::mutate;

/// Key of a thread: the main thread of its process, its number, and its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ThreadKey {
    pub(super) process: Tid,
    pub(super) tid: Tid,
    pub(super) incarnation: ThreadIncarnation,
}

/// Attributes that distinguish a thread from a later one with its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ThreadIncarnation {
    pub(super) inode: u64,
    /// Start time in clock ticks if the inode is not unique; otherwise 0.
    pub(super) start: u64,
}

impl ThreadIncarnation {
    /// Incarnation that was not read, or whose thread had ended. It identifies no thread.
    pub(super) const UNKNOWN: ThreadIncarnation = ThreadIncarnation { inode: 0, start: 0 };

    /// Whether both incarnations are known and of the same thread.
    pub(super) fn identifies(self, other: ThreadIncarnation) -> bool {
        mutate!(
            "os-debts-unknown",
            self != ThreadIncarnation::UNKNOWN
                && mutate!("os-debts-foreign", self == other, self == other || other.inode != 0),
            self == ThreadIncarnation::UNKNOWN || self == other
        )
    }
}
