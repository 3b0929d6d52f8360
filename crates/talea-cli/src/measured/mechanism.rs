//! By what a system is to run, as whoever asks says it.

use super::run::Rights;
use talea_exec::Wish;

/// How tasks are made to run and to stand still.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// What the file needs and this machine can: flip for threads, freeze for programs.
    Auto,
    /// As auto, and refused without the right to real-time priorities, which the dispatcher moves.
    Flip,
    /// Linux alone, without a dispatcher: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE. Files that it
    /// can't hold are refused.
    Native,
    /// Gates alone, without any right: threads are stopped, and the kernel runs the others as it
    /// likes.
    Gates,
}

impl Mechanism {
    pub(crate) fn wish(self) -> Wish {
        if self == Mechanism::Native { Wish::Native } else { Wish::Machine }
    }

    /// What it needs of priorities, where it says so itself.
    pub(crate) fn rights(self, otherwise: Rights) -> Rights {
        match self {
            Mechanism::Gates => Rights::Unused,
            Mechanism::Flip => Rights::Needed,
            Mechanism::Auto | Mechanism::Native => otherwise,
        }
    }
}
