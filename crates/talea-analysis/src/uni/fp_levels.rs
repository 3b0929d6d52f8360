//! Preemptive fixed priorities where tasks share a level: `SCHED_FIFO`, first come, first served
//! within a level.
//!
//! M. Joseph and P. Pandya, "Finding response times in a real-time system", The Computer Journal
//! 29(5), 1986, for one task a level. For the tasks L of one level, with W = Σ C over L,
//!
//! > w = W + Σ ⌈(w + J_j) / T_j⌉·C_j over all tasks j above, the least such w;
//! > every deadline of the level is met if and only if w ≤ min D over L.
//!
//! Assumptions: 1. C ≥ 1, T ≥ 1, all integers; 2. one CPU, preemptive, no overheads; 3. levels are
//! given most urgent first; those before the first level outrank all and are not judged; 4.
//! sporadic arrivals at least T apart; only those that are not judged may be released later, by J
//! at most; 5. independent, no blocking; 6. D ≤ T for whoever is judged.
//!
//! *It suffices.* Let a busy interval of the level and all above begin at b. As w ≤ D ≤ T, no task
//! of L arrives twice within [b, b + w), so that no more than w is asked for there, and it is over
//! by b + w: whatever the order within the level, a job that arrives in it ends within w ≤ D. *It
//! is necessary.* Let all of L arrive together with all above, after these have waited for their
//! jitter, the task of the shortest deadline the last in the queue: it ends when all of w is done.
//! So the test is *exact*, and w a response that really occurs. Sustainable in C, T, D and J; and
//! so in that a level is divided in two: the upper half has less in w, and to the lower one each
//! task of the upper half counts once within w, as before.
//!
//! A level is settled by the upper bound of Bini et al. where that is enough (see
//! [`super::fp_response::meets`], here with W in place of C), and the search begins where
//! [`super::fp_response`] says.

use super::fp_response::demand;
use super::rows::{HORIZON, Row, Scratch, fits, scaled_down, scaled_up, spend};
use crate::Sporadic;
use crate::card::{Card, Kind, Platform};
use crate::verdict::Why;
use talea_core::Span;
use talea_core::mutate;

/// Its catalogue entry.
pub const CARD: Card = Card {
    name: "fp-levels",
    policy: "FP, FIFO within a level",
    platform: Platform::One,
    model: "sporadic, D ≤ T, preemptive; jitter of those that are not judged",
    kind: Kind::Exact,
    paper: "Joseph and Pandya, The Computer Journal 29(5), 1986; levels: argued in the code",
    sustainable: "costs, periods, deadlines, jitter",
    tests: &[
        "crates/talea-analysis/tests/it/fp_levels.rs::a_level_meets_its_deadlines_if_each_of_its_tasks_does_as_the_last",
        "crates/talea-analysis/tests/it/fp_levels.rs::what_is_too_late_is_too_late_when_it_runs",
    ],
};

/// A level that does not meet every deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// Which.
    pub level: usize,
    /// How long its task of the shortest deadline can take; where that took too many steps to find,
    /// as far as they went, which is beyond the deadline. `None` where the level and what is above
    /// ask for more than the CPU, so that it grows without bound.
    pub response: Option<Span>,
}

/// The first level of which a deadline can be missed: `tasks[..above]` outrank all, and level k
/// ends before `tasks[ends[k]]`.
///
/// # Errors
/// [`Why::Assumption`] 1, 4, 5 or 6, or [`Why::Limit`] outside the range of [`super`] or of the
/// scratch's steps.
///
/// # Panics
/// If the ends are out of order or beyond the tasks.
pub fn first_late(
    tasks: &[Sporadic],
    above: usize,
    ends: &[usize],
    scratch: &mut Scratch,
) -> Result<Option<Late>, Why> {
    scratch.load(tasks)?;
    let broken = |task: &Sporadic| match task {
        _ if !task.jitter.is_zero() => Some(4),
        _ if !task.blocking.is_zero() => Some(5),
        _ if task.deadline > task.period => Some(6),
        _ => None,
    };
    for (at, task) in tasks.iter().enumerate().skip(above) {
        if let Some(number) = broken(task) {
            return Err(Why::Assumption { number, task: at });
        }
    }
    let (rows, _, left) = scratch.parts();
    let mut carried = Carried::default();
    carried.add(&rows[..above]);
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
        // Also: with less than that no sum wraps.
        if carried.is_overload(&tasks[..from]) {
            return Ok(Some(Late { level, response: None }));
        }
        if !carried.bounds(cost, deadline) {
            start = match search(higher, cost, start, deadline, left)? {
                Ok(window) => window,
                Err(window) => {
                    carried.add(own);
                    let overload = carried.is_overload(&tasks[..end]);
                    let response =
                        (!overload).then(|| Span::from_ns(further(higher, cost, window, left)));
                    return Ok(Some(mutate!(
                        "analysis-fp-levels-late",
                        Late { level, response },
                        Late { level: level + 1, response }
                    )));
                }
            };
        }
        carried.add(own);
        from = end;
    }
    Ok(None)
}

/// What those above can do at most, as far as the bound of Bini et al. looks at it.
#[derive(Default)]
struct Carried {
    /// ΣU rounded up, saturating.
    utilisation: u64,
    /// ΣU rounded down.
    least: u128,
    /// Σ C·(1 − U) + U·J, rounded up.
    rest: u64,
}

impl Carried {
    fn add(&mut self, rows: &[Row]) {
        for row in rows {
            let share = row.utilisation_up();
            // Eight parts more than U at most.
            let least = share.saturating_sub(8);
            self.utilisation = self.utilisation.saturating_add(share);
            self.least += u128::from(least);
            let own = row.cost - scaled_down(row.cost, least).min(row.cost);
            self.rest += own + scaled_up(row.jitter, share);
        }
    }

    /// Whether `cost` below all of these is done within `deadline` at the latest.
    fn bounds(&self, cost: u64, deadline: u64) -> bool {
        let idle = u64::MAX - self.utilisation;
        (u128::from(cost + self.rest) << 64) <= u128::from(deadline) * u128::from(idle)
    }

    /// Whether `tasks`, which are all of these, ask for more than the CPU: counted exactly where
    /// rounding leaves it open.
    fn is_overload(&self, tasks: &[Sporadic]) -> bool {
        self.utilisation == u64::MAX && (self.least > u128::from(u64::MAX) || !fits(tasks))
    }
}

/// The least window, if it is within `deadline`; else the first one found beyond.
fn search(
    above: &[Row],
    cost: u64,
    start: u64,
    deadline: u64,
    left: &mut u64,
) -> Result<Result<u64, u64>, Why> {
    let mut window = start;
    loop {
        if window > deadline {
            return Ok(Err(window));
        }
        spend(left, above.len() + 1)?;
        let next = demand(above, cost, window);
        if next == window {
            return Ok(Ok(window));
        }
        window = next;
    }
}

/// Where the search for the least window gets, from a place that is not beyond it, with the steps
/// that are left.
fn further(above: &[Row], cost: u64, start: u64, left: &mut u64) -> u64 {
    let mut window = start;
    while window <= HORIZON && spend(left, above.len() + 1).is_ok() {
        let next = demand(above, cost, window);
        if next == window {
            break;
        }
        window = next;
    }
    window
}
