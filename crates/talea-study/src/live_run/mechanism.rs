//! The `--mechanism` option.

use super::run::PriorityUse;
use talea_exec::RequestedMechanism;

/// Mechanism that starts and stops tasks.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// The mechanism that the file needs and this computer supports: priority for threads, freeze
    /// for programs.
    Auto,
    /// Like auto, but refused without the right to real-time priorities, which the dispatcher
    /// changes.
    Priority,
    /// Linux policies without a dispatcher: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE. Other files are
    /// refused.
    Linux,
    /// Stop signals, without any right: stopped threads wait, and the kernel's fair class schedules
    /// the others.
    Signal,
}

impl Mechanism {
    /// Returns the mechanism in the terms of the executor.
    pub fn requested(self) -> RequestedMechanism {
        if self == Mechanism::Linux {
            RequestedMechanism::Linux
        } else {
            RequestedMechanism::Engine
        }
    }

    /// Returns whether the run needs real-time priorities, if the mechanism determines it.
    pub fn rights(self, otherwise: PriorityUse) -> PriorityUse {
        match self {
            Mechanism::Signal => PriorityUse::Unused,
            Mechanism::Priority => PriorityUse::Required,
            Mechanism::Auto | Mechanism::Linux => otherwise,
        }
    }
}
