//! Preemptive fixed priorities with several tasks per level: `SCHED_FIFO`, first come, first served
//! within a level.
//!
//! M. Joseph and P. Pandya, "Finding response times in a real-time system", The Computer Journal
//! 29(5), 1986, for one task per level. For the tasks L of one level, with W = Σ C over L,
//!
//! > w = W + Σ ⌈(w + J_j) / T_j⌉·C_j over all tasks j above, the least such w;
//! > every deadline of the level is met if and only if w ≤ min D over L.
//!
//! Assumptions:
//! 1. C ≥ 1, T ≥ 1, all integers.
//! 2. One CPU, preemptive, no overheads.
//! 3. Levels are given most urgent first. Tasks before the first level outrank all levels and are
//!    not tested.
//! 4. Sporadic arrivals at least T apart. Only untested tasks may be released later, by J at most.
//! 5. Independent tasks, no blocking.
//! 6. D ≤ T for tested tasks.
//!
//! *Sufficient.* Let a busy interval of the level and all levels above begin at b. Because w ≤ D ≤
//! T, no task of L arrives twice within [b, b + w). So at most w is demanded in this interval, and
//! the busy interval ends by b + w. In any order within the level, a job that arrives in it
//! completes within w ≤ D.
//!
//! *Necessary.* Let all tasks of L arrive together with all tasks above, after these have waited
//! for their jitter. Let the task of the shortest deadline be the last in the queue. It completes
//! when all of w is done. So the test is *exact*, and w is attained.
//!
//! Sustainable in C, T, D and J. Also sustainable under division of a level: the upper half has
//! less work in w. In the lower half each task of the upper half counts once within w, as before.
//!
//! If the upper bound of Bini et al. is below the deadlines, it proves a level (see
//! [`super::fp_response::meets`], here with W in place of C). The iteration starts as in
//! [`super::fp_response`].

use super::fp_response::demand;
use super::prepared::{
    HORIZON_NS, PreparedTask, Scratch, count_steps, fits, scaled_down, scaled_up,
};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::Inconclusive;
use talea_core::Span;
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "fp-levels",
    policy: "FP, FIFO within a level",
    platform: Platform::One,
    model: "sporadic, D ≤ T, preemptive; jitter of those that are not judged",
    kind: TestKind::Exact,
    paper: "Joseph and Pandya, The Computer Journal 29(5), 1986; levels: argued in the code",
    sustainable: "costs, periods, deadlines, jitter",
    tests: &[
        "crates/talea-analysis/tests/it/fp_levels.rs::a_level_meets_its_deadlines_if_each_of_its_tasks_does_as_the_last",
        "crates/talea-analysis/tests/it/fp_levels.rs::late_levels_are_late_in_a_simulated_schedule",
    ],
};

/// Level that does not meet every deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateLevel {
    /// Index of the level.
    pub level: usize,
    /// Longest response of the task of the level with the shortest deadline. If the search takes
    /// too many steps, the value reached so far, which is beyond the deadline. `None` if the level
    /// and all levels above exceed the CPU, so that the response grows without bound.
    pub response: Option<Span>,
}

/// Returns the first level in which a deadline can be missed; `None` if every deadline is met.
/// `tasks[..above]` outrank all levels, and level k ends before `tasks[ends[k]]`.
///
/// # Errors
/// [`Inconclusive::Assumption`] 1, 4, 5 or 6. [`Inconclusive::Limit`] for values outside the range
/// of [`super`], or if the scratch has no steps left.
///
/// # Panics
/// If the ends are out of order or beyond the tasks.
pub fn first_late_level(
    tasks: &[Sporadic],
    above: usize,
    ends: &[usize],
    scratch: &mut Scratch,
) -> Result<Option<LateLevel>, Inconclusive> {
    scratch.load(tasks)?;
    let broken = |task: &Sporadic| match task {
        _ if !task.jitter.is_zero() => Some(4),
        _ if !task.blocking.is_zero() => Some(5),
        _ if task.deadline > task.period => Some(6),
        _ => None,
    };
    for (at, task) in tasks.iter().enumerate().skip(above) {
        if let Some(number) = broken(task) {
            return Err(Inconclusive::Assumption { number, task: at });
        }
    }
    let (rows, _, left) = scratch.parts();
    let mut sums = HigherPrioritySums::default();
    sums.add(&rows[..above]);
    let (mut from, mut start) = (above, 0);
    for (level, &end) in ends.iter().enumerate() {
        let (higher, own) = (&rows[..from], &rows[from..end]);
        let cost = mutate!(
            "plugin-rm-exact-level",
            own.iter().map(|row| row.cost).sum::<u64>(),
            own.iter().map(|row| row.cost).max().unwrap_or(0)
        );
        let Some(deadline) = mutate!(
            "analysis-fp-levels-deadline",
            own.iter().map(|row| row.deadline).min(),
            own.iter().map(|row| row.deadline).max()
        ) else {
            continue;
        };
        start += cost;
        // Also: without overload no sum wraps.
        if sums.is_overload(&tasks[..from]) {
            return Ok(Some(LateLevel { level, response: None }));
        }
        if !sums.bounds(cost, deadline) {
            start = match search(higher, cost, start, deadline, left)? {
                Ok(window) => window,
                Err(window) => {
                    sums.add(own);
                    let overload = sums.is_overload(&tasks[..end]);
                    let response = (!overload)
                        .then(|| Span::from_ns(continue_search(higher, cost, window, left)));
                    return Ok(Some(mutate!(
                        "analysis-fp-levels-late",
                        LateLevel { level, response },
                        LateLevel { level: level + 1, response }
                    )));
                }
            };
        }
        sums.add(own);
        from = end;
    }
    Ok(None)
}

/// Sums over the more urgent tasks for the bound of Bini et al.
#[derive(Default)]
struct HigherPrioritySums {
    /// ΣU, rounded up and saturating.
    utilisation: u64,
    /// ΣU, rounded down.
    least: u128,
    /// Σ C·(1 − U) + U·J, rounded up.
    rest: u64,
}

impl HigherPrioritySums {
    fn add(&mut self, rows: &[PreparedTask]) {
        for row in rows {
            let share = row.utilisation_up();
            // `share` exceeds U by at most eight parts.
            let least = share.saturating_sub(8);
            self.utilisation = self.utilisation.saturating_add(share);
            self.least += u128::from(least);
            let own = row.cost - scaled_down(row.cost, least).min(row.cost);
            self.rest += own + scaled_up(row.jitter, share);
        }
    }

    /// Whether the bound proves that `cost` below the summed tasks completes within `deadline`.
    fn bounds(&self, cost: u64, deadline: u64) -> bool {
        let idle = u64::MAX - self.utilisation;
        (u128::from(cost + self.rest) << 64) <= u128::from(deadline) * u128::from(idle)
    }

    /// Whether `tasks` exceed the CPU. These are the summed tasks. The result is exact even if
    /// rounding leaves it open.
    fn is_overload(&self, tasks: &[Sporadic]) -> bool {
        self.utilisation == u64::MAX && (self.least > u128::from(u64::MAX) || !fits(tasks))
    }
}

/// Returns the least window if it is within `deadline`, otherwise the first value found beyond.
fn search(
    above: &[PreparedTask],
    cost: u64,
    start: u64,
    deadline: u64,
    left: &mut u64,
) -> Result<Result<u64, u64>, Inconclusive> {
    let mut window = start;
    loop {
        if window > deadline {
            return Ok(Err(window));
        }
        count_steps(left, above.len() + 1)?;
        let next = demand(above, cost, window);
        if next == window {
            return Ok(Ok(window));
        }
        window = next;
    }
}

/// Returns the value that the iteration reaches with the remaining steps. `start` is not beyond the
/// least window.
fn continue_search(above: &[PreparedTask], cost: u64, start: u64, left: &mut u64) -> u64 {
    let mut window = start;
    while window <= HORIZON_NS && count_steps(left, above.len() + 1).is_ok() {
        let next = demand(above, cost, window);
        if next == window {
            break;
        }
        window = next;
    }
    window
}
