//! Importance without an order that somebody could misread.

/// A POSIX real-time priority, 1 (least) to 99 (most urgent); 100 stands for the deadline class in
/// ReTiF's files. Deliberately not `Ord`: kernels disagree on which end is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority(pub u8);

impl Priority {
    /// True if `self` must run before `other`.
    pub fn outranks(self, other: Priority) -> bool {
        self.0 > other.0
    }
}
