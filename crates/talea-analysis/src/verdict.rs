//! What a test answers: a proof with its bounds, a counterexample, or why it can say neither.

use alloc::vec::Vec;
use talea_core::{Span, Work};

/// The answer of a test for a set of tasks, in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every job of every task meets its deadline. A test that bounds response times gives one
    /// bound for each task; one that does not gives none.
    Proved {
        /// Longest time from the release of a job to its end: the arrival may have been earlier by
        /// the jitter.
        bounds: Vec<Span>,
    },
    /// Some job can miss its deadline: here is how.
    Refuted {
        /// The counterexample.
        witness: Witness,
    },
    /// Neither: the test is only sufficient, its assumptions do not hold, or it gave up at a limit.
    Unknown {
        /// Which of these.
        why: Why,
    },
}

impl Verdict {
    /// Whether every deadline is proved to be met.
    pub fn is_proved(&self) -> bool {
        matches!(self, Verdict::Proved { .. })
    }
}

/// Why deadlines can be missed, as a fact that can be checked by hand or replayed in the simulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Witness {
    /// In the long run more is asked for than there is, so that lateness grows without bound.
    Overload {
        /// The tasks up to and including this one (in the given order) ask for too much; all of
        /// them under EDF.
        task: usize,
    },
    /// Jobs that are released and due within the first `at` need more than is supplied by then,
    /// when tasks are released as `releases` says.
    Demand {
        /// Length of the window that begins with the first release.
        at: Span,
        /// What these jobs need.
        demand: Work,
        /// What there is within the window, at worst.
        supply: Work,
        /// How the window is filled.
        releases: Vec<Release>,
    },
    /// Job `job` of task `task` (both from 0) ends `response` after its release and misses its
    /// deadline when tasks are released as `releases` says.
    Miss {
        /// Index of the task.
        task: usize,
        /// Which of its jobs, from 0.
        job: u64,
        /// From its release to its end.
        response: Span,
        /// How the tasks are released.
        releases: Vec<Release>,
    },
}

/// One task's releases in a counterexample: job k is released at max(`first`, `first` + k·T −
/// `early`).
///
/// With `early` = 0 a periodic task with an offset; with `early` = J the densest releases that
/// jitter J allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Release {
    /// Release of the first job.
    pub first: Span,
    /// How long before that release the first job had arrived.
    pub early: Span,
}

/// Why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The test accepts no set that it can't prove, and this one it can't.
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
    /// A value grew beyond the limit that the caller set, or beyond what its type can hold.
    Limit,
}
