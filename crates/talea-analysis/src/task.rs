//! Task model of the tests.

use talea_core::{Span, Work};

/// Sporadic task: jobs of at most `cost` arrive at least `period` apart, are released at most
/// `jitter` after their arrival, and are due `deadline` after their *arrival*. A periodic task is a
/// special case.
///
/// All values are in nanoseconds of one clock. A test that needs `cost` ≥ 1 or `period` ≥ 1 states
/// so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sporadic {
    /// Longest execution time, C.
    pub cost: Work,
    /// Minimum distance between arrivals, T.
    pub period: Span,
    /// Relative deadline, D: below, equal to or above the period.
    pub deadline: Span,
    /// Longest time from arrival to release, J.
    pub jitter: Span,
    /// Longest blocking by less urgent tasks, once per busy period, B.
    pub blocking: Work,
}

impl Sporadic {
    /// Creates a task without jitter and blocking.
    pub const fn new(cost: Work, period: Span, deadline: Span) -> Sporadic {
        Sporadic { cost, period, deadline, jitter: Span::ZERO, blocking: Work::ZERO }
    }
}
