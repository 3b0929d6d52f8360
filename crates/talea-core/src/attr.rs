//! Kernel scheduling attributes of one thread: policy and CPUs.
//!
//! The module is plain data. `talea-os` makes the system calls.

use crate::{CpuSet, Priority, Span, Work};

/// A kernel scheduling policy with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`, the ordinary time-sharing class.
    Other {
        /// Nice value, −20 (favoured) to 19.
        nice: i8,
    },
    /// `SCHED_BATCH`.
    Batch {
        /// Nice value, −20 (favoured) to 19.
        nice: i8,
    },
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_FIFO`.
    Fifo(Priority),
    /// `SCHED_RR`.
    Rr(Priority),
    /// `SCHED_DEADLINE`: `runtime` in every `period`, within `deadline` of each activation.
    Deadline {
        /// Budget of each period. The kernel requires at least 1,024 ns.
        runtime: Work,
        /// Relative deadline, at most `period`.
        deadline: Span,
        /// Distance between two refills.
        period: Span,
    },
}

impl Policy {
    /// Whether threads with this policy run before all ordinary threads.
    pub fn is_real_time(&self) -> bool {
        matches!(self, Policy::Fifo(_) | Policy::Rr(_) | Policy::Deadline { .. })
    }
}

/// Attributes that a grant sets on a thread, and that the daemon restores afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Scheduling policy and its parameters.
    pub policy: Policy,
    /// Whether children start as ordinary threads (`SCHED_FLAG_RESET_ON_FORK`).
    pub reset_on_fork: bool,
    /// CPUs on which the thread may run; empty means "unchanged".
    pub cpus: CpuSet,
}
