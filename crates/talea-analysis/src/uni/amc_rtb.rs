//! Adaptive mixed criticality, AMC-rtb.
//!
//! S. K. Baruah, A. Burns and R. I. Davis, "Response-time analysis for mixed criticality systems",
//! RTSS 2011, section on AMC-rtb: a job of high criticality that has executed for its C(LO) without
//! completing triggers the mode switch. From then on jobs of low criticality are abandoned and not
//! released.
//!
//! > R(LO) = C(LO) + Σ ⌈R(LO)/T_j⌉·C_j(LO) over all more urgent j, for every task
//! > R(HI) = C(HI) + Σ_{j high} ⌈R(HI)/T_j⌉·C_j(HI) + Σ_{j low} ⌈R(LO)/T_j⌉·C_j(LO),
//! > for tasks of high criticality
//!
//! Assumptions:
//! 1. 1 ≤ C(LO) ≤ C(HI), T ≥ 1, all integers.
//! 2. One CPU, preemptive, no overheads.
//! 3. Distinct fixed priorities; the tasks are given in their order, most urgent first.
//! 4. Sporadic arrivals at least T apart.
//! 5. D ≤ T.
//! 6. No jitter, no blocking.
//! 7. The mode switch takes no time.
//!
//! *Sufficient*: the test does not search for the worst time of the switch (AMC-max does). A set
//! with a task whose R(LO) exceeds D is refuted, because a deadline is then missed without any
//! switch. Compatible with Audsley's algorithm. Sustainable in C, T and D.

use super::fp_response;
use super::prepared::{HORIZON_NS, PreparedTask, Scratch, count_steps};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict};
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "amc-rtb",
    policy: "FP, adaptive mixed criticality",
    platform: Platform::One,
    model: "sporadic, two levels of criticality, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Baruah, Burns and Davis, RTSS 2011",
    sustainable: "costs, periods, deadlines",
    tests: &[
        "crates/talea-analysis/tests/it/amc.rs::two_tasks_by_hand",
        "crates/talea-analysis/tests/it/amc.rs::no_simulated_response_is_longer_than_the_bound",
    ],
};

/// Task of either criticality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualCriticalityTask {
    /// Task with C(LO).
    pub task: Sporadic,
    /// C(HI), for a task of high criticality.
    pub high: Option<Work>,
}

/// Longest response times of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualResponse {
    /// Response without a mode switch.
    pub low: Span,
    /// Response through a switch and after it, for a task of high criticality.
    pub high: Option<Span>,
}

/// Computes the bounds of `tasks`, most urgent first, into `out`. Stops at the first task that
/// misses its deadline, and returns that task.
///
/// # Errors
/// [`Inconclusive::Assumption`] 1, 5 or 6. [`Inconclusive::Limit`] for values outside the range of
/// [`super`], or if the scratch has no steps left.
///
/// # Panics
/// If `out` does not have one element per task.
pub fn bounds(
    tasks: &[DualCriticalityTask],
    scratch: &mut Scratch,
    out: &mut [Option<DualResponse>],
) -> Result<Option<usize>, Inconclusive> {
    assert_eq!(tasks.len(), out.len(), "a place for each task");
    out.fill(None);
    let low: Vec<Sporadic> = tasks.iter().map(|dual| dual.task).collect();
    // With C(HI) everywhere the sums are largest: both are in range.
    let high: Vec<Sporadic> = tasks
        .iter()
        .map(|dual| Sporadic { cost: dual.high.unwrap_or(dual.task.cost), ..dual.task })
        .collect();
    for (at, dual) in tasks.iter().enumerate() {
        let task = &dual.task;
        let number = match () {
            () if dual.high.is_some_and(|high| high < task.cost) => 1,
            () if task.deadline > task.period => 5,
            () if !task.jitter.is_zero() || !task.blocking.is_zero() => 6,
            () => continue,
        };
        return Err(Inconclusive::Assumption { number, task: at });
    }
    scratch.load(&high)?;
    let high: Vec<PreparedTask> = scratch.parts().0.to_vec();
    scratch.load(&low)?;
    let (low, _, left) = scratch.parts();
    for at in 0..tasks.len() {
        let deadline = low[at].deadline;
        // Least fixed point over the tasks above. `work` may be capped independently of the window.
        let least = |cost: u64, left: &mut u64, work: &dyn Fn(usize, u64) -> u64| {
            let mut window = cost;
            loop {
                count_steps(left, at + 1)?;
                // Stops beyond the deadline, so that no sum leaves the range.
                if window > deadline {
                    return Ok(None);
                }
                let next = (0..at).fold(cost, |sum, above| sum.saturating_add(work(above, window)));
                if next == window {
                    return Ok(Some(window));
                }
                if next > HORIZON_NS {
                    return Err(Inconclusive::Limit);
                }
                window = next;
            }
        };
        let Some(before) = least(low[at].cost, left, &|above, window| low[above].work(window - 1))?
        else {
            return Ok(Some(at));
        };
        let mut response = DualResponse { low: Span::from_ns(before), high: None };
        if tasks[at].high.is_some() {
            let work = |above: usize, window: u64| match tasks[above].high {
                Some(_) => high[above].work(window - 1),
                None => mutate!("analysis-amc", low[above].work(before - 1), 0),
            };
            let Some(after) = least(high[at].cost, left, &work)? else { return Ok(Some(at)) };
            response.high = Some(Span::from_ns(after));
        }
        out[at] = Some(response);
    }
    Ok(None)
}

/// Returns the result: a proof with the longer bound of each task, a miss without any switch, or
/// inconclusive. The function allocates.
pub fn verdict(tasks: &[DualCriticalityTask]) -> Verdict {
    let mut out = alloc::vec![None; tasks.len()];
    let mut scratch = Scratch::new();
    match bounds(tasks, &mut scratch, &mut out) {
        Err(why) => Verdict::Unknown { why },
        Ok(None) => {
            let longer =
                |response: &DualResponse| response.high.unwrap_or(response.low).max(response.low);
            Verdict::Proved { bounds: out.iter().flatten().map(longer).collect() }
        }
        Ok(Some(task)) => {
            let low: Vec<Sporadic> = tasks.iter().map(|dual| dual.task).collect();
            match fp_response::verdict_in(&low, &mut scratch) {
                Verdict::Proved { .. } => {
                    Verdict::Unknown { why: Inconclusive::Insufficient { task } }
                }
                other => other,
            }
        }
    }
}
