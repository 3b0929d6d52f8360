//! Comparison of bound, simulation and real threads.
//!
//! Model: [`job_times`] records the start and end of each job, of simulated and real runs alike.
//! Scheduling has costs on real threads. [`model`] therefore simulates the same jobs several times,
//! with slightly larger costs and overheads, and keeps the earliest and latest time of each start
//! and end. [`stall_filter`] determines the jobs that a CPU stall has delayed, directly or by the
//! backlog after it. [`check`] compares the remaining jobs with the simulations: the partial order
//! (two instants are ordered if they are in every simulation), the range of each end, and the
//! bounds. [`chains`] checks the latencies of chains.

pub mod chains;
pub mod check;
pub mod job_times;
pub mod model;
pub mod stall_filter;

use talea_core::Span;

/// Tolerated difference between a real run and a simulation or bound, for the cost of interrupts,
/// timers and short stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// Absolute part of the tolerance.
    pub min: Span,
    /// Relative part of the tolerance, in thousandths of the response.
    pub permille: u64,
}

impl Tolerance {
    /// Returns the tolerance of a job with this response.
    pub fn of(self, response: Span) -> Span {
        self.min + Span::from_ns(response.as_ns() / 1_000 * self.permille)
    }
}
