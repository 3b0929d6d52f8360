//! Portfolio of the tests for several CPUs. The cheapest test runs first, and the result names the
//! test that accepted.
//!
//! Assumptions: those of [`super`], 1 to 4, and those of the named test.
//!
//! No test for global EDF dominates the others (M. Bertogna and S. Baruah, "Tests for global EDF
//! schedulability analysis", Journal of Systems Architecture 57(5), 2011), so all are tried.
//! Dominated tests are left out. The iterative BCL test dominates the plain test. Response times
//! under EDF dominate the iterative test. If the iterative test accepts with slack s, x = D − s
//! satisfies the response-time condition, whose terms are at most those of the iterative test. The
//! bounds of either policy dominate the work-conserving bounds. Under fixed priorities Guan's
//! bounds dominate Bertogna and Cirinei's. The portfolio runs the iterative test nevertheless,
//! because it is cheaper.
//!
//! Sufficient where it proves, necessary where it refutes. Partitioned scheduling could schedule
//! every set that global EDF by response times accepts (A. Biondi and Y. Sun, "On the
//! ineffectiveness of 1/m-based interference bounds in the analysis of global EDF and FIFO
//! scheduling", Real-Time Systems 54(3), 2018). If tasks may be pinned to CPUs,
//! [`super::partition`] is the better choice.

use super::bertogna_cirinei::{self, GlobalPolicy};
use super::{Scratch, baruah, bcl, ff_dbf, gfb, guan, necessary};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict};
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "any-global",
    policy: "global EDF, global FP, any work-conserving",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Bertogna and Baruah, Journal of Systems Architecture 57(5), 2011, and those of the test that it names",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/src/multi/portfolio.rs::the_answer_names_the_first_test_that_accepts",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_accepted_small_set_meets_every_deadline_under_all_arrivals",
    ],
};

/// Proof, with the test that produced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Entry of the test that accepted.
    pub by: &'static TestInfo,
    /// Bound on the response time of each task; empty if the test computes none.
    pub bounds: Vec<Span>,
}

/// Returns the proof of the first test that accepts the set, or the reason why no test does.
///
/// # Errors
/// `Refuted` if the set is infeasible; otherwise the `Unknown` of the last test.
pub fn first_accepting(
    policy: GlobalPolicy,
    tasks: &[Sporadic],
    cpus: u32,
    points_max: u64,
    scratch: &mut Scratch,
) -> Result<Accepted, Verdict> {
    let mut last = Verdict::Unknown { why: Inconclusive::Insufficient { task: 0 } };
    let mut ask = |by: &'static TestInfo, verdict: Verdict| match verdict {
        Verdict::Proved { bounds } => Some(Accepted { by, bounds }),
        other => {
            last = other;
            None
        }
    };
    // Cheaper than the necessary test.
    if policy == GlobalPolicy::Edf
        && let Some(accepted) =
            ask(mutate!("multi-any-order", &gfb::INFO, &baruah::INFO), gfb::test(tasks, cpus))
    {
        return Ok(accepted);
    }
    let refuted = necessary::test(tasks, cpus, points_max, scratch);
    if matches!(
        refuted,
        Verdict::Refuted { .. } | Verdict::Unknown { why: Inconclusive::Assumption { .. } }
    ) {
        return Err(refuted);
    }
    let response = |scratch: &mut Scratch| bertogna_cirinei::test(policy, tasks, cpus, scratch);
    let found = match policy {
        GlobalPolicy::WorkConserving => ask(&bertogna_cirinei::ANY, response(scratch)),
        GlobalPolicy::FixedPriority => ask(&guan::INFO, guan::test(tasks, cpus, scratch)),
        GlobalPolicy::Edf => mutate!(
            "multi-any",
            ask(&bcl::ITERATIVE, bcl::iterative(tasks, cpus, scratch))
                .or_else(|| ask(&bertogna_cirinei::EDF, response(scratch)))
                .or_else(|| ask(&baruah::INFO, baruah::test(tasks, cpus, points_max, scratch))),
            ask(&bcl::ITERATIVE, bcl::iterative(tasks, cpus, scratch))
                .or_else(|| ask(&bertogna_cirinei::EDF, response(scratch)))
                .or_else(|| {
                    let _ = baruah::INFO;
                    None
                })
        )
        .or_else(|| ask(&ff_dbf::INFO, ff_dbf::test(tasks, cpus, points_max, scratch))),
    };
    found.ok_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::sets::{implicit, set};

    fn by(policy: GlobalPolicy, tasks: &[Sporadic], cpus: u32) -> Result<&'static str, Verdict> {
        first_accepting(policy, tasks, cpus, 1_000, &mut Scratch::new())
            .map(|accepted| accepted.by.name)
    }

    #[test]
    fn the_answer_names_the_first_test_that_accepts() {
        assert_eq!(by(GlobalPolicy::Edf, &implicit(&[(1, 4); 4]), 2), Ok("gfb"));
        assert_eq!(
            by(GlobalPolicy::Edf, &implicit(&[(20, 30), (20, 30), (5, 30)]), 2),
            Ok("bcl-iterative")
        );
        assert_eq!(by(GlobalPolicy::FixedPriority, &implicit(&[(1, 4); 4]), 2), Ok("guan"));
        assert_eq!(
            by(GlobalPolicy::WorkConserving, &implicit(&[(1, 9); 3]), 2),
            Ok("bertogna-cirinei-any")
        );
        assert_eq!(by(GlobalPolicy::Edf, &[], 2), Ok("gfb"));
    }

    #[test]
    fn infeasible_sets_are_refuted_under_every_policy() {
        for policy in [GlobalPolicy::Edf, GlobalPolicy::FixedPriority, GlobalPolicy::WorkConserving]
        {
            let overload = by(policy, &implicit(&[(2, 3), (2, 3), (2, 3), (1, 9)]), 2);
            assert!(matches!(overload, Err(Verdict::Refuted { .. })), "{overload:?}");
            let early = by(policy, &set(&[(3, 4, 9); 3]), 2);
            assert!(matches!(early, Err(Verdict::Refuted { .. })), "{early:?}");
            let late = by(policy, &set(&[(3, 10, 9); 3]), 2);
            assert_eq!(
                late,
                Err(Verdict::Unknown { why: Inconclusive::Assumption { number: 4, task: 0 } })
            );
        }
    }
}
