//! By what a system is to run, as whoever asks says it.

use super::run::Rights;
use talea_exec::Wish;

/// How tasks are made to run and to stand still.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// What the file needs and this machine can: flip for threads, freeze for programs.
    #[default]
    Auto,
    /// Real-time priorities that the dispatcher moves, and gates where nobody else wants the CPU.
    Flip,
    /// Linux alone, without a dispatcher: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE. Files that it can't hold are refused.
    Native,
    /// Gates alone, without any right: threads are stopped, and the kernel runs the others as it likes.
    Gates,
}

impl Mechanism {
    pub(crate) fn wish(self) -> Wish {
        if self == Mechanism::Native { Wish::Native } else { Wish::Machine }
    }

    /// What it does without priorities, where it could do with less.
    pub(crate) fn rights(self, otherwise: Rights) -> Rights {
        if self == Mechanism::Gates { Rights::Unused } else { otherwise }
    }
}
