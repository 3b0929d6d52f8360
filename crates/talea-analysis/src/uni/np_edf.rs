//! The processor demand test and response times for non-preemptive EDF.
//!
//! K. Jeffay, D. F. Stanat and C. U. Martel, "On non-preemptive scheduling of periodic and sporadic
//! tasks", RTSS 1991, for D = T; L. George, N. Rivierre and M. Spuri, "Preemptive and
//! non-preemptive real-time uniprocessor scheduling", INRIA research report 2966, 1996, for any D:
//! schedulable if and only if ΣU ≤ 1 and
//!
//! > h(t) + max {C_j − 1 : D_j > t} ≤ t for every t from the shortest D on.
//!
//! [`super::qpa`] with the right blocking decides this condition. The response times of the same
//! report are those of [`super::limited_edf`] with sections of the length C; they
//! decide sets with jitter as well.
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, no overheads. A job that has begun runs to its end.
//! 3. EDF by absolute deadlines, which count from the arrival. No CPU idles while a job waits.
//! 4. Sporadic arrivals at least T apart, each released at most J later.
//! 5. Independent tasks, except for the tasks' own B, which add to the blocking by other jobs.
//! 6. Jobs of one task run in their order.
//! 7. Time is in whole nanoseconds: a blocking job with a later deadline has started at least one
//!    nanosecond before.
//!
//! *Exact* for sporadic tasks without B of their own; *sufficient* for other tasks, and for
//! strictly periodic tasks. The verdict is sustainable in C, T, D, J and B (the test, not a
//! concrete schedule); the bounds are not in D.

use super::edf_response_search::LongestResponse;
use super::prepared::{MAX_PARAMETER_NS, Scratch};
use super::qpa::{self, Finding};
use super::sections::Sections;
use super::{Bound, conclude, edf_response, limited_edf};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Release, Verdict, Witness};
use alloc::vec;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "np-edf-demand",
    policy: "EDF, non-preemptive",
    platform: Platform::One,
    model: "sporadic, any D, non-preemptive; with blocking sufficient",
    kind: TestKind::Exact,
    paper: "Jeffay, Stanat and Martel, RTSS 1991; George, Rivierre and Spuri, INRIA research report 2966, 1996",
    sustainable: "costs, periods, deadlines, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/nonpreemptive.rs::jeffay_1991_a_long_job_of_a_slow_task_blocks",
        "crates/talea-analysis/tests/it/nonpreemptive.rs::edf_verdicts_are_those_of_the_simulation",
        "crates/talea-analysis/tests/it/sandwich.rs::deadlines_preemptive_and_not_and_in_bands",
    ],
};

/// Entry of the response times in the catalogue.
pub const RESPONSE_TIMES: TestInfo = TestInfo {
    name: "np-edf-response-times",
    policy: "EDF, non-preemptive",
    platform: Platform::One,
    model: "sporadic, any D, jitter, non-preemptive; with blocking sufficient",
    kind: TestKind::Exact,
    paper: "George, Rivierre and Spuri, INRIA research report 2966, 1996",
    sustainable: "verdict: costs, periods, deadlines, jitter, blocking; bounds: costs, periods, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/sections.rs::edf_bounds_are_the_longest_simulated_responses",
        "crates/talea-analysis/tests/it/sections.rs::every_candidate_tried_gives_the_same",
    ],
};

/// Returns the tasks by D − J, each with the blocking of the longest job among the tasks with later
/// deadlines. The function allocates.
fn with_blocking(tasks: &[Sporadic]) -> Result<Vec<Sporadic>, Inconclusive> {
    let bits = tasks.iter().fold(0, |bits, task| bits | task.cost.as_ns() | task.blocking.as_ns());
    if bits >= MAX_PARAMETER_NS / 4 {
        return Err(Inconclusive::Limit);
    }
    let due = |task: &Sporadic| i128::from(task.deadline.as_ns()) - i128::from(task.jitter.as_ns());
    let one = |task: &Sporadic| {
        let later = tasks.iter().filter(|other| due(other) > due(task));
        let longest = later.map(|other| other.cost.as_ns()).max().unwrap_or(0);
        let blocking = Work::from_ns(
            task.blocking.as_ns()
                + mutate!("analysis-np-edf-blocking", longest.saturating_sub(1), longest.min(1)),
        );
        Sporadic { blocking, ..*task }
    };
    Ok(tasks.iter().map(one).collect())
}

/// Computes the longest response times of non-preemptive `tasks`, in any order, into `out`. All
/// results are `None` if the tasks exceed the CPU together. Returns whether every deadline is met.
///
/// # Errors
/// [`Inconclusive::Assumption`] 1. [`Inconclusive::Limit`] for values outside the range of
/// [`super`], or if the scratch has no steps left; then `out` holds no results.
///
/// # Panics
/// If `out` does not have one element per task.
pub fn bounds(
    tasks: &[Sporadic],
    scratch: &mut Scratch,
    out: &mut [Option<Bound>],
) -> Result<bool, Inconclusive> {
    limited_edf::bounds(tasks, |at| Sections::whole(&tasks[at]), scratch, out)
}

/// Returns the result with its witness: a proof (without bounds), an overfull window, a miss, or an
/// overload. The function allocates.
pub fn verdict(tasks: &[Sporadic]) -> Verdict {
    verdict_in(tasks, &mut Scratch::new())
}

/// Returns the result of [`verdict`], computed in `scratch` with its step limit.
pub fn verdict_in(tasks: &[Sporadic], scratch: &mut Scratch) -> Verdict {
    if tasks.iter().any(|task| !task.jitter.is_zero()) {
        return response_verdict_in(tasks, scratch);
    }
    let blocked = match with_blocking(tasks) {
        Ok(blocked) => blocked,
        Err(why) => return Verdict::Unknown { why },
    };
    let (at, demand) = match qpa::find(&blocked, scratch) {
        Err(why) => return Verdict::Unknown { why },
        Ok(Finding::Exceeds { at, demand, blocking }) if !blocking.is_zero() => (at, demand),
        // No job blocks: the result is the same with and without preemption.
        Ok(_) => return qpa::verdict_in(&blocked, scratch),
    };
    let is_exact = tasks.iter().all(|task| task.blocking.is_zero());
    let later = |&at_task: &usize| tasks[at_task].deadline > at;
    let blocker = (0..tasks.len()).filter(later).max_by_key(|&task| tasks[task].cost);
    let Some(blocker) = blocker.filter(|_| is_exact) else {
        let late = tasks.iter().position(|task| task.deadline <= at).unwrap_or(0);
        return Verdict::Unknown { why: Inconclusive::Insufficient { task: late } };
    };
    // The blocking task starts, and a nanosecond later all others arrive. Its cost counts whether
    // it is due by then or not.
    let one = Span::from_ns(1);
    let releases = (0..tasks.len())
        .map(|task| Release {
            first: if task == blocker { Span::ZERO } else { one },
            early: Span::ZERO,
        })
        .collect();
    let (window, cost) = (at + one, tasks[blocker].cost.as_ns());
    let (demand, supply) = if tasks[blocker].deadline <= window {
        (demand.as_ns() + cost, window.as_ns())
    } else {
        (demand.as_ns(), window.as_ns().saturating_sub(cost))
    };
    let (demand, supply) = (Work::from_ns(demand), Work::from_ns(supply));
    let witness = Witness::Demand { at: window, demand, supply, releases };
    Verdict::Refuted { witness }
}

/// Returns the result of [`bounds`] with its witness: a proof with bounds from the release, a miss,
/// or an overload. The function allocates.
pub fn response_verdict(tasks: &[Sporadic]) -> Verdict {
    response_verdict_in(tasks, &mut Scratch::new())
}

/// Returns the result of [`response_verdict`], computed in `scratch` with its step limit.
pub fn response_verdict_in(tasks: &[Sporadic], scratch: &mut Scratch) -> Verdict {
    let mut out = vec![None; tasks.len()];
    let bounded = bounds(tasks, scratch, &mut out);
    conclude(tasks, bounded, &out, |plain| {
        let mut miss: Option<(usize, LongestResponse)> = None;
        let whole = |at: usize| Sections::whole(&plain[at]);
        let fits = limited_edf::each(plain, whole, scratch, |at, longest| {
            if !longest.bound().meets(&tasks[at]) && miss.is_none_or(|(first, _)| at < first) {
                miss = Some((at, longest));
            }
        })?;
        if !fits {
            return Ok(Some(Witness::Overload { task: tasks.len() - 1 }));
        }
        Ok(miss.map(|(task, longest)| witness(tasks, task, &longest)))
    })
}

/// Returns the releases that produce the longest response of `task`: the longest job that is due
/// later starts, and a nanosecond later the window of [`edf_response::witness`] begins.
fn witness(tasks: &[Sporadic], task: usize, longest: &LongestResponse) -> Witness {
    let due = |at: usize, alpha: u64| {
        let (deadline, jitter) = (tasks[at].deadline.as_ns(), tasks[at].jitter.as_ns());
        i128::from(alpha) + i128::from(deadline) - i128::from(jitter)
    };
    let last = due(task, longest.alpha);
    let blocker = (0..tasks.len())
        .filter(|&at| due(at, 0) > last)
        .max_by_key(|&at| tasks[at].cost)
        .filter(|&at| tasks[at].cost > Work::from_ns(1));
    let Witness::Miss { job, response, mut releases, .. } =
        edf_response::witness(tasks, task, longest)
    else {
        unreachable!("the witness of a response is a miss");
    };
    if let Some(blocker) = blocker {
        for release in &mut releases {
            release.first += Span::from_ns(1);
        }
        releases[blocker] = Release { first: Span::ZERO, early: Span::ZERO };
    }
    Witness::Miss { task, job, response, releases }
}
