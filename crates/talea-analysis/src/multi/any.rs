//! Any of the tests for several CPUs: cheap ones first, and the answer names who gave it.
//!
//! Assumptions: those of [`super`], 1 to 4, and those of the test that is named.
//!
//! No test for global EDF dominates the others (M. Bertogna and S. Baruah, "Tests for global EDF
//! schedulability analysis", Journal of Systems Architecture 57(5), 2011), so that all are asked.
//! What is not asked is dominated: the plain BCL test by the iterative one, that one by response
//! times under EDF (where it accepts with slack s, x = D − s satisfies the response-time condition,
//! whose terms are at most its own), the work-conserving bounds by both policies', and under fixed
//! priorities Bertogna and Cirinei's by Guan's. The iterative test is asked all the same: it is
//! cheaper.
//!
//! Sufficient where it proves, necessary where it refutes. Global EDF by response times accepts
//! nothing that partitioning could not do as well (A. Biondi and Y. Sun, "On the ineffectiveness of
//! 1/m-based interference bounds in the analysis of global EDF and FIFO scheduling", Real-Time
//! Systems 54(3), 2018): where tasks may be bound to CPUs, [`super::partition`] is the better
//! answer.

use super::bertogna_cirinei::{self, Policy};
use super::{Scratch, bar, bcl, ff_dbf, gfb, guan, necessary};
use crate::Sporadic;
use crate::card::{Card, Kind, Platform};
use crate::verdict::{Verdict, Why};
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::mutate;

/// The catalogue entry.
pub const CARD: Card = Card {
    name: "any-global",
    policy: "global EDF, global FP, any work-conserving",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: Kind::Sufficient,
    paper: "Bertogna and Baruah, Journal of Systems Architecture 57(5), 2011, and those of the test that it names",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/src/multi/any.rs::the_answer_names_the_first_test_that_accepts",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_small_set_that_is_accepted_meets_every_deadline_whenever_jobs_come",
    ],
};

/// A proof, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The test that accepted.
    pub by: &'static Card,
    /// A bound on each response time, if the test has any.
    pub bounds: Vec<Span>,
}

/// The first test that proves the set, or why none does.
///
/// # Errors
/// `Refuted` if the set is infeasible beyond doubt; else the last test's `Unknown`.
pub fn of(
    policy: Policy,
    tasks: &[Sporadic],
    cpus: u32,
    points_max: u64,
    scratch: &mut Scratch,
) -> Result<Accepted, Verdict> {
    let mut last = Verdict::Unknown { why: Why::Insufficient { task: 0 } };
    let mut ask = |by: &'static Card, verdict: Verdict| match verdict {
        Verdict::Proved { bounds } => Some(Accepted { by, bounds }),
        other => {
            last = other;
            None
        }
    };
    // Cheaper than to see whether it is infeasible.
    if policy == Policy::Edf
        && let Some(accepted) =
            ask(mutate!("multi-any-order", &gfb::CARD, &bar::CARD), gfb::test(tasks, cpus))
    {
        return Ok(accepted);
    }
    let refuted = necessary::test(tasks, cpus, points_max, scratch);
    if matches!(refuted, Verdict::Refuted { .. } | Verdict::Unknown { why: Why::Assumption { .. } })
    {
        return Err(refuted);
    }
    let response = |scratch: &mut Scratch| bertogna_cirinei::test(policy, tasks, cpus, scratch);
    let found = match policy {
        Policy::WorkConserving => ask(&bertogna_cirinei::ANY, response(scratch)),
        Policy::FixedPriority => ask(&guan::CARD, guan::test(tasks, cpus, scratch)),
        Policy::Edf => mutate!(
            "multi-any",
            ask(&bcl::ITERATIVE, bcl::iterative(tasks, cpus, scratch))
                .or_else(|| ask(&bertogna_cirinei::EDF, response(scratch)))
                .or_else(|| ask(&bar::CARD, bar::test(tasks, cpus, points_max, scratch))),
            ask(&bcl::ITERATIVE, bcl::iterative(tasks, cpus, scratch))
                .or_else(|| ask(&bertogna_cirinei::EDF, response(scratch)))
                .or_else(|| {
                    let _ = bar::CARD;
                    None
                })
        )
        .or_else(|| ask(&ff_dbf::CARD, ff_dbf::test(tasks, cpus, points_max, scratch))),
    };
    found.ok_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::sets::{implicit, set};

    fn by(policy: Policy, tasks: &[Sporadic], cpus: u32) -> Result<&'static str, Verdict> {
        of(policy, tasks, cpus, 1_000, &mut Scratch::new()).map(|accepted| accepted.by.name)
    }

    #[test]
    fn the_answer_names_the_first_test_that_accepts() {
        assert_eq!(by(Policy::Edf, &implicit(&[(1, 4); 4]), 2), Ok("gfb"));
        assert_eq!(
            by(Policy::Edf, &implicit(&[(20, 30), (20, 30), (5, 30)]), 2),
            Ok("bcl-iterative")
        );
        assert_eq!(by(Policy::FixedPriority, &implicit(&[(1, 4); 4]), 2), Ok("guan"));
        assert_eq!(
            by(Policy::WorkConserving, &implicit(&[(1, 9); 3]), 2),
            Ok("bertogna-cirinei-any")
        );
        assert_eq!(by(Policy::Edf, &[], 2), Ok("gfb"));
    }

    #[test]
    fn what_is_infeasible_is_refuted_whatever_the_policy() {
        for policy in [Policy::Edf, Policy::FixedPriority, Policy::WorkConserving] {
            let overload = by(policy, &implicit(&[(2, 3), (2, 3), (2, 3), (1, 9)]), 2);
            assert!(matches!(overload, Err(Verdict::Refuted { .. })), "{overload:?}");
            let early = by(policy, &set(&[(3, 4, 9); 3]), 2);
            assert!(matches!(early, Err(Verdict::Refuted { .. })), "{early:?}");
            let late = by(policy, &set(&[(3, 10, 9); 3]), 2);
            assert_eq!(late, Err(Verdict::Unknown { why: Why::Assumption { number: 4, task: 0 } }));
        }
    }
}
