//! Response times under global scheduling, from the work that each other task can do in a window of
//! that length.
//!
//! Assumptions: those of [`super`], 1 to 4. Time is integer: a job that ends within x is held up
//! for at most x − C.
//!
//! M. Bertogna and M. Cirinei, "Response-time analysis for globally scheduled symmetric
//! multiprocessor platforms", RTSS 2007, equations 4, 5, 8 and 9, for any work-conserving policy,
//! fixed priorities and EDF. The least x ≥ C_k with x = C_k + ⌊Σ min(W_i(x), E_i, x − C_k + 1)/m⌋
//! bounds the response time of task k, where W_i(x) = ⌊L/T_i⌋·C_i + min(C_i, L mod T_i), L = x +
//! R_i − C_i, and, under EDF only, E_i = ⌊D_k/T_i⌋·C_i + min(C_i, (D_k mod T_i − (D_i − R_i))⁺).
//! What is known of R_i (at first only R_i ≤ D_i) is improved round by round until nothing changes;
//! under fixed priorities every R_i that is used is known when it is needed.
//!
//! Sufficient. Sustainable in costs and periods: W and E are sums of jobs which shrink with the
//! costs and move apart with the periods, and so by induction over all steps are x − C and every R
//! − C. Under fixed priorities also in deadlines as long as the order stays, as R does not depend
//! on D. Under EDF not proved for deadlines.
//!
//! The sum is piecewise linear in x, so a step goes to where the present pieces' line would meet
//! the condition or to the end of the first of them, whichever is nearer, if that is beyond the sum
//! itself: the plain iteration can crawl by one unit of time a step where m tasks grow together.

use super::bcl::work_by_deadline;
use super::pieces::{Piece, Pieces};
use super::rows::{Row, Scratch};
use crate::Sporadic;
use crate::card::{Card, Kind, Platform};
use crate::verdict::{Verdict, Why};
use talea_core::mutate;

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Anyone, as long as no CPU idles while a job waits.
    WorkConserving,
    /// The earliest deadline; ties in any way.
    Edf,
    /// Whoever comes first in the list.
    FixedPriority,
}

/// The catalogue entry for any work-conserving policy.
pub const ANY: Card = Card {
    name: "bertogna-cirinei-any",
    policy: "any work-conserving",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: Kind::Sufficient,
    paper: "Bertogna and Cirinei, RTSS 2007",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/tests/it/multi/twins.rs::bertogna_cirinei_is_its_definition_on_every_small_set",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_small_set_that_is_accepted_meets_every_deadline_whenever_jobs_come",
    ],
};

/// The catalogue entry for EDF.
pub const EDF: Card = Card {
    name: "bertogna-cirinei-edf",
    policy: "global EDF",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: Kind::Sufficient,
    paper: "Bertogna and Cirinei, RTSS 2007, equations 4, 5, 8 and 9",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/tests/it/multi/twins.rs::bertogna_cirinei_is_its_definition_on_every_small_set",
        "crates/talea-analysis/tests/it/multi/oracle.rs::every_verdict_and_every_bound_of_the_oracle_is_equal",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_small_set_that_is_accepted_meets_every_deadline_whenever_jobs_come",
    ],
};

/// The catalogue entry for fixed priorities.
pub const FP: Card = Card {
    name: "bertogna-cirinei-fp",
    policy: "global FP",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: Kind::Sufficient,
    paper: "Bertogna and Cirinei, RTSS 2007, equations 4 and 8",
    sustainable: "costs, periods, deadlines",
    tests: &[
        "crates/talea-analysis/tests/it/multi/twins.rs::bertogna_cirinei_is_its_definition_on_every_small_set",
        "crates/talea-analysis/tests/it/multi/oracle.rs::the_oracle_s_fixed_priority_bounds_lack_a_cap_and_are_never_better",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_small_set_that_is_accepted_meets_every_deadline_whenever_jobs_come",
    ],
};

/// The test.
pub fn test(policy: Policy, tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Verdict {
    match responses(policy, tasks, cpus, scratch) {
        Ok(None) => scratch.proved(),
        Ok(Some(task)) => Verdict::Unknown { why: Why::Insufficient { task } },
        Err(verdict) => verdict,
    }
}

/// Every task's bound, left in `scratch`; the first task whose bound is not within its deadline.
///
/// # Errors
/// The verdict, where there is one without the test.
pub fn responses(
    policy: Policy,
    tasks: &[Sporadic],
    cpus: u32,
    scratch: &mut Scratch,
) -> Result<Option<usize>, Verdict> {
    let cpus = scratch.read(tasks, cpus)?;
    let rows = &mut scratch.rows[..];
    if policy == Policy::FixedPriority {
        for k in 0..rows.len() {
            let (above, rest) = rows.split_at_mut(k);
            match lag(&rest[0], above, &mut [], cpus) {
                Some(lag) => rest[0].lag = lag,
                // Whoever is below has no bound either, as this task's is not known.
                None => return Ok(Some(k)),
            }
        }
        return Ok(None);
    }
    loop {
        let (mut first, mut news) = (None, false);
        for k in 0..rows.len() {
            if policy == Policy::Edf {
                let deadline = rows[k].deadline;
                for row in &mut *rows {
                    row.cap = work_by_deadline(row, deadline, row.deadline - row.cost - row.lag);
                }
            }
            let (before, rest) = rows.split_at_mut(k);
            let Some((task, after)) = rest.split_first_mut() else { continue };
            match lag(task, before, after, cpus) {
                Some(lag) if lag < task.lag => {
                    mutate!(
                        "multi-bertogna-cirinei",
                        {
                            task.lag = lag;
                        },
                        {
                            task.lag = lag / 2;
                        }
                    );

                    mutate!(
                        "multi-bertogna-cirinei-window",
                        {
                            task.begin = Row::AFRESH;
                        },
                        {}
                    );

                    news = true;
                }
                Some(_) => {}
                None => first = first.or(Some(k)),
            }
        }
        // Bounds are integers that only shrink, each down to its cost: this ends.
        if !news || first.is_none() {
            return Ok(first);
        }
    }
}

/// R − C of `task` among two lists of others; none beyond D − C.
fn lag(task: &Row, before: &mut [Row], after: &mut [Row], cpus: u64) -> Option<u64> {
    let limit = task.deadline - task.cost;
    let mut waits = 0;
    loop {
        let mut pieces = Pieces::NONE;
        for row in before.iter_mut().chain(&mut *after) {
            let cap = row.cap;
            pieces.add(continued(row, task.cost + waits).below(cap).capped(mutate!(
                "multi-bertogna-cirinei-unit",
                waits + 1,
                waits
            )));
        }
        match pieces.next(waits, cpus) {
            None => return Some(waits),
            Some(next) if next > limit => return None,
            Some(next) => waits = next,
        }
    }
}

/// W: the most that a task's jobs do in a window, whoever goes first: the first of them as late as
/// it can be.
#[inline]
pub(super) fn work(row: &Row, window: u64) -> u64 {
    let (whole, rest) = row.period.divide(window + row.lag);
    whole * row.cost + rest.min(row.cost)
}

/// The same, for windows most of which are a little longer than the one before.
#[inline]
fn continued(row: &mut Row, window: u64) -> Piece {
    let period = row.period.get();
    let mut rest = window.wrapping_sub(row.begin);
    if rest >= period {
        let whole;
        (whole, rest) = row.period.divide(window + row.lag);
        row.base = whole * row.cost;
        row.begin = window.wrapping_sub(rest);
    }
    if rest < row.cost {
        Piece { value: row.base + rest, rising: 1, length: row.cost - rest }
    } else {
        Piece { value: row.base + row.cost, rising: 0, length: period - rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::sets::{bounds, implicit, set};

    #[test]
    fn nobody_waits_while_there_is_a_cpu_for_everyone() {
        let tasks = set(&[(3, 4, 9), (2, 5, 7), (6, 6, 6)]);
        for policy in [Policy::WorkConserving, Policy::Edf, Policy::FixedPriority] {
            assert_eq!(
                bounds(&test(policy, &tasks, 3, &mut Scratch::new())),
                [3, 2, 6],
                "{policy:?}"
            );
        }
        assert_eq!(bounds(&test(Policy::Edf, &[], 0, &mut Scratch::new())), []);
    }

    #[test]
    fn where_all_grow_together_it_does_not_crawl() {
        // Two tasks that leave one nanosecond of 1,000 s: the third waits for as long as both run.
        // Step by step that would be 10^12 steps.
        const LONG: u64 = 1_000_000_000_000;
        let tasks = implicit(&[(LONG - 1, LONG), (LONG - 1, LONG), (1, LONG)]);
        let verdict = test(Policy::FixedPriority, &tasks, 2, &mut Scratch::new());
        assert_eq!(bounds(&verdict), [LONG - 1, LONG - 1, LONG]);
    }

    #[test]
    fn dhall_liu_1978_a_heavy_task_below_light_ones_is_not_proved() {
        for cpus in [2u32, 4, 16] {
            let mut tasks = implicit(&[(2, 1_000)].repeat(cpus as usize));
            tasks.extend(implicit(&[(1_000, 1_001)]));
            for policy in [Policy::WorkConserving, Policy::Edf, Policy::FixedPriority] {
                let verdict = test(policy, &tasks, cpus, &mut Scratch::new());
                assert!(!verdict.is_proved(), "{cpus} CPUs, {policy:?}: {verdict:?}");
            }
            // With the heavy one on top all is well: the light ones take turns on the other CPUs.
            tasks.rotate_right(1);
            assert!(test(Policy::FixedPriority, &tasks, cpus, &mut Scratch::new()).is_proved());
        }
    }

    #[test]
    fn the_first_that_is_not_proved_is_named() {
        let tasks = set(&[(1, 2, 2), (2, 2, 2), (1, 1, 3), (1, 4, 4)]);
        let why = Why::Insufficient { task: 2 };
        assert_eq!(
            test(Policy::FixedPriority, &tasks, 2, &mut Scratch::new()),
            Verdict::Unknown { why }
        );
    }

    #[test]
    fn values_that_could_overflow_are_a_limit() {
        let limit = Verdict::Unknown { why: Why::Limit };
        assert_eq!(
            test(Policy::Edf, &implicit(&[(1, u64::MAX >> 2)]), 2, &mut Scratch::new()),
            limit
        );
        // Just within: 2^10 tasks, and as many CPUs, of 2^50 ns.
        let many = implicit(&[((1 << 49) - 1, 1 << 50)].repeat(1 << 10));
        for policy in [Policy::WorkConserving, Policy::Edf, Policy::FixedPriority] {
            assert!(test(policy, &many, 1 << 10, &mut Scratch::new()).is_proved());
            assert_ne!(test(policy, &many, 513, &mut Scratch::new()), limit);
            assert_eq!(test(policy, &many, 1 << 11, &mut Scratch::new()), limit);
        }
    }
}
