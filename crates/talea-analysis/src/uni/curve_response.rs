//! Response times for any upper arrival curves, under FP and EDF with limited preemption.
//!
//! S. Bozhko and B. B. Brandenburg, "Abstract response-time analysis: a formal foundation for the
//! busy-window principle", ECRTS 2020: a job is released at A in a busy window. Let rbf_j(δ) be the
//! cost of the jobs of task j that a window of length δ can contain. The first nanosecond of the
//! job's last section, of the length q, ends at the least x with
//!
//! > x = B(A) + rbf_i(A + 1) − (q − 1) + Σ rbf_j(δ_j),
//!
//! where δ_j = x for tasks of the same or a higher priority under FP, and δ_j = min(x, A + 1 + D_i
//! − D_j) for all other tasks under EDF. The response is x + q − 1 − A.
//!
//! *Blocking.* B(A) is the longest section, less a nanosecond, of the tasks below (FP) or of those
//! with D_k > A + D_i (EDF).
//!
//! *Search space.* The right side is monotonic in A: where B(A) decreases, a job that is longer
//! joins the sum. So the longest response of equal right sides is at the least A: after a step of
//! the own curve, or under EDF of another curve moved by D_j − D_i. Every A is below the length of
//! the busy window: the least L with Σ rbf(L) ≤ L over all tasks (EDF), or with the blocking over
//! the task and those that may delay it (FP).
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, no overheads. The CPU chooses a job at the end of each section, and never idles
//!    while a job waits.
//! 3. Fixed priorities, or EDF by absolute deadlines that count from the release. Ties are adverse
//!    to the analysed task.
//! 4. In any window, no more releases than the curve permits.
//! 5. Independent tasks.
//! 6. Jobs of one task run in their order. A late job continues.
//! 7. Time is in whole nanoseconds: a section that blocks has begun at least one nanosecond before.
//! 8. Sections are between 1 ns and C, and the last one is not longer than the longest.
//!
//! *Exact* for curves that a task can follow from any point on, such as those of sporadic tasks;
//! *sufficient* for others. Sustainable in costs, curves and longest sections.
//!
//! O(n·P·W): P points A within the busy window, and W evaluations for each.

use super::arrival_curve::Arrivals;
use super::prepared::{HORIZON_NS, MAX_PARAMETER_NS, count_steps};
use super::sections::Sections;
use crate::demand::{Demand, sum_at_most};
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::Inconclusive;
use alloc::vec::Vec;
use talea_core::{Charge, Span, Work, mutate};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "curve-response-times",
    policy: "FP, EDF, limited preemption",
    platform: Platform::One,
    model: "arrival curves, any D; preemptive, non-preemptive, preemption points, floating sections",
    kind: TestKind::Sufficient,
    paper: "Bozhko and Brandenburg, ECRTS 2020",
    sustainable: "costs, arrival curves, longest sections",
    tests: &[
        "crates/talea-analysis/tests/it/curves.rs::every_bound_of_poets_sets_is_that_of_pyrta",
        "crates/talea-analysis/tests/it/curves.rs::sporadic_tasks_have_the_bounds_of_their_own_tests",
    ],
};

/// Task with an arrival curve.
#[derive(Clone, Copy, Debug)]
pub struct CurveTask<'a> {
    /// Longest execution time, C.
    pub cost: Work,
    /// Deadline from the release, D. Fixed priorities do not use it.
    pub deadline: Span,
    /// Releases.
    pub arrivals: Arrivals<'a>,
    /// Sections that no other job preempts.
    pub sections: Sections,
    /// Level of its priority, 0 the most urgent. EDF does not use it.
    pub level: u32,
}

impl CurveTask<'_> {
    /// Returns the cost of the jobs that a window of this length can contain; saturates.
    fn work(&self, window: u64) -> u64 {
        self.arrivals.jobs(window).saturating_mul(self.cost.as_ns())
    }

    /// Checks the range of the parameters of the task number `task`.
    fn check(&self, task: usize) -> Result<(), Inconclusive> {
        let (cost, sections) = (self.cost.as_ns(), self.sections);
        let (period, jitter) = match self.arrivals {
            Arrivals::Periodic { period, jitter } => (period.as_ns(), jitter.as_ns()),
            Arrivals::Curve(_) | Arrivals::Distances(_) => (1, 0),
        };
        if cost == 0 || period == 0 {
            return Err(Inconclusive::Assumption { number: 1, task });
        }
        if cost | period | jitter | self.deadline.as_ns() >= MAX_PARAMETER_NS {
            return Err(Inconclusive::Limit);
        }
        sections.check(cost, task).map(|_| ())
    }
}

/// Returns the longest response times, from release to completion, under fixed priorities; `None`
/// for a task whose busy window does not end, because the task and those that may delay it exceed
/// the CPU. `steps` limits the
/// effort per task: a step evaluates one curve.
///
/// # Errors
/// [`Inconclusive::Assumption`] 1 or 8; [`Inconclusive::Limit`] for values outside the range of
/// [`super`], or if no steps are left.
pub fn fp_bounds(tasks: &[CurveTask<'_>], steps: u64) -> Result<Vec<Option<Span>>, Inconclusive> {
    check(tasks)?;
    let one = |at: usize| {
        let level = tasks[at].level;
        let others: Vec<CurveTask<'_>> = (0..tasks.len())
            .filter(|&other| other != at && tasks[other].level <= level)
            .map(|other| tasks[other])
            .collect();
        let below = tasks.iter().filter(|other| other.level > level);
        let blocking = below.map(|other| other.sections.blocking()).max().unwrap_or(0);
        let analysed = Analysed { task: &tasks[at], others: &others, by_deadline: false };
        let mut left = steps;
        analysed.longest(blocking, |_| blocking, &mut left)
    };
    (0..tasks.len()).map(one).collect()
}

/// Returns the longest response times, from release to completion, under EDF; `None` for all if
/// their busy window does not end. `steps` limits the effort per task: a step
/// evaluates one curve.
///
/// # Errors
/// As [`fp_bounds`].
pub fn edf_bounds(tasks: &[CurveTask<'_>], steps: u64) -> Result<Vec<Option<Span>>, Inconclusive> {
    check(tasks)?;
    let one = |at: usize| {
        let others: Vec<CurveTask<'_>> =
            (0..tasks.len()).filter(|&other| other != at).map(|other| tasks[other]).collect();
        let blocking = |due: u64| {
            let later = others.iter().filter(|other| other.deadline.as_ns() > due);
            later.map(|other| other.sections.blocking()).max().unwrap_or(0)
        };
        let analysed = Analysed { task: &tasks[at], others: &others, by_deadline: true };
        let mut left = steps;
        analysed.longest(0, blocking, &mut left)
    };
    (0..tasks.len()).map(one).collect()
}

fn check(tasks: &[CurveTask<'_>]) -> Result<(), Inconclusive> {
    tasks.iter().enumerate().try_for_each(|(at, task)| task.check(at))
}

/// Task under analysis, with the tasks whose jobs may run before its job.
struct Analysed<'a> {
    task: &'a CurveTask<'a>,
    others: &'a [CurveTask<'a>],
    by_deadline: bool,
}

impl Analysed<'_> {
    /// Returns the longest response. `in_window` is the blocking that extends the busy window, and
    /// `blocking` returns B of a job by its deadline in the window.
    fn longest(
        &self,
        in_window: u64,
        blocking: impl Fn(u64) -> u64,
        steps: &mut u64,
    ) -> Result<Option<Span>, Inconclusive> {
        let all = || self.others.iter().chain([self.task]);
        let busy = self.least(1, steps, |window| {
            all().fold(in_window, |sum, task| sum.saturating_add(task.work(window)))
        });
        let busy = match busy {
            Ok(busy) => busy,
            Err(why) => {
                // Curves whose long-run demand exceeds the CPU may still have a busy window that
                // ends.
                let demands = all().map(|task| task.arrivals.demand(task.cost));
                let demands = demands.collect::<Result<Vec<Demand>, _>>()?;
                return if sum_at_most(&demands, Charge::ONE) { Err(why) } else { Ok(None) };
            }
        };
        let tail = self.task.sections.tail();
        let deadline = self.task.deadline.as_ns();
        let (mut longest, mut begin) = (0, 1);
        let mut next = Some(0);
        while let Some(at) = next.filter(|&at| at < busy) {
            let due = at + deadline;
            let own = blocking(due) + self.task.work(at + 1) - tail;
            begin = self.least(begin, steps, |window| {
                self.others.iter().fold(own, |sum, other| {
                    let permitted = if self.by_deadline {
                        window.min((due + 1).saturating_sub(other.deadline.as_ns()))
                    } else {
                        window
                    };
                    sum.saturating_add(other.work(permitted))
                })
            })?;
            longest = longest.max((begin + tail).saturating_sub(at));
            next = self.next_point(at + 1);
        }
        Ok(Some(Span::from_ns(longest)))
    }

    /// Returns the least x from `from` on that `work` does not exceed, where `work` is monotonic
    /// and above all smaller x.
    fn least(
        &self,
        from: u64,
        steps: &mut u64,
        work: impl Fn(u64) -> u64,
    ) -> Result<u64, Inconclusive> {
        let mut window = from;
        loop {
            count_steps(steps, self.others.len() + 1)?;
            let next = work(window);
            if next > HORIZON_NS {
                return Err(Inconclusive::Limit);
            }
            if next <= window {
                return Ok(window);
            }
            window = next;
        }
    }

    /// Returns the next point of the search space from `from` on; `None` beyond the horizon.
    fn next_point(&self, from: u64) -> Option<u64> {
        let own = self.task.arrivals.next_step(from);
        let deadline = self.task.deadline.as_ns();
        let of_other = |other: &CurveTask<'_>| {
            let other_deadline = other.deadline.as_ns();
            let step = other.arrivals.next_step((from + deadline).saturating_sub(other_deadline));
            step.saturating_add(other_deadline).checked_sub(deadline)
        };
        let others = self.others.iter().filter(|_| self.by_deadline).filter_map(of_other);
        let next = mutate!("analysis-curve-points", others.fold(own, u64::min), own);
        (next < HORIZON_NS).then_some(next)
    }
}
