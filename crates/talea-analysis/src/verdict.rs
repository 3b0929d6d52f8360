//! Result of a test: a proof with its bounds, a counterexample, or the reason why it is
//! inconclusive.

use alloc::vec::Vec;
use talea_core::{Span, Work};

/// Result of a test for a set of tasks, in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every job of every task meets its deadline. A test that bounds response times gives one
    /// bound for each task; one that does not gives none.
    Proved {
        /// Longest time from the release of a job to its completion. The arrival may have been
        /// earlier by the jitter.
        bounds: Vec<Span>,
    },
    /// A job can miss its deadline, as the witness shows.
    Refuted {
        /// The counterexample.
        witness: Witness,
    },
    /// Inconclusive: the test is only sufficient, its assumptions do not hold, or it reached a
    /// limit.
    Unknown {
        /// The reason.
        why: Inconclusive,
    },
}

impl Verdict {
    /// Whether every deadline is proved to be met.
    pub fn is_proved(&self) -> bool {
        matches!(self, Verdict::Proved { .. })
    }
}

/// Reason why deadlines can be missed, as a fact that can be checked manually or replayed in the
/// simulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Witness {
    /// The long-run demand exceeds the supply, so that lateness grows without bound.
    Overload {
        /// The demand of the tasks up to and including this one (in the given order) exceeds the
        /// supply; all tasks under EDF.
        task: usize,
    },
    /// Jobs that are released and due within the first `at` need more than the supply in that time,
    /// if tasks are released as `releases` says.
    Demand {
        /// Length of the window that begins with the first release.
        at: Span,
        /// Demand of these jobs.
        demand: Work,
        /// Least supply within the window.
        supply: Work,
        /// Releases that produce the demand.
        releases: Vec<Release>,
    },
    /// Job `job` of task `task` (both from 0) completes `response` after its release and misses its
    /// deadline, if tasks are released as `releases` says.
    Miss {
        /// Index of the task.
        task: usize,
        /// Number of the job, from 0.
        job: u64,
        /// Time from its release to its completion.
        response: Span,
        /// Releases of the tasks.
        releases: Vec<Release>,
    },
}

/// Releases of one task in a counterexample: job k is released at max(`first`, `first` + k·T −
/// `early`).
///
/// With `early` = 0 this is a periodic task with an offset. With `early` = J these are the densest
/// releases that jitter J allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Release {
    /// Release of the first job.
    pub first: Span,
    /// Time between the arrival of the first job and that release.
    pub early: Span,
}

/// Reason why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inconclusive {
    /// The test is only sufficient, and it does not accept this set.
    Insufficient {
        /// The first task that could not be proved.
        task: usize,
    },
    /// The test does not cover this set.
    Assumption {
        /// The numbered assumption of the test that does not hold.
        number: u8,
        /// The first task that breaks it.
        task: usize,
    },
    /// A value exceeded the limit set by the caller, or the range of its type.
    Limit,
}
