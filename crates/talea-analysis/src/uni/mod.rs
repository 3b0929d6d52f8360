//! Tests for one processor that always serves: one file per test.
//!
//! The tests receive the tasks as a slice ([`Sporadic`]), for fixed priorities the most urgent
//! first. The fast tests work in a [`Scratch`] that the caller keeps, and allocate only if it has
//! to grow. Beside each of the fast tests a `verdict` function returns the result with its witness.
//!
//! *Range.* Parameters, and the sum of all costs, blockings and jitters, are below
//! [`MAX_PARAMETER_NS`]. No time is above [`HORIZON_NS`]. The sums that the tests form are then
//! below 2^64: the work that arrives within x is at most U·(x + J) + ΣC with U ≤ 1. Values outside
//! the range yield `Unknown`, never a wrapped number.

pub mod amc_rtb;
mod arrival_curve;
pub mod assignment;
pub mod curve_response;
pub mod edf_in_fp;
pub mod edf_response;
mod edf_response_search;
pub mod edf_vd;
pub mod fp_levels;
pub mod fp_response;
pub mod limited_edf;
pub mod limited_fp;
pub mod np_edf;
pub mod np_fp;
mod prepared;
pub mod protocols;
pub mod qpa;
mod sections;
pub mod suspension;

pub use arrival_curve::{ArrivalCurve, Arrivals, CurveError};
pub use prepared::{DEFAULT_STEP_LIMIT, HORIZON_NS, MAX_PARAMETER_NS, Scratch};
pub use sections::Sections;

use crate::Sporadic;
use crate::verdict::{Inconclusive, Verdict, Witness};
use alloc::vec::Vec;
use talea_core::{Span, Work};

/// Bound on the response time of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    /// Time from release to completion.
    pub release: Span,
    /// Time from arrival to completion, to which the deadline applies; exceeds `release` by at most
    /// the jitter.
    pub arrival: Span,
}

impl Bound {
    /// Returns the maximum of `self` and `other` in each field.
    #[must_use]
    pub fn max(self, other: Bound) -> Bound {
        Bound { release: self.release.max(other.release), arrival: self.arrival.max(other.arrival) }
    }

    /// Whether `task` meets its deadline with this bound.
    pub fn meets(&self, task: &Sporadic) -> bool {
        self.arrival <= task.deadline
    }
}

/// Returns the verdict of a test that has bounded all tasks, with the bounds in `out`. If a task
/// misses its deadline, `search` searches for a counterexample. The search is without blocking,
/// because only tasks can show a miss.
fn conclude(
    tasks: &[Sporadic],
    bounded: Result<bool, Inconclusive>,
    out: &[Option<Bound>],
    search: impl FnOnce(&[Sporadic]) -> Result<Option<Witness>, Inconclusive>,
) -> Verdict {
    match bounded {
        Err(why) => return Verdict::Unknown { why },
        Ok(true) => {
            return Verdict::Proved {
                bounds: out.iter().flatten().map(|bound| bound.release).collect(),
            };
        }
        Ok(false) => {}
    }
    let plain: Vec<Sporadic> =
        tasks.iter().map(|task| Sporadic { blocking: Work::ZERO, ..*task }).collect();
    match search(&plain) {
        Err(why) => Verdict::Unknown { why },
        Ok(Some(witness)) => Verdict::Refuted { witness },
        Ok(None) => {
            let late = |(bound, task): (&Option<Bound>, &Sporadic)| {
                bound.is_some_and(|bound| !bound.meets(task))
            };
            let task = out.iter().zip(tasks).position(late).expect("a task is late");
            Verdict::Unknown { why: Inconclusive::Insufficient { task } }
        }
    }
}
