//! Task model of the tests.

use talea_core::{Span, Work};

/// Sporadic task: jobs of at most `cost` arrive at least `period` apart, are released at most
/// `jitter` after their arrival, and are due `deadline` after their *arrival*. A periodic task is
/// one of its behaviours.
///
/// All values are in nanoseconds on one time line. Tests that need `cost` ≥ 1 or `period` ≥ 1 say
/// so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sporadic {
    /// Longest execution time, C.
    pub cost: Work,
    /// Least distance of arrivals, T.
    pub period: Span,
    /// Relative deadline, D, of any relation to the period.
    pub deadline: Span,
    /// Longest time from arrival to release, J.
    pub jitter: Span,
    /// Longest time that less urgent tasks can block it once per busy period, B.
    pub blocking: Work,
}

impl Sporadic {
    /// Task without jitter and blocking.
    pub const fn new(cost: Work, period: Span, deadline: Span) -> Sporadic {
        Sporadic { cost, period, deadline, jitter: Span::ZERO, blocking: Work::ZERO }
    }
}
