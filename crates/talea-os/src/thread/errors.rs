//! Why a thread could not be held or configured.

use crate::sys::is;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use talea_core::Time;

/// Why a thread can't be held.
#[derive(Debug)]
pub enum OpenError {
    /// There is no such thread, or it is not visible in this PID namespace.
    Gone,
    /// The descriptor is something else than a pidfd: this one. Closing it may take its time.
    NotAPidfd(OwnedFd),
    /// A thread of the kernel itself.
    KernelThread,
    /// The number belongs to another thread than the one that was meant.
    Another,
    /// The kernel refused.
    Os(io::Error),
}

/// Which call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reading what the thread has.
    Read,
    /// `sched_setattr`.
    Policy,
    /// `sched_setaffinity`.
    Affinity,
    /// `setpriority`.
    Nice,
}

/// Why attributes could not be given.
#[derive(Debug)]
pub enum ApplyError {
    /// The thread has ended; nobody else was changed.
    Gone,
    /// The kernel refused; the thread has what it had.
    Refused {
        /// Which call.
        step: Step,
        /// The kernel's answer.
        error: io::Error,
    },
    /// A deadline policy was refused because the thread sleeps on a CPU outside its new affinity,
    /// in another root domain; the thread has what it had.
    ///
    /// A sleeping thread moves when it wakes, not when its affinity changes. [`crate::Thread::pin`]
    /// it, let it run, and ask again.
    Elsewhere {
        /// Where it sleeps.
        cpu: u32,
    },
    /// The thread has left a deadline policy with its budget overdrawn. Put back before its
    /// zero-lag time, the kernel would never run it again. The thread has what it had.
    TooSoon {
        /// When to ask again; an upper bound.
        until: Time,
    },
    /// The kernel refused, and refused putting back as well: the thread is in between.
    Unsettled {
        /// Which call was refused first.
        step: Step,
        /// The first answer.
        error: io::Error,
        /// The answer to putting back.
        undo: io::Error,
    },
}

/// One refused step, before it is known what could be put back.
pub(super) struct Failed {
    pub(super) step: Step,
    pub(super) error: io::Error,
    /// Not the kernel's refusal but ours, until then.
    pub(super) until: Option<Time>,
}

impl Failed {
    /// For `map_err`.
    pub(super) fn at(step: Step) -> impl FnOnce(io::Error) -> Failed {
        move |error| Failed { step, error, until: None }
    }

    pub(super) fn too_soon(until: Time) -> Failed {
        Failed { step: Step::Policy, error: crate::sys::errno(libc::EAGAIN), until: Some(until) }
    }
}

impl From<Failed> for ApplyError {
    fn from(failed: Failed) -> ApplyError {
        match failed.until {
            Some(until) => ApplyError::TooSoon { until },
            None if is(&failed.error, libc::ESRCH) => ApplyError::Gone,
            None => ApplyError::Refused { step: failed.step, error: failed.error },
        }
    }
}

impl ApplyError {
    /// The kernel's number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            ApplyError::Gone => None,
            ApplyError::Elsewhere { .. } => Some(libc::EPERM),
            ApplyError::TooSoon { .. } => Some(libc::EAGAIN),
            ApplyError::Refused { error, .. } | ApplyError::Unsettled { error, .. } => {
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
            OpenError::Another => f.write_str("the number now belongs to another thread"),
            OpenError::Os(error) => write!(f, "the kernel refused: {error}"),
        }
    }
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyError::Gone => f.write_str("the thread has ended"),
            ApplyError::Refused { step, error } => write!(f, "the kernel refused {step}: {error}"),
            ApplyError::Elsewhere { cpu } => {
                write!(
                    f,
                    "the thread sleeps on CPU {cpu}, in another root domain, until it next runs"
                )
            }
            ApplyError::TooSoon { .. } => {
                f.write_str("the thread still owes CPU time to its last deadline reservation")
            }
            ApplyError::Unsettled { step, error, undo } => {
                write!(f, "the kernel refused {step}: {error}; putting back failed too: {undo}")
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Read => "to tell the thread's attributes",
            Step::Policy => "the scheduling policy",
            Step::Affinity => "the CPU affinity",
            Step::Nice => "the nice value",
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
            ApplyError::Refused { error, .. } | ApplyError::Unsettled { error, .. } => Some(error),
            _ => None,
        }
    }
}
