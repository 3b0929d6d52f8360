//! Response times under global scheduling: the window of a job holds the work of each other task.
//!
//! Assumptions: those of [`super`], 1 to 4. Time is integer: a job that completes within x is
//! delayed for at most x − C.
//!
//! M. Bertogna and M. Cirinei, "Response-time analysis for globally scheduled symmetric
//! multiprocessor platforms", RTSS 2007, equations 4, 5, 8 and 9, for any work-conserving policy,
//! fixed priorities and EDF. The response time of task k is at most the least x ≥ C_k with
//!
//! > x = C_k + ⌊Σ min(W_i(x), E_i, x − C_k + 1)/m⌋,
//! > W_i(x) = ⌊L/T_i⌋·C_i + min(C_i, L mod T_i), L = x + R_i − C_i,
//! > E_i = ⌊D_k/T_i⌋·C_i + min(C_i, (D_k mod T_i − (D_i − R_i))⁺), under EDF only.
//!
//! The bound R_i (initially R_i ≤ D_i) is improved round by round until nothing changes. Under
//! fixed priorities every R_i is known before the equation of a less urgent task uses it.
//!
//! Sufficient. Sustainable in costs and periods: W and E are sums of jobs that shrink with the
//! costs and move apart with the periods. By induction over all steps, x − C and every R − C shrink
//! too. Under fixed priorities the test is sustainable in deadlines as long as the order stays,
//! because R does not depend on D. Under EDF sustainability in deadlines is not proved.
//!
//! The sum is piecewise linear in x. The plain iteration may advance by one unit of time per step
//! where m tasks grow together. So a step goes to the intersection of the current line with the
//! condition, or to the end of the first piece, whichever is nearer. If the sum itself is beyond
//! that point, the step goes to the sum.

use super::bcl::work_by_deadline;
use super::piecewise_linear::{LinearPiece, PiecewiseSum};
use super::prepared::{PreparedTask, Scratch};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict};
use talea_core::mutate;

/// Global scheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalPolicy {
    /// Any policy that leaves no CPU idle while a job waits.
    WorkConserving,
    /// Earliest deadline first; ties in any order.
    Edf,
    /// Fixed priorities, in list order.
    FixedPriority,
}

/// Entry for any work-conserving policy in the catalogue.
pub const ANY: TestInfo = TestInfo {
    name: "bertogna-cirinei-any",
    policy: "any work-conserving",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Bertogna and Cirinei, RTSS 2007",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/tests/it/multi/reference_models.rs::bertogna_cirinei_is_its_definition_on_every_small_set",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_accepted_small_set_meets_every_deadline_under_all_arrivals",
    ],
};

/// Entry for EDF in the catalogue.
pub const EDF: TestInfo = TestInfo {
    name: "bertogna-cirinei-edf",
    policy: "global EDF",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Bertogna and Cirinei, RTSS 2007, equations 4, 5, 8 and 9",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/tests/it/multi/reference_models.rs::bertogna_cirinei_is_its_definition_on_every_small_set",
        "crates/talea-analysis/tests/it/multi/oracle.rs::every_verdict_and_every_bound_of_the_oracle_is_equal",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_accepted_small_set_meets_every_deadline_under_all_arrivals",
    ],
};

/// Entry for fixed priorities in the catalogue.
pub const FP: TestInfo = TestInfo {
    name: "bertogna-cirinei-fp",
    policy: "global FP",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Bertogna and Cirinei, RTSS 2007, equations 4 and 8",
    sustainable: "costs, periods, deadlines",
    tests: &[
        "crates/talea-analysis/tests/it/multi/reference_models.rs::bertogna_cirinei_is_its_definition_on_every_small_set",
        "crates/talea-analysis/tests/it/multi/oracle.rs::the_oracle_s_fixed_priority_bounds_lack_a_cap_and_are_never_better",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_accepted_small_set_meets_every_deadline_under_all_arrivals",
    ],
};

/// Runs the test.
pub fn test(policy: GlobalPolicy, tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Verdict {
    match responses(policy, tasks, cpus, scratch) {
        Ok(None) => scratch.proved(),
        Ok(Some(task)) => Verdict::Unknown { why: Inconclusive::Insufficient { task } },
        Err(verdict) => verdict,
    }
}

/// Computes the bound of every task into `scratch`. Returns the first task with a bound beyond its
/// deadline.
///
/// # Errors
/// The verdict, if it is known without the test.
pub fn responses(
    policy: GlobalPolicy,
    tasks: &[Sporadic],
    cpus: u32,
    scratch: &mut Scratch,
) -> Result<Option<usize>, Verdict> {
    let cpus = scratch.read(tasks, cpus)?;
    let rows = &mut scratch.rows[..];
    if policy == GlobalPolicy::FixedPriority {
        for k in 0..rows.len() {
            let (above, rest) = rows.split_at_mut(k);
            match lag(&rest[0], above, &mut [], cpus) {
                Some(lag) => rest[0].lag = lag,
                // Less urgent tasks have no bound either, because this task has none.
                None => return Ok(Some(k)),
            }
        }
        return Ok(None);
    }
    loop {
        let (mut first, mut news) = (None, false);
        for k in 0..rows.len() {
            if policy == GlobalPolicy::Edf {
                let deadline = rows[k].deadline;
                for row in &mut *rows {
                    row.cap = work_by_deadline(row, deadline, row.deadline - row.cost - row.lag);
                }
            }
            let (before, rest) = rows.split_at_mut(k);
            let Some((task, after)) = rest.split_first_mut() else { continue };
            match lag(task, before, after, cpus) {
                Some(lag) if lag < task.lag => {
                    mutate!("multi-bertogna-cirinei", task.lag = lag, task.lag = lag / 2);

                    mutate!("multi-bertogna-cirinei-window", task.begin = PreparedTask::NO_WINDOW);

                    news = true;
                }
                Some(_) => {}
                None => first = first.or(Some(k)),
            }
        }
        // Bounds are integers that only shrink, each down to its cost: the loop ends.
        if !news || first.is_none() {
            return Ok(first);
        }
    }
}

/// Returns R − C of `task`, with the other tasks in `before` and `after`; `None` beyond D − C.
fn lag(
    task: &PreparedTask,
    before: &mut [PreparedTask],
    after: &mut [PreparedTask],
    cpus: u64,
) -> Option<u64> {
    let limit = task.deadline - task.cost;
    let mut waits = 0;
    loop {
        let mut pieces = PiecewiseSum::NONE;
        for row in before.iter_mut().chain(&mut *after) {
            let cap = row.cap;
            pieces.add(work_from_last_window(row, task.cost + waits).below(cap).capped(mutate!(
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

/// Returns W: the largest work of a task's jobs in a window under any policy. The first of the jobs
/// is as late as possible.
#[inline]
pub(super) fn work(row: &PreparedTask, window: u64) -> u64 {
    let (whole, rest) = row.period.divide(window + row.lag);
    whole * row.cost + rest.min(row.cost)
}

/// Returns [`work`] with its linear piece, for a sequence of windows. Most of them are slightly
/// longer than the previous window.
#[inline]
fn work_from_last_window(row: &mut PreparedTask, window: u64) -> LinearPiece {
    let period = row.period.get();
    let mut rest = window.wrapping_sub(row.begin);
    if rest >= period {
        let whole;
        (whole, rest) = row.period.divide(window + row.lag);
        row.base = whole * row.cost;
        row.begin = window.wrapping_sub(rest);
    }
    if rest < row.cost {
        LinearPiece { value: row.base + rest, rising: 1, length: row.cost - rest }
    } else {
        LinearPiece { value: row.base + row.cost, rising: 0, length: period - rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::sets::{bounds, implicit, set};

    #[test]
    fn no_task_waits_if_there_is_a_cpu_for_each() {
        let tasks = set(&[(3, 4, 9), (2, 5, 7), (6, 6, 6)]);
        for policy in [GlobalPolicy::WorkConserving, GlobalPolicy::Edf, GlobalPolicy::FixedPriority]
        {
            assert_eq!(
                bounds(&test(policy, &tasks, 3, &mut Scratch::new())),
                [3, 2, 6],
                "{policy:?}"
            );
        }
        assert_eq!(bounds(&test(GlobalPolicy::Edf, &[], 0, &mut Scratch::new())), []);
    }

    #[test]
    fn the_iteration_is_fast_if_all_terms_grow_together() {
        // Two tasks that leave one nanosecond of 1,000 s: the third waits for as long as both run.
        // Step by step that would be 10^12 steps.
        const LONG: u64 = 1_000_000_000_000;
        let tasks = implicit(&[(LONG - 1, LONG), (LONG - 1, LONG), (1, LONG)]);
        let verdict = test(GlobalPolicy::FixedPriority, &tasks, 2, &mut Scratch::new());
        assert_eq!(bounds(&verdict), [LONG - 1, LONG - 1, LONG]);
    }

    #[test]
    fn dhall_liu_1978_a_heavy_task_below_light_ones_is_not_proved() {
        for cpus in [2u32, 4, 16] {
            let mut tasks = implicit(&[(2, 1_000)].repeat(cpus as usize));
            tasks.extend(implicit(&[(1_000, 1_001)]));
            for policy in
                [GlobalPolicy::WorkConserving, GlobalPolicy::Edf, GlobalPolicy::FixedPriority]
            {
                let verdict = test(policy, &tasks, cpus, &mut Scratch::new());
                assert!(!verdict.is_proved(), "{cpus} CPUs, {policy:?}: {verdict:?}");
            }
            // With the heavy task on top the set is proved: the light ones share the other CPUs.
            tasks.rotate_right(1);
            assert!(
                test(GlobalPolicy::FixedPriority, &tasks, cpus, &mut Scratch::new()).is_proved()
            );
        }
    }

    #[test]
    fn the_first_unproved_task_is_named() {
        let tasks = set(&[(1, 2, 2), (2, 2, 2), (1, 1, 3), (1, 4, 4)]);
        let why = Inconclusive::Insufficient { task: 2 };
        assert_eq!(
            test(GlobalPolicy::FixedPriority, &tasks, 2, &mut Scratch::new()),
            Verdict::Unknown { why }
        );
    }

    #[test]
    fn values_that_could_overflow_are_a_limit() {
        let limit = Verdict::Unknown { why: Inconclusive::Limit };
        assert_eq!(
            test(GlobalPolicy::Edf, &implicit(&[(1, u64::MAX >> 2)]), 2, &mut Scratch::new()),
            limit
        );
        // Just within: 2^10 tasks, and as many CPUs, of 2^50 ns.
        let many = implicit(&[((1 << 49) - 1, 1 << 50)].repeat(1 << 10));
        for policy in [GlobalPolicy::WorkConserving, GlobalPolicy::Edf, GlobalPolicy::FixedPriority]
        {
            assert!(test(policy, &many, 1 << 10, &mut Scratch::new()).is_proved());
            assert_ne!(test(policy, &many, 513, &mut Scratch::new()), limit);
            assert_eq!(test(policy, &many, 1 << 11, &mut Scratch::new()), limit);
        }
    }
}
