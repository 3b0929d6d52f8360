//! Do bound, simulation and real threads agree?
//!
//! Model: [`lives`] keeps when each job began and ended, of simulated and of real runs alike. A
//! real machine adds to a simulation what scheduling costs, within reason: [`model`] simulates the
//! same jobs several times, undisturbed and with costs and overheads that are a little larger, and
//! keeps for each begin and end the earliest and the latest. [`disturbed`] says which jobs a hole
//! has touched, directly or by the backlog behind it. [`judge`] holds the rest against the
//! simulations: a partial order (two instants that are not certainly apart are unordered), the
//! range of each end, and the bounds.

pub(crate) mod disturbed;
pub(crate) mod judge;
pub(crate) mod lives;
pub(crate) mod model;

use talea_core::Span;

/// By how much a real run may differ from a simulation and a bound: what an interrupt, a timer and
/// short holes may cost a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tolerance {
    /// In any case.
    pub(crate) least: Span,
    /// And of its response, in thousandths.
    pub(crate) share: u64,
}

impl Tolerance {
    /// What a job with this response may be off.
    pub(crate) fn of(self, response: Span) -> Span {
        self.least + Span::from_ns(response.as_ns() / 1_000 * self.share)
    }
}
