//! A real-time priority without an implicit order.

/// A POSIX real-time priority, 1 (least urgent) to 99 (most urgent).
///
/// The value 100 represents the deadline class in ReTiF's files. The type is deliberately not
/// `Ord`: kernels disagree about the direction of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority(pub u8);

impl Priority {
    /// Whether `self` must run before `other`.
    pub fn outranks(self, other: Priority) -> bool {
        self.0 > other.0
    }
}
