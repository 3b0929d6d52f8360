//! Global EDF: interference of other tasks in the window of one job.
//!
//! Assumptions: those of [`super`], 1 to 4.
//!
//! *Plain*: M. Bertogna, M. Cirinei and G. Lipari, "Improved schedulability analysis of EDF on
//! multiprocessor platforms", ECRTS 2005. Let s = D_k − C_k, and let W_i be the largest work of
//! task i with deadlines in the window of a job of task k. The job meets its deadline if Σ min(W_i,
//! s) < m·s, or if the two are equal and some 0 < W_i ≤ s.
//!
//! *Iterative*: M. Bertogna, M. Cirinei and G. Lipari, "Schedulability analysis of global
//! scheduling algorithms on multiprocessor platforms", IEEE TPDS 20(4), 2009. A proved slack of a
//! task shortens the work of its first job in the windows of other tasks, which may prove more
//! slack. The test iterates until nothing changes.
//!
//! Both tests are sufficient. Time is integer in the iterative test: other jobs interfere for at
//! most s with a job that completes by its deadline. So Σ min(W_i, s + 1) < m·(s + 1) suffices, and
//! the slack is s − ⌊Σ/m⌋. The condition of the plain test implies this condition, so the iterative
//! test accepts every set that the plain test accepts. Proof: let a of the other tasks have W_i >
//! s. Then Σ min(W_i, s + 1) = Σ min(W_i, s) + a, and both forms of the condition leave a < m.
//!
//! Both tests are sustainable in costs. W_i shrinks with C_i, and a condition that holds for s
//! holds for s + 1, because fewer than m terms grow with s. Slacks only grow. Both tests are
//! sustainable in periods, because W_i is the sum of its jobs, which move apart. Sustainability in
//! deadlines is not proved: a later D_k lets more jobs of the other tasks into the window.

use super::prepared::{PreparedTask, Scratch};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict};
use talea_core::mutate;

/// Entry of the plain test in the catalogue.
pub const PLAIN: TestInfo = TestInfo {
    name: "bcl",
    policy: "global EDF",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Bertogna, Cirinei and Lipari, ECRTS 2005",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/tests/it/multi/reference_models.rs::bcl_is_its_definition_on_every_small_set",
        "crates/talea-analysis/tests/it/multi/oracle.rs::every_verdict_and_every_bound_of_the_oracle_is_equal",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_accepted_small_set_meets_every_deadline_under_all_arrivals",
    ],
};

/// Entry of the iterative test in the catalogue.
pub const ITERATIVE: TestInfo = TestInfo {
    name: "bcl-iterative",
    policy: "global EDF",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Bertogna, Cirinei and Lipari, IEEE TPDS 20(4), 2009",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/tests/it/multi/reference_models.rs::bcl_is_its_definition_on_every_small_set",
        "crates/talea-analysis/tests/it/multi/oracle.rs::every_verdict_and_every_bound_of_the_oracle_is_equal",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_accepted_small_set_meets_every_deadline_under_all_arrivals",
    ],
};

/// Runs the plain test. The resulting bounds are deadlines minus slacks.
pub fn plain(tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Verdict {
    let first = plain_slacks(tasks, cpus, scratch);
    answer(first, scratch)
}

/// Runs the iterative test. The resulting bounds are deadlines minus slacks.
pub fn iterative(tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Verdict {
    let first = iterative_slacks(tasks, cpus, scratch);
    answer(first, scratch)
}

fn answer(first: Result<Option<usize>, Verdict>, scratch: &Scratch) -> Verdict {
    match first {
        Ok(None) => scratch.proved(),
        Ok(Some(task)) => Verdict::Unknown { why: Inconclusive::Insufficient { task } },
        Err(verdict) => verdict,
    }
}

/// Computes the slack of every task by the plain test into `scratch`. Returns the first task that
/// the test cannot prove. The slack of that task counts as zero.
///
/// # Errors
/// The verdict, if it is known without the test.
pub fn plain_slacks(
    tasks: &[Sporadic],
    cpus: u32,
    scratch: &mut Scratch,
) -> Result<Option<usize>, Verdict> {
    let cpus = scratch.read(tasks, cpus)?;
    let mut first = None;
    for k in 0..scratch.rows.len() {
        let PreparedTask { cost, deadline, .. } = scratch.rows[k];
        let slack = deadline - cost;
        // Σ min(W, s), and how many have W > s. At least one job of each is in the window in part,
        // so that W > 0.
        let (mut sum, mut above) = (0u64, 0u64);
        for row in &scratch.rows {
            let work = work_by_deadline(row, deadline, 0);
            // At most n·(D + 1) and n.
            sum = sum.wrapping_add(work.min(slack));
            above = above.wrapping_add(u64::from(work > slack));
        }
        // Task k itself is in there with its one job.
        sum -= cost.min(slack);
        above -= u64::from(cost > slack);
        let between = above + 1 < scratch.rows.len() as u64;
        if sum < cpus * slack
            || mutate!("multi-bcl", sum == cpus * slack && between, sum == cpus * slack)
        {
            scratch.rows[k].lag = (sum + above) / cpus;
        } else {
            first = first.or(Some(k));
        }
    }
    Ok(first)
}

/// Computes the slack of every task by the iterative test into `scratch`. Returns the first task
/// that the test cannot prove.
///
/// # Errors
/// The verdict, if it is known without the test.
pub fn iterative_slacks(
    tasks: &[Sporadic],
    cpus: u32,
    scratch: &mut Scratch,
) -> Result<Option<usize>, Verdict> {
    let cpus = scratch.read(tasks, cpus)?;
    loop {
        let (mut first, mut news) = (None, false);
        for k in 0..scratch.rows.len() {
            let PreparedTask { cost, deadline, lag, .. } = scratch.rows[k];
            let roof = deadline - cost + 1;
            let work = |row: &PreparedTask| {
                work_by_deadline(row, deadline, row.deadline - row.cost - row.lag).min(roof)
            };
            let all = scratch.rows.iter().fold(0u64, |sum, row| sum.wrapping_add(work(row)));
            let sum = all - work(&scratch.rows[k]);
            let found = sum / cpus;
            if found >= roof {
                first = first.or(Some(k));
            } else if found < lag {
                scratch.rows[k].lag = found;
                news = true;
            }
        }
        // Slacks are integers that only grow, each up to its deadline: the loop ends.
        if !news || first.is_none() {
            return Ok(first);
        }
    }
}

/// Returns the largest work of a task's jobs that are due in a window of length `window`, if each
/// job completes at least `slack` before its deadline: ⌊t/T⌋·C + min(C, (t mod T − S)⁺).
#[inline]
pub(super) fn work_by_deadline(row: &PreparedTask, window: u64, slack: u64) -> u64 {
    let (whole, rest) = row.period.divide(window);
    // At most the window and C.
    whole.wrapping_mul(row.cost).wrapping_add(
        mutate!("multi-bcl-slack", rest.saturating_sub(slack), {
            let _ = slack;
            rest
        })
        .min(row.cost),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::gfb;
    use crate::multi::sets::{bounds, implicit, set};

    #[test]
    fn two_heavy_tasks_and_a_light_one_pass_where_their_density_does_not() {
        let tasks = implicit(&[(20, 30), (20, 30), (5, 30)]);
        assert!(!gfb::test(&tasks, 2).is_proved(), "3/2 > 2 - 2/3");
        // The light one in 30: 20 + 20 of 2·25. A heavy one: 10 of the other (11 in integer time)
        // and 5, of 2·10.
        let mut scratch = Scratch::new();
        assert_eq!(bounds(&plain(&tasks, 2, &mut scratch)), [28, 28, 25]);
        assert_eq!(bounds(&iterative(&tasks, 2, &mut scratch)), [28, 28, 25]);
    }

    #[test]
    fn equality_passes_only_if_a_term_lies_between() {
        // s = 1 on one CPU: Σ min(W, 1) = 1 = m·s by a task that could do just that, or by one that
        // could do more.
        let mut scratch = Scratch::new();
        assert_eq!(plain_slacks(&set(&[(2, 3, 9), (1, 3, 9)]), 1, &mut scratch), Ok(None));
        assert_eq!(plain_slacks(&set(&[(2, 3, 9), (2, 3, 9)]), 1, &mut scratch), Ok(Some(0)));
        // No slack and no other task: 0 = 0 proves nothing here, though it does in the iterative
        // form.
        assert_eq!(plain_slacks(&set(&[(3, 3, 3)]), 1, &mut scratch), Ok(Some(0)));
        assert_eq!(iterative_slacks(&set(&[(3, 3, 3)]), 1, &mut scratch), Ok(None));
    }
}
