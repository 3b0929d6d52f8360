//! The longest response of a task under EDF, searched from the last candidate down: what makes
//! Spuri's analysis fast.
//!
//! *What is searched.* Let the task i arrive so that its job is due at d = α + D_i − J_i, in a
//! window that begins with the releases of all others after their jitter. Work that must be done
//! before that job ends, in a window of length x:
//!
//! > w_α(x) = B + (⌊α/T_i⌋ + 1)·C_i + Σ_{above} ⌈(x + J_j)/T_j⌉·C_j
//! >        + Σ_{same, D_j − J_j ≤ d} (⌊min(x − 1 + J_j, d − D_j + J_j)/T_j⌋ + 1)·C_j
//!
//! (`above`: tasks of higher fixed priority, if EDF is only one level of a CPU; the minimum within
//! the quotient is that of the two quotients in the papers.) The job ends at the least x(α) with
//! w_α(x) = x, and the answer is max over α ≥ 0 of r(α) = x(α) − α + J_i, counted from the arrival.
//! From the release it is the same over α ≥ J_i, because x grows with α and jobs with α < J_i are
//! all released at 0.
//!
//! *Why from above.* w_α(x) does not shrink when α or x grows. Suppose z satisfies w_α(z) ≤ z. Then
//! for every α' ≤ α also w_α'(z) ≤ z, hence x(α') ≤ z, hence α' can give more than `best` only if
//! α' + best − J_i < z. So one evaluation at z = α + best − J_i decides: if w = w_α(z) ≤ z, then
//! w_α(w) ≤ w as well, and everything from w − best + J_i up to α is done with. This is the
//! argument of QPA (Zhang and Burns 2009) for one task's response in place of all deadlines, and
//! takes as few evaluations. Only if w > z may α be better; then x(α) is computed from below. It is
//! also the x of all smaller α down to the last step of w at this x, of which the smallest gives
//! the longest response, and the search goes on below it.
//!
//! *Where to begin.* Every z with Σ over all tasks ⌈(z + J)/T⌉·C + B ≤ z bounds all x(α). If U < 1
//! then (ΣC + ΣU·J + B)/(1 − U) is such a z, and so is what the sum makes of it, as often as one
//! likes. If U = 1 it is the synchronous busy period, or there is none (jitter, blocking); then α <
//! H + J_i is enough, H the hyperperiod: w_(α+H)(x + H) ≤ w_α(x) + H, so that x(α + H) − (α + H) ≤
//! x(α) − α.
//!
//! *What a candidate means.* A window that ends before the task's job arrives leaves a gap I, and
//! the real schedule ends that job at e with e − I ≥ x(α): so every candidate is a lower bound of a
//! real response, and the greatest, which is an upper bound of all, has no gap and is reached.

use super::rows::{HORIZON, LONGEST, Row, hyperperiod, scaled_up, spend};
use crate::verdict::Why;
use talea_core::mutate;

/// A level of tasks that EDF orders.
pub(crate) struct Level<'a> {
    /// Tasks above it, whatever orders them.
    above: &'a [Row],
    /// Its tasks by their D − J, which stands (plus something that makes it positive) in
    /// [`Row::deadline`].
    same: &'a [Row],
    /// B.
    blocking: u64,
    end: End,
}

/// Where the search begins.
#[derive(Clone, Copy, Debug)]
enum End {
    /// No x exceeds this.
    Window(u64),
    /// No α needs to be above this plus J_i.
    Cycle(u64),
}

/// The longest response of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Longest {
    /// From release to end.
    pub(crate) release: u64,
    /// From arrival to end.
    pub(crate) arrival: u64,
    /// Where the latter is reached.
    pub(crate) alpha: u64,
    /// The window there.
    pub(crate) window: u64,
}

/// Prepares rows to be the same level: sorts them by D − J. In `order` their indices go along.
pub(crate) fn sort(same: &mut [Row], order: &mut [u64]) {
    let shift = same.iter().map(|row| row.jitter).max().unwrap_or(0);
    for row in &mut *same {
        row.deadline = row.deadline + shift - row.jitter;
    }
    // Few and nearly sorted ones, as a rule, and two lists to be kept alike: insertion.
    for at in 1..same.len() {
        let mut at = at;
        while at > 0 && same[at - 1].deadline > same[at].deadline {
            same.swap(at - 1, at);
            order.swap(at - 1, at);
            at -= 1;
        }
    }
}

impl<'a> Level<'a> {
    /// `utilisation`: ΣU of both, rounded up, `u64::MAX` if it may be 1; it is not above 1. `same`
    /// comes from [`sort`].
    ///
    /// # Errors
    /// [`Why::Limit`].
    pub(crate) fn new(
        above: &'a [Row],
        same: &'a [Row],
        blocking: u64,
        utilisation: u64,
        left: &mut u64,
    ) -> Result<Level<'a>, Why> {
        let all = || above.iter().chain(same);
        let arrived = |window: u64| {
            let last = window - 1;
            all().fold(blocking, |sum, row| {
                sum.wrapping_add(row.work(last.wrapping_add(row.jitter)))
            })
        };
        let has_jitter = all().any(|row| row.jitter != 0);
        if utilisation == u64::MAX && (has_jitter || blocking != 0) {
            let cycle = hyperperiod(all()).filter(|&cycle| cycle <= LONGEST).ok_or(Why::Limit)?;
            let end = End::Cycle(cycle);
            return Ok(Level { above, same, blocking, end });
        }
        let costs: u64 = all().map(|row| row.cost).sum();
        let early: u64 = all().map(|row| scaled_up(row.jitter, row.utilisation_up())).sum();
        let idle = u64::MAX - utilisation;
        let far = u128::from(costs + early + blocking) << 64;
        let mut window = match far.checked_div(idle.into()) {
            Some(far) if far < HORIZON.into() => far as u64 + 1,
            _ => u64::MAX,
        };
        if window == u64::MAX {
            // From below to the end of the busy period itself.
            window = costs;
            loop {
                spend(left, same.len() + above.len())?;
                let next = arrived(window);
                if next > HORIZON {
                    return Err(Why::Limit);
                }
                if next == window {
                    break;
                }
                window = next;
            }
        } else {
            // The first steps down are the large ones.
            for _ in 0..3 {
                spend(left, same.len() + above.len())?;
                window = arrived(window);
            }
        }
        Ok(Level { above, same, blocking, end: End::Window(window) })
    }

    /// w_α(x) of the task at `at`, whose own share and B are `own`, for a due date before which the
    /// first `count` tasks can have jobs.
    #[inline]
    fn work(&self, at: usize, count: usize, own: u64, due: u64, window: u64) -> u64 {
        let last = window - 1;
        let urgent =
            |sum: u64, row: &Row| sum.wrapping_add(row.work(last.wrapping_add(row.jitter)));
        let term = |sum: u64, row: &Row| {
            let latest = last.wrapping_add(row.jitter).min(due.wrapping_sub(row.deadline));
            sum.wrapping_add(row.work(latest))
        };
        let sum = mutate!("analysis-edf-in-fp", self.above.iter(), self.above[..0].iter())
            .fold(own, urgent);
        let sum = self.same[..at.min(count)].iter().fold(sum, term);
        self.same.get(at + 1..count).unwrap_or(&[]).iter().fold(sum, term)
    }

    /// The least x with w_α(x) = x; `from` is not above it.
    #[inline]
    fn window(
        &self,
        at: usize,
        count: usize,
        own: u64,
        due: u64,
        from: u64,
        left: &mut u64,
    ) -> Result<u64, Why> {
        let mut window = from;
        loop {
            spend(left, self.above.len() + count)?;
            let next = self.work(at, count, own, due, window);
            if next == window {
                return Ok(window);
            }
            if next > HORIZON {
                return Err(Why::Limit);
            }
            window = next;
        }
    }

    /// The least due date from which on w is what it is at `due`, for this window.
    fn step(&self, at: usize, count: usize, due: u64, window: u64) -> u64 {
        let mut step = 0;
        for (other, row) in self.same[..count].iter().enumerate() {
            let latest = due - row.deadline;
            let latest = if other == at { latest } else { latest.min(window - 1 + row.jitter) };
            step = step.max(row.quotient(latest) * row.period + row.deadline);
        }
        step
    }

    /// The longest response of the task at `at`.
    ///
    /// # Errors
    /// [`Why::Limit`].
    pub(crate) fn longest(&self, at: usize, left: &mut u64) -> Result<Longest, Why> {
        let row = &self.same[at];
        // The shortest window, of α = 0: at least a job of each that can have one, and of each
        // above.
        let count = self.counted(self.same.len(), row.deadline);
        let first: u64 = self.above.iter().chain(&self.same[..count]).map(|row| row.cost).sum();
        let own = self.blocking + row.cost;
        let least = self.window(at, count, own, row.deadline, self.blocking + first, left)?;
        let start = |found: &Longest| match self.end {
            End::Window(end) => (end + row.jitter).checked_sub(found.arrival + 1),
            End::Cycle(all) => Some(all + row.jitter - 1),
        };
        if row.jitter == 0 {
            let mut found = Longest { release: 0, arrival: least, alpha: 0, window: least };
            self.search(at, (start(&found), 0), least, &mut found, left)?;
            return Ok(Longest { release: found.arrival, ..found });
        }
        // Over α ≥ J_i, then over the rest.
        let due = row.jitter + row.deadline;
        let count = self.counted(self.same.len(), due);
        let window =
            self.window(at, count, self.blocking + row.work(row.jitter), due, least, left)?;
        let mut found = Longest { release: 0, arrival: window, alpha: row.jitter, window };
        self.search(at, (start(&found), row.jitter), least, &mut found, left)?;
        found.release = found.arrival;
        if least + row.jitter > found.arrival {
            found = Longest { arrival: least + row.jitter, alpha: 0, window: least, ..found };
        }
        self.search(at, (Some(row.jitter - 1), 0), least, &mut found, left)?;
        Ok(found)
    }

    /// How many of the first `count` tasks can have jobs that are due by then.
    #[inline]
    fn counted(&self, count: usize, due: u64) -> usize {
        let later = self.same[..count].iter().rev().take_while(|row| row.deadline > due);
        count - later.count()
    }

    /// Improves `found` by what lies between `range.1` and `range.0`; no window is shorter than
    /// `least`.
    fn search(
        &self,
        at: usize,
        range: (Option<u64>, u64),
        least: u64,
        found: &mut Longest,
        left: &mut u64,
    ) -> Result<(), Why> {
        let row = &self.same[at];
        let (mut next, floor) = range;
        let mut count = self.same.len();
        while let Some(alpha) = next.filter(|&alpha| alpha >= floor) {
            let best = found.arrival;
            let due = alpha + row.deadline;
            count = self.counted(count, due);
            let own = self.blocking + mutate!("analysis-edf-own-jobs", row.work(alpha), row.cost);
            spend(left, self.above.len() + count)?;
            // Positive: `best` is at least x(J_i) where α ≥ J_i, and more than J_i below.
            let z = alpha + best - row.jitter;
            if z > HORIZON {
                // Not where the search begins with a window, which bounds z.
                return Err(Why::Limit);
            }
            let work = self.work(at, count, own, due, z);
            if work <= z {
                next = (work + row.jitter).checked_sub(best + mutate!("analysis-edf-sweep", 1, 2));
                continue;
            }
            let window = self.window(at, count, own, due, least.max(own), left)?;
            let smallest =
                self.step(at, count, due, window).saturating_sub(row.deadline).clamp(floor, alpha);
            let response = (window + row.jitter).saturating_sub(smallest);
            if response > best {
                *found = Longest { arrival: response, alpha: smallest, window, ..*found };
            }
            let below = (window + row.jitter)
                .checked_sub(found.arrival + mutate!("analysis-sandwich", 1, 9));
            next = smallest.checked_sub(1).and_then(|next| Some(next.min(below?)));
        }
        Ok(())
    }
}
