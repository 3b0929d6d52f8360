//! Response times of jobs that suspend themselves.
//!
//! *Oblivious*: suspensions count as work. While a job is pending, each instant belongs to the work
//! or to the suspension of a job that is served before it, or of the job itself. So the tests for
//! tasks with costs C + S hold: of fixed priorities ([`super::fp_response`]) and of EDF
//! ([`super::edf_response`]). (J.-J. Chen et al., "Many suspensions, many problems", Real-Time
//! Systems 55, 2019, section 4.2.)
//!
//! *Unified*: J.-J. Chen, G. Nelissen and W.-H. Huang, "A unifying response time analysis framework
//! for dynamic self-suspending tasks", ECRTS 2016, theorem 1. For tasks 1 to k − 1 of higher
//! priority with R_i ≤ T_i, and for any x with x_i in {0, 1}, the response of task k is at most the
//! least t ≤ T_k with
//!
//! C_k + S_k + Σ_{i<k} ⌈(t + Q_i + (1 − x_i)(R_i − C_i)) / T_i⌉ C_i ≤ t,
//!
//! where Q_i = Σ_{i≤j<k} x_j S_j. x = 0 is the analysis of suspension as jitter. Tasks without
//! suspension have x_i = 1, which adds nothing to Q. Of the others all x are tried, up to
//! [`MAX_EXHAUSTIVE`] tasks, and beyond that only those that change once along the priorities.
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, preemptive, no overheads, no blocking.
//! 3. A job suspends itself for at most S in total, at any instants.
//! 4. Fixed priorities: each set is in the order of the priorities. Tasks of one priority have
//!    equal levels, and then only the first bound applies.
//!
//! *Sufficient*. O(n · 2^m) fixed points for m suspending tasks.

use super::prepared::Scratch;
use super::{edf_response, fp_response};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::Inconclusive;
use alloc::vec;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "self-suspension",
    policy: "FP, EDF",
    platform: Platform::One,
    model: "sporadic, self-suspending, preemptive, any D, jitter",
    kind: TestKind::Sufficient,
    paper: "Chen, Nelissen and Huang, ECRTS 2016; Chen et al., Real-Time Systems 55, 2019",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/tests/it/tree/suspension.rs::no_simulated_response_of_suspending_tasks_exceeds_its_bound",
        "crates/talea-analysis/tests/it/tree/suspension.rs::all_phases_and_suspensions_of_small_sets_are_within_the_bounds",
    ],
};

/// Largest number of suspending tasks for which all x are tried.
pub const MAX_EXHAUSTIVE: usize = 6;

/// Sporadic task whose jobs suspend themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspending {
    /// Task; its cost is the work alone.
    pub task: Sporadic,
    /// Longest suspension of a job in total, S.
    pub suspension: Span,
    /// Priority level: smaller levels are served first.
    pub level: u64,
}

/// Returns the tasks with their suspensions as work.
fn oblivious(tasks: &[Suspending]) -> Result<Vec<Sporadic>, Inconclusive> {
    let with_work = |of: &Suspending| {
        let cost = of.task.cost.as_ns().checked_add(of.suspension.as_ns())?;
        Some(Sporadic { cost: Work::from_ns(cost), ..of.task })
    };
    tasks.iter().map(with_work).collect::<Option<_>>().ok_or(Inconclusive::Limit)
}

/// Returns the longest response of each task from its arrival, under EDF; `None` without a bound.
///
/// # Errors
/// As [`edf_response::bounds`].
pub fn edf_bounds(
    tasks: &[Suspending],
    scratch: &mut Scratch,
) -> Result<Vec<Option<Span>>, Inconclusive> {
    let all = oblivious(tasks)?;
    let mut out = vec![None; tasks.len()];
    edf_response::bounds(&all, scratch, &mut out)?;
    Ok(out.into_iter().map(|bound| bound.map(|bound| bound.arrival)).collect())
}

/// Returns the longest response of each task from its arrival, under fixed priorities; `None`
/// without a bound. The tasks are in the order of their levels.
///
/// # Errors
/// As [`fp_response::bounds`].
pub fn fp_bounds(
    tasks: &[Suspending],
    scratch: &mut Scratch,
) -> Result<Vec<Option<Span>>, Inconclusive> {
    let all = oblivious(tasks)?;
    let mut found: Vec<Option<Span>> = Vec::with_capacity(tasks.len());
    for (at, task) in tasks.iter().enumerate() {
        // The other tasks of the level interfere, too; the task itself comes last.
        let end = tasks.partition_point(|other| other.level <= task.level);
        let mut served: Vec<Sporadic> = all[..at].to_vec();
        served.extend_from_slice(&all[at + 1..end]);
        served.push(all[at]);
        let oblivious =
            fp_response::lowest_priority_response(&served, scratch)?.map(|bound| bound.arrival);
        let has_ties = tasks[..end].windows(2).any(|two| two[0].level == two[1].level);
        let unified = if has_ties { None } else { unified(&tasks[..=at], &found) };
        found.push([oblivious, unified].into_iter().flatten().min());
    }
    Ok(found)
}

/// Returns the response of the last of `tasks`, from the bounds of the others.
fn unified(tasks: &[Suspending], bounds: &[Option<Span>]) -> Option<Span> {
    let (last, above) = tasks.split_last()?;
    if tasks.iter().any(|of| !of.task.jitter.is_zero() || !of.task.blocking.is_zero()) {
        return None;
    }
    // Delays R_i − C_i of the tasks above.
    let delay = |(of, bound): (&Suspending, &Option<Span>)| {
        let bound = bound
            .filter(|&bound| mutate!("analysis-suspension-late", bound <= of.task.period, true))?;
        bound.as_ns().checked_sub(of.task.cost.as_ns())
    };
    let delays = above.iter().zip(bounds).map(delay).collect::<Option<Vec<u64>>>()?;
    let suspending: Vec<usize> =
        (0..above.len()).filter(|&at| !above[at].suspension.is_zero()).collect();
    let count = suspending.len();
    let mut best: Option<u64> = None;
    let mut assign = |is_one: &dyn Fn(usize) -> bool| {
        let mut x = vec![true; above.len()];
        for (number, &at) in suspending.iter().enumerate() {
            x[at] = is_one(number);
        }
        let found = least_response(last, above, &delays, &x);
        best = [best, found].into_iter().flatten().min();
    };
    if count <= MAX_EXHAUSTIVE {
        for bits in 0..1_u32 << count {
            assign(&|number| bits >> number & 1 == 1);
        }
    } else {
        for change in 0..=count {
            assign(&|number| number < change);
            assign(&|number| number >= change);
        }
    }
    best.map(Span::from_ns)
}

/// Returns the least t of the inequality for this x; `None` beyond the period.
fn least_response(
    last: &Suspending,
    above: &[Suspending],
    delays: &[u64],
    x: &[bool],
) -> Option<u64> {
    // `early[i]`: Q_i + (1 − x_i)(R_i − C_i).
    let (mut early, mut q) = (vec![0; above.len()], 0_u64);
    for (at, of) in above.iter().enumerate().rev() {
        if x[at] {
            q = q.checked_add(of.suspension.as_ns())?;
        }
        let delay = if x[at] { 0 } else { mutate!("analysis-suspension-jitter", delays[at], 0) };
        early[at] = q.checked_add(delay)?;
    }
    let own = last.task.cost.as_ns().checked_add(last.suspension.as_ns())?;
    let mut t = own;
    loop {
        let mut demand = own;
        for (of, early) in above.iter().zip(&early) {
            let jobs = t.checked_add(*early)?.div_ceil(of.task.period.as_ns().max(1));
            demand = demand.checked_add(jobs.checked_mul(of.task.cost.as_ns())?)?;
        }
        if demand > last.task.period.as_ns() {
            return None;
        }
        if demand <= t {
            return Some(t);
        }
        t = demand;
    }
}
