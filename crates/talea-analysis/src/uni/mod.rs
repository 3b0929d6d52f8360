//! One processor that always serves: a file per test.
//!
//! Tests take the tasks as a slice ([`Sporadic`]), for fixed priorities the most urgent first. The
//! fast ones work in a [`Scratch`] that the caller keeps, and allocate nothing but what that grows
//! by; beside each stands a `verdict` that gives the answer with its witness.
//!
//! *Range.* Parameters, and the sum of all costs, blockings and jitters, are below [`LONGEST`], no
//! instant above [`HORIZON`]. The sums that the tests form are then below 2^64: of work that
//! arrives within x at most U·(x + J) + ΣC with U ≤ 1. What lies outside is `Unknown`, never a
//! wrapped number.

pub mod amc_rtb;
pub mod assignment;
pub mod edf_in_fp;
pub mod edf_response;
pub mod fp_levels;
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
use crate::verdict::{Verdict, Why, Witness};
use alloc::vec::Vec;
use talea_core::{Span, Work};

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

/// The verdict of a test that has `bounded` all tasks, with what it found in `out`. If somebody
/// misses, `search` looks for a counterexample among the tasks without what blocks them: only tasks
/// can show a miss.
fn conclude(
    tasks: &[Sporadic],
    bounded: Result<bool, Why>,
    out: &[Option<Bound>],
    search: impl FnOnce(&[Sporadic]) -> Result<Option<Witness>, Why>,
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
            let task = out.iter().zip(tasks).position(late).expect("somebody is late");
            Verdict::Unknown { why: Why::Insufficient { task } }
        }
    }
}
