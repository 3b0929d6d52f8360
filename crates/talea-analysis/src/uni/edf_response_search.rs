//! Search for the longest response of a task under EDF, from the last candidate downwards. This
//! order makes Spuri's analysis fast.
//!
//! *Search space.* Let the job of task i be due at d = α + D_i − J_i, in a window that begins with
//! the releases of all other tasks after their jitter. In a window of length x, the work before the
//! completion of the job is:
//!
//! > w_α(x) = B + (⌊α/T_i⌋ + 1)·C_i + Σ_{above} ⌈(x + J_j)/T_j⌉·C_j
//! >        + Σ_{same, D_j − J_j ≤ d} (⌊min(x − 1 + J_j, d − D_j + J_j)/T_j⌋ + 1)·C_j
//!
//! The list `above` has the tasks of higher fixed priority, if EDF is only one level of a CPU. The
//! minimum within the quotient is that of the two quotients in the papers. The job completes at the
//! least x(α) with w_α(x) = x. The result is max over α ≥ 0 of r(α) = x(α) − α + J_i, counted from
//! the arrival. From the release the result is the same over α ≥ J_i, because x grows with α and
//! jobs with α < J_i are all released at 0.
//!
//! *Order of the search.* w_α(x) is monotonic in α and in x. Suppose z satisfies w_α(z) ≤ z. Then
//! for every α' ≤ α also w_α'(z) ≤ z, hence x(α') ≤ z. So α' can exceed `best` only if α' + best −
//! J_i < z, and one evaluation at z = α + best − J_i decides. If w = w_α(z) ≤ z, then w_α(w) ≤ w as
//! well, and all candidates from w − best + J_i up to α are finished. This is the argument of QPA
//! (Zhang and Burns 2009) for one task's response instead of all deadlines, and needs as few
//! evaluations.
//!
//! Only if w > z can α be better, and the search computes x(α) from below. The value x(α) is also
//! the x of all smaller α down to the last step of w at this x. The smallest of these α gives the
//! longest response, and the search continues below it.
//!
//! *Start of the search.* Every z with Σ over all tasks ⌈(z + J)/T⌉·C + B ≤ z bounds all x(α). If U
//! < 1 then z = (ΣC + ΣU·J + B)/(1 − U) satisfies this, and repeated evaluation of the sum yields
//! smaller values. If U = 1 the synchronous busy period satisfies this, or no z does (jitter,
//! blocking). If no z does, α < H + J_i is enough, with the hyperperiod H: w_(α+H)(x + H) ≤ w_α(x)
//! + H, so that x(α + H) − (α + H) ≤ x(α) − α.
//!
//! *Attainment.* A window that ends before the task's job arrives leaves a gap I, and the real
//! schedule completes that job at e with e − I ≥ x(α). So every candidate is a lower bound of a
//! real response. The greatest candidate, which is an upper bound of all, has no gap and is
//! attained.

use super::prepared::{
    HORIZON_NS, MAX_PARAMETER_NS, PreparedTask, count_steps, hyperperiod, scaled_up,
};
use crate::verdict::Inconclusive;
use talea_core::mutate;

/// Level of tasks that EDF orders, with the more urgent tasks.
pub(crate) struct EdfLevel<'a> {
    /// Tasks above the level, in any order.
    above: &'a [PreparedTask],
    /// Tasks of the level, sorted by D − J. [`PreparedTask::deadline`] holds D − J plus a constant
    /// that makes it positive.
    same: &'a [PreparedTask],
    /// Blocking B.
    blocking: u64,
    end: SearchStart,
}

/// Start of the search.
#[derive(Clone, Copy, Debug)]
enum SearchStart {
    /// Upper bound of every x.
    Window(u64),
    /// Upper bound of every relevant α − J_i.
    Cycle(u64),
}

/// Longest response of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongestResponse {
    /// Time from release to completion.
    pub(crate) release: u64,
    /// Time from arrival to completion.
    pub(crate) arrival: u64,
    /// Value of α that attains the response.
    pub(crate) alpha: u64,
    /// Window x(α).
    pub(crate) window: u64,
}

/// Prepares `same` as a level: sorts the rows by D − J, and `order` in the same way.
pub(crate) fn sort_by_deadline(same: &mut [PreparedTask], order: &mut [u64]) {
    let shift = same.iter().map(|row| row.jitter).max().unwrap_or(0);
    for row in &mut *same {
        row.deadline = row.deadline + shift - row.jitter;
    }
    // Insertion sort: usually few and nearly sorted rows, and two lists to keep consistent.
    for at in 1..same.len() {
        let mut at = at;
        while at > 0 && same[at - 1].deadline > same[at].deadline {
            same.swap(at - 1, at);
            order.swap(at - 1, at);
            at -= 1;
        }
    }
}

impl<'a> EdfLevel<'a> {
    /// Creates a level. `utilisation` is ΣU of both lists, at most 1, rounded up; `u64::MAX` if the
    /// sum may be 1. `same` comes from [`sort_by_deadline`].
    ///
    /// # Errors
    /// [`Inconclusive::Limit`].
    pub(crate) fn new(
        above: &'a [PreparedTask],
        same: &'a [PreparedTask],
        blocking: u64,
        utilisation: u64,
        left: &mut u64,
    ) -> Result<EdfLevel<'a>, Inconclusive> {
        let all = || above.iter().chain(same);
        let arrived = |window: u64| {
            let last = window - 1;
            all().fold(blocking, |sum, row| {
                sum.wrapping_add(row.work(last.wrapping_add(row.jitter)))
            })
        };
        let has_jitter = all().any(|row| row.jitter != 0);
        if utilisation == u64::MAX && (has_jitter || blocking != 0) {
            let cycle = hyperperiod(all())
                .filter(|&cycle| cycle <= MAX_PARAMETER_NS)
                .ok_or(Inconclusive::Limit)?;
            let end = SearchStart::Cycle(cycle);
            return Ok(EdfLevel { above, same, blocking, end });
        }
        let costs: u64 = all().map(|row| row.cost).sum();
        let early: u64 = all().map(|row| scaled_up(row.jitter, row.utilisation_up())).sum();
        let idle = u64::MAX - utilisation;
        let far = u128::from(costs + early + blocking) << 64;
        let mut window = match far.checked_div(idle.into()) {
            Some(far) if far < HORIZON_NS.into() => far as u64 + 1,
            _ => u64::MAX,
        };
        if window == u64::MAX {
            // Iterates from below to the end of the busy period itself.
            window = costs;
            loop {
                count_steps(left, same.len() + above.len())?;
                let next = arrived(window);
                if next > HORIZON_NS {
                    return Err(Inconclusive::Limit);
                }
                if next == window {
                    break;
                }
                window = next;
            }
        } else {
            // The first steps down are the largest.
            for _ in 0..3 {
                count_steps(left, same.len() + above.len())?;
                window = arrived(window);
            }
        }
        Ok(EdfLevel { above, same, blocking, end: SearchStart::Window(window) })
    }

    /// Returns w_α(x) of the task at `at`, with its own part and B in `own`. Only the first `count`
    /// tasks can have jobs that are due by `due`.
    #[inline]
    fn work(&self, at: usize, count: usize, own: u64, due: u64, window: u64) -> u64 {
        let last = window - 1;
        let urgent = |sum: u64, row: &PreparedTask| {
            sum.wrapping_add(row.work(last.wrapping_add(row.jitter)))
        };
        let term = |sum: u64, row: &PreparedTask| {
            let latest = last.wrapping_add(row.jitter).min(due.wrapping_sub(row.deadline));
            sum.wrapping_add(row.work(latest))
        };
        let sum = mutate!("analysis-edf-in-fp", self.above.iter(), self.above[..0].iter())
            .fold(own, urgent);
        let sum = self.same[..at.min(count)].iter().fold(sum, term);
        self.same.get(at + 1..count).unwrap_or(&[]).iter().fold(sum, term)
    }

    /// Returns the least x with w_α(x) = x. `from` is not above it.
    #[inline]
    fn window(
        &self,
        at: usize,
        count: usize,
        own: u64,
        due: u64,
        from: u64,
        left: &mut u64,
    ) -> Result<u64, Inconclusive> {
        let mut window = from;
        loop {
            count_steps(left, self.above.len() + count)?;
            let next = self.work(at, count, own, due, window);
            if next == window {
                return Ok(window);
            }
            if next > HORIZON_NS {
                return Err(Inconclusive::Limit);
            }
            window = next;
        }
    }

    /// Returns the least due date from which on w equals its value at `due`, for this window.
    fn step(&self, at: usize, count: usize, due: u64, window: u64) -> u64 {
        let mut step = 0;
        for (other, row) in self.same[..count].iter().enumerate() {
            let latest = due - row.deadline;
            let latest = if other == at { latest } else { latest.min(window - 1 + row.jitter) };
            step = step.max(row.quotient(latest) * row.period + row.deadline);
        }
        step
    }

    /// Returns the longest response of the task at `at`.
    ///
    /// # Errors
    /// [`Inconclusive::Limit`].
    pub(crate) fn longest(
        &self,
        at: usize,
        left: &mut u64,
    ) -> Result<LongestResponse, Inconclusive> {
        let row = &self.same[at];
        // The shortest window, of α = 0, has at least one job of each task that can have one, and
        // of each task above.
        let count = self.counted(self.same.len(), row.deadline);
        let first: u64 = self.above.iter().chain(&self.same[..count]).map(|row| row.cost).sum();
        let own = self.blocking + row.cost;
        let least = self.window(at, count, own, row.deadline, self.blocking + first, left)?;
        let start = |found: &LongestResponse| match self.end {
            SearchStart::Window(end) => (end + row.jitter).checked_sub(found.arrival + 1),
            SearchStart::Cycle(all) => Some(all + row.jitter - 1),
        };
        if row.jitter == 0 {
            let mut found = LongestResponse { release: 0, arrival: least, alpha: 0, window: least };
            self.search(at, (start(&found), 0), least, &mut found, left)?;
            return Ok(LongestResponse { release: found.arrival, ..found });
        }
        // Over α ≥ J_i, then over the rest.
        let due = row.jitter + row.deadline;
        let count = self.counted(self.same.len(), due);
        let window =
            self.window(at, count, self.blocking + row.work(row.jitter), due, least, left)?;
        let mut found = LongestResponse { release: 0, arrival: window, alpha: row.jitter, window };
        self.search(at, (start(&found), row.jitter), least, &mut found, left)?;
        found.release = found.arrival;
        if least + row.jitter > found.arrival {
            found =
                LongestResponse { arrival: least + row.jitter, alpha: 0, window: least, ..found };
        }
        self.search(at, (Some(row.jitter - 1), 0), least, &mut found, left)?;
        Ok(found)
    }

    /// Returns how many of the first `count` tasks can have jobs due by `due`.
    #[inline]
    fn counted(&self, count: usize, due: u64) -> usize {
        let later = self.same[..count].iter().rev().take_while(|row| row.deadline > due);
        count - later.count()
    }

    /// Improves `found` by the candidates between `range.1` and `range.0`. `least` is at most the
    /// length of any window.
    fn search(
        &self,
        at: usize,
        range: (Option<u64>, u64),
        least: u64,
        found: &mut LongestResponse,
        left: &mut u64,
    ) -> Result<(), Inconclusive> {
        let row = &self.same[at];
        let (mut next, floor) = range;
        let mut count = self.same.len();
        while let Some(alpha) = next.filter(|&alpha| alpha >= floor) {
            let best = found.arrival;
            let due = alpha + row.deadline;
            count = self.counted(count, due);
            let own = self.blocking + mutate!("analysis-edf-own-jobs", row.work(alpha), row.cost);
            count_steps(left, self.above.len() + count)?;
            // Positive: `best` is at least x(J_i) where α ≥ J_i, and more than J_i below.
            let z = alpha + best - row.jitter;
            if z > HORIZON_NS {
                // Impossible if the search starts with a window, which bounds z.
                return Err(Inconclusive::Limit);
            }
            let work = self.work(at, count, own, due, z);
            if work <= z {
                next = (work + row.jitter)
                    .checked_sub(best + mutate!("analysis-edf-response-search", 1, 2));
                continue;
            }
            let window = self.window(at, count, own, due, least.max(own), left)?;
            let smallest =
                self.step(at, count, due, window).saturating_sub(row.deadline).clamp(floor, alpha);
            let response = (window + row.jitter).saturating_sub(smallest);
            if response > best {
                *found = LongestResponse { arrival: response, alpha: smallest, window, ..*found };
            }
            let below = (window + row.jitter)
                .checked_sub(found.arrival + mutate!("analysis-sandwich", 1, 9));
            next = smallest.checked_sub(1).and_then(|next| Some(next.min(below?)));
        }
        Ok(())
    }
}
