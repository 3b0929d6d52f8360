//! One processor that always serves: a file per test.
//!
//! Tests take the tasks as a slice ([`Sporadic`]), for fixed priorities the most urgent first. The fast ones work in a
//! [`Scratch`] that the caller keeps, and allocate nothing but what that grows by; beside each stands a `verdict`
//! that gives the answer with its witness.
//!
//! *Range.* Parameters, and the sum of all costs, blockings and jitters, are below [`LONGEST`], no
//! instant above [`HORIZON`]. The sums that the tests form are then below 2^64: of work that arrives within x at most
//! U·(x + J) + ΣC with U ≤ 1. What lies outside is `Unknown`, never a wrapped number.

pub mod amc_rtb;
pub mod assignment;
pub mod edf_in_fp;
pub mod edf_response;
pub mod fp_response;
pub mod np_edf;
pub mod np_fp;
pub mod protocols;
pub mod qpa;
mod rows;
pub mod sensitivity;
mod sweep;

pub use rows::{HORIZON, LONGEST, PATIENCE, Scratch};

use crate::Sporadic;
use talea_core::Span;

/// How long a job may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    /// From its release to its end.
    pub release: Span,
    /// From its arrival to its end: what the deadline is about. Larger by up to the jitter.
    pub arrival: Span,
}

impl Bound {
    /// The longer of each.
    #[must_use]
    pub fn max(self, other: Bound) -> Bound {
        Bound { release: self.release.max(other.release), arrival: self.arrival.max(other.arrival) }
    }

    /// Whether `task` meets its deadline.
    pub fn meets(&self, task: &Sporadic) -> bool {
        self.arrival <= task.deadline
    }
}
