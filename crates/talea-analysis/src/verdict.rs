//! Result of a test: a proof with its bounds, a counterexample, or the reason why it is
//! inconclusive.

use alloc::vec::Vec;
use talea_core::{Span, Work};

/// Result of a test for a set of tasks, in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every job of every task meets its deadline. A test that bounds response times returns one
    /// bound for each task. Other tests return no bounds.
    Proved {
        /// Longest time from the release of a job to its completion. The arrival may be earlier by
        /// the jitter.
        bounds: Vec<Span>,
    },
    /// A job can miss its deadline. The witness shows how.
    Refuted {
        /// Counterexample.
        witness: Witness,
    },
    /// Inconclusive: the test is only sufficient, its assumptions do not hold, or it reached a
    /// limit.
    Unknown {
        /// Reason why the test is inconclusive.
        why: Inconclusive,
    },
}

impl Verdict {
    /// Whether the test proves that every deadline is met.
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
        /// The demand of the tasks up to and including this task (in the given order) exceeds the
        /// supply. Under EDF it is the last task.
        task: usize,
    },
    /// Jobs that are released and due within the first `at` need more than the supply in that time.
    /// The tasks are released as in `releases`.
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
    /// deadline. The tasks are released as in `releases`.
    Miss {
        /// Index of the task.
        task: usize,
        /// Number of the job, from 0.
        job: u64,
        /// Time from the release of the job to its completion.
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
    /// Time between the arrival of the first job and its release.
    pub early: Span,
}

/// Reason why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inconclusive {
    /// The test is only sufficient, and it does not accept this set.
    Insufficient {
        /// Index of the first task that the test does not prove. A test of the whole set returns
        /// one representative task, such as the densest.
        task: usize,
    },
    /// The test does not cover this set.
    Assumption {
        /// Number of the assumption that does not hold.
        number: u8,
        /// Index of the first task that violates the assumption.
        task: usize,
    },
    /// A value exceeded the limit that the caller set, or the range of its type.
    Limit,
}
