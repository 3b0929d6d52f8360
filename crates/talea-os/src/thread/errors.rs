//! Errors of opening and configuring a thread.

use crate::sys::is;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use talea_core::Monotonic;

/// Reason why a thread cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// No such thread exists, or it is not visible in this PID namespace.
    Gone,
    /// The descriptor is no pidfd. The variant returns the descriptor. Closing it may block.
    NotAPidfd(OwnedFd),
    /// The thread is a kernel thread.
    KernelThread,
    /// The number belongs to another thread than the intended one.
    OtherThread,
    /// The kernel refused to open the thread.
    Os(io::Error),
}

/// Call that the kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyStep {
    /// Call that reads the thread's attributes.
    Read,
    /// Call of `sched_setattr`.
    Policy,
    /// Call of `sched_setaffinity`.
    Affinity,
    /// Call of `setpriority`.
    Nice,
}

/// Reason why attributes could not be set.
#[derive(Debug)]
pub enum ApplyError {
    /// The thread has ended. No other thread was changed.
    Gone,
    /// The kernel refused a call. The thread has its previous attributes.
    Refused {
        /// The refused call.
        step: ApplyStep,
        /// The kernel's error.
        error: io::Error,
    },
    /// The kernel refused a deadline policy, because the thread sleeps on a CPU outside its new
    /// affinity, in another root domain. The thread has its previous attributes.
    ///
    /// A sleeping thread moves when it wakes, not when its affinity changes. The caller can call
    /// [`crate::Thread::pin`], let the thread run, and try again.
    OtherRootDomain {
        /// CPU on which the thread sleeps.
        cpu: u32,
    },
    /// The thread has left a deadline policy with its budget overdrawn. If the thread entered the
    /// class before its zero-lag time, the kernel would never run it again. The thread has its
    /// previous attributes.
    OverrunDebt {
        /// Earliest time to try again: an upper bound of the zero-lag time.
        until: Monotonic,
    },
    /// The kernel refused a call, and restoring failed as well. The thread is half configured.
    RestoreFailed {
        /// The call that was refused first.
        step: ApplyStep,
        /// The error of that call.
        error: io::Error,
        /// The error of restoring.
        undo: io::Error,
    },
}

/// Refused call, before the caller knows whether it could restore the thread.
pub(super) struct FailedStep {
    pub(super) step: ApplyStep,
    pub(super) error: io::Error,
    /// Time until which this crate refuses the call. `None` if the kernel refused, not this crate.
    pub(super) until: Option<Monotonic>,
}

impl FailedStep {
    /// Returns a function for `map_err` that adds `step` to an error.
    pub(super) fn at(step: ApplyStep) -> impl FnOnce(io::Error) -> FailedStep {
        move |error| FailedStep { step, error, until: None }
    }

    pub(super) fn overrun_debt(until: Monotonic) -> FailedStep {
        FailedStep {
            step: ApplyStep::Policy,
            error: crate::sys::errno(libc::EAGAIN),
            until: Some(until),
        }
    }
}

impl From<FailedStep> for ApplyError {
    fn from(failed: FailedStep) -> ApplyError {
        match failed.until {
            Some(until) => ApplyError::OverrunDebt { until },
            None if is(&failed.error, libc::ESRCH) => ApplyError::Gone,
            None => ApplyError::Refused { step: failed.step, error: failed.error },
        }
    }
}

impl ApplyError {
    /// Returns the kernel's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            ApplyError::Gone => None,
            ApplyError::OtherRootDomain { .. } => Some(libc::EPERM),
            ApplyError::OverrunDebt { .. } => Some(libc::EAGAIN),
            ApplyError::Refused { error, .. } | ApplyError::RestoreFailed { error, .. } => {
                error.raw_os_error()
            }
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        match error.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => OpenError::Gone,
            _ => OpenError::Os(error),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Gone => f.write_str("no such thread is alive in this PID namespace"),
            OpenError::NotAPidfd(_) => f.write_str("the descriptor is not a pidfd"),
            OpenError::KernelThread => f.write_str("it is a thread of the kernel"),
            OpenError::OtherThread => f.write_str("the number now belongs to another thread"),
            OpenError::Os(error) => write!(f, "the kernel refused: {error}"),
        }
    }
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyError::Gone => f.write_str("the thread has ended"),
            ApplyError::Refused { step, error } => write!(f, "the kernel refused {step}: {error}"),
            ApplyError::OtherRootDomain { cpu } => {
                write!(
                    f,
                    "the thread sleeps on CPU {cpu}, in another root domain, until it next runs"
                )
            }
            ApplyError::OverrunDebt { .. } => {
                f.write_str("the thread has overrun its last deadline reservation and has not paid that off yet")
            }
            ApplyError::RestoreFailed { step, error, undo } => {
                write!(f, "the kernel refused {step}: {error}; restoring its attributes failed too: {undo}")
            }
        }
    }
}

impl fmt::Display for ApplyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ApplyStep::Read => "to return the thread's attributes",
            ApplyStep::Policy => "the scheduling policy",
            ApplyStep::Affinity => "the CPU affinity",
            ApplyStep::Nice => "the nice value",
        })
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl std::error::Error for ApplyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ApplyError::Refused { error, .. } | ApplyError::RestoreFailed { error, .. } => {
                Some(error)
            }
            _ => None,
        }
    }
}
