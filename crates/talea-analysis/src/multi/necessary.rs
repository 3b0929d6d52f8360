//! Necessary test: demand beyond the capacity is infeasible under any scheduler.
//!
//! Assumptions: those of [`super`], 1 to 4; any policy. The test refutes a set with C > D, with Σ
//! C/T > m, or with an overloaded window. A window [0, t) is overloaded if jobs that arrive and are
//! due within it need more than m·t. This is the load bound of S. Baruah and N. Fisher, "The
//! partitioned multiprocessor scheduling of sporadic task systems", RTSS 2005, lemma 1. For m CPUs:
//! T. Baker and M. Cirinei, "A necessary and sometimes sufficient condition for the feasibility of
//! sets of sporadic hard-deadline tasks", RTSS 2006. Necessary: a set that the test does not refute
//! may be infeasible nevertheless.
//!
//! If U < m, h(t) ≤ Σ (t + T − D)·C/T. So no window beyond Σ (T − D)·C/T / (m − U) has to be
//! evaluated. For implicit deadlines there is no window to evaluate.

use super::load::{Deadlines, compare_utilisation, early, over_idle, window_max};
use super::prepared::Scratch;
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Release, Verdict, Witness};
use alloc::vec;
use core::cmp::Ordering;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "load",
    policy: "any",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Necessary,
    paper: "Baker and Cirinei, RTSS 2006, section 3",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/src/multi/necessary.rs::every_refutation_is_an_overfull_window",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_accepted_small_set_meets_every_deadline_under_all_arrivals",
    ],
};

/// Returns `Refuted` or `Unknown`. The verdict is `Unknown` for `Limit` if there are more than
/// `points_max` deadlines.
pub fn test(tasks: &[Sporadic], cpus: u32, points_max: u64, scratch: &mut Scratch) -> Verdict {
    match scratch.read(tasks, cpus) {
        Ok(cpus) => within(tasks, cpus, points_max, scratch),
        Err(verdict) => verdict,
    }
}

fn within(tasks: &[Sporadic], cpus: u64, points_max: u64, scratch: &mut Scratch) -> Verdict {
    let Scratch { rows, next, due, .. } = scratch;
    let unknown = |why| Verdict::Unknown { why };
    if compare_utilisation(rows, tasks, cpus) == Ordering::Greater {
        return Verdict::Refuted { witness: Witness::Overload { task: tasks.len() - 1 } };
    }
    let early = early(rows);
    if early == 0 {
        // h(t) ≤ U·t.
        return unknown(Inconclusive::Insufficient { task: 0 });
    }
    let horizon = over_idle(early, rows, cpus);
    let until = horizon.unwrap_or(window_max(rows, cpus));
    let mut deadlines = Deadlines::new(rows, next, due);
    for _ in 0..points_max {
        let Some(at) = deadlines.advance(until) else {
            return unknown(if horizon.is_some() {
                Inconclusive::Insufficient { task: 0 }
            } else {
                Inconclusive::Limit
            });
        };
        let supply = cpus * at;
        if mutate!("multi-necessary", deadlines.demand > supply, deadlines.demand >= supply) {
            return Verdict::Refuted {
                witness: Witness::Demand {
                    at: Span::from_ns(at),
                    demand: Work::from_ns(deadlines.demand),
                    supply: Work::from_ns(supply),
                    releases: vec![Release::default(); tasks.len()],
                },
            };
        }
    }
    unknown(Inconclusive::Limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::sets::{implicit, set};

    #[test]
    fn every_refutation_is_an_overfull_window() {
        // Three jobs of 2 within 3 on two CPUs: 6 fit; of 3 within 4, three need 9.
        let mut scratch = Scratch::new();
        assert!(matches!(
            test(&set(&[(2, 3, 9); 3]), 2, 100, &mut scratch),
            Verdict::Unknown { .. }
        ));
        let Verdict::Refuted { witness: Witness::Demand { at, demand, supply, .. } } =
            test(&set(&[(3, 4, 9); 3]), 2, 100, &mut scratch)
        else {
            panic!("9 in 2·4 are not refuted");
        };
        assert_eq!((at.as_ns(), demand.as_ns(), supply.as_ns()), (4, 9, 8));
    }

    #[test]
    fn a_full_platform_is_not_refuted_and_a_part_more_is() {
        let mut scratch = Scratch::new();
        let full = implicit(&[(1, 3), (2, 3), (1, 1)]);
        assert!(matches!(test(&full, 2, 100, &mut scratch), Verdict::Unknown { .. }));
        let mut more = full;
        more.extend(implicit(&[(1, 1 << 58)]));
        let overload = Verdict::Refuted { witness: Witness::Overload { task: 3 } };
        assert_eq!(test(&more, 2, 100, &mut scratch), overload);
    }

    #[test]
    fn the_point_limit_is_reported() {
        // Full, and one of them early: windows of any length would have to be evaluated.
        let mut scratch = Scratch::new();
        let tasks = set(&[(1, 2, 3), (2, 3, 3), (1, 1, 1)]);
        assert_eq!(
            test(&tasks, 2, 100, &mut scratch),
            Verdict::Unknown { why: Inconclusive::Limit }
        );
    }
}
