//! Thread numbers.
//!
//! Invariant: a number is never zero and never negative. The kernel reads 0 as "the caller" and
//! negative numbers as process groups. A daemon that accepts a client's 0 configures itself.

use std::fmt;
use std::num::NonZeroI32;

/// Thread number in the caller's PID namespace. The number of a process is the number of its main
/// thread.
///
/// A bare number names the thread that has it now. A [`crate::Thread`] stands for one thread and no
/// later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(NonZeroI32);

impl Tid {
    /// Creates a thread number. Returns `None` for a value below 1.
    pub fn new(raw: i32) -> Option<Tid> {
        NonZeroI32::new(raw).filter(|raw| raw.get() > 0).map(Tid)
    }

    /// Returns the number of the calling thread.
    pub fn current() -> Tid {
        Tid(rustix::thread::gettid().as_raw_nonzero())
    }

    /// Returns the number of the calling process, which is that of its main thread.
    pub fn of_process() -> Tid {
        Tid(rustix::process::getpid().as_raw_nonzero())
    }

    /// Returns the number as an integer of at least 1.
    pub fn as_raw(self) -> i32 {
        self.0.get()
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tid({})", self.0)
    }
}
