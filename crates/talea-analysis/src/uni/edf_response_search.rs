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
//! *Sections that no other job preempts.* Let the last q_i nanoseconds of a job be such a section.
//! Once it has begun, the job completes, so that x is the end of the first nanosecond of the
//! section: the task's own part of w is (⌊α/T_i⌋ + 1)·C_i − (q_i − 1), and r(α) = x(α) + (q_i − 1)
//! − α + J_i. A job with a later deadline that has begun a section of length q a nanosecond before
//! the window adds the blocking q − 1: B(α) = max {q_k − 1 : D_k − J_k > d}. A task k whose D_k −
//! J_k is not above d can block as well, but then none of its other jobs is due by d, and C_k ≥ q_k
//! is more. For the same reason w stays monotonic in α: where B(α) decreases, a job of C_k ≥ q_k
//! joins the sum. Hence the whole argument above holds with `ahead` = J_i + q_i − 1 in place of
//! J_i. The start of the search needs no B(α): the jobs of the blocking task are in the sum over
//! all tasks, and not in w_α. With q_i = C_i this is the analysis of George, Rivierre and Spuri
//! (1996), with q_i = 1 that of Spuri (1996).
//!
//! *Attainment.* A window that ends before the task's job arrives leaves a gap I, and the real
//! schedule completes that job at e with e − I ≥ x(α). So every candidate is a lower bound of a
//! real response. The greatest candidate, which is an upper bound of all, has no gap and is
//! attained.

use super::Bound;
use super::prepared::{
    HORIZON_NS, MAX_PARAMETER_NS, PreparedTask, count_steps, hyperperiod, scaled_up,
};
use crate::verdict::Inconclusive;
use talea_core::{Span, mutate};

/// Level of tasks that EDF orders, with the more urgent tasks.
pub(crate) struct EdfLevel<'a> {
    /// Tasks above the level, in any order.
    above: &'a [PreparedTask],
    /// Tasks of the level, sorted by D − J. [`PreparedTask::deadline`] holds D − J plus a constant
    /// that makes it positive.
    same: &'a [PreparedTask],
    /// Blocking B.
    blocking: u64,
    sections: LevelSections<'a>,
    end: SearchStart,
}

/// Sections of a level's jobs that no other job of the level preempts, in the order of the level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelSections<'a> {
    /// Length of the last section of each task's jobs less a nanosecond; empty if all are
    /// preemptive.
    pub(crate) tails: &'a [u64],
    /// Blocking by the longest section of the tasks from this index on, for each index up to the
    /// number of tasks; empty if all tasks are preemptive.
    pub(crate) longest_from: &'a [u64],
}

impl LevelSections<'_> {
    /// Sections of preemptive tasks.
    pub(crate) const NONE: LevelSections<'static> = LevelSections { tails: &[], longest_from: &[] };

    #[inline]
    fn tail(&self, at: usize) -> u64 {
        self.tails.get(at).copied().unwrap_or(0)
    }

    /// Returns the blocking by a job that is due later than all jobs of the first `count` tasks.
    #[inline]
    fn blocking(&self, count: usize) -> u64 {
        self.longest_from.get(count).copied().unwrap_or(0)
    }
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
    /// Completion in the window: x(α), plus the rest of the last section.
    pub(crate) completion: u64,
}

impl LongestResponse {
    pub(crate) fn bound(&self) -> Bound {
        Bound { release: Span::from_ns(self.release), arrival: Span::from_ns(self.arrival) }
    }
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
        sections: LevelSections<'a>,
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
            return Ok(EdfLevel { above, same, blocking, sections, end });
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
        Ok(EdfLevel { above, same, blocking, sections, end: SearchStart::Window(window) })
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
        let tail = self.sections.tail(at);
        // The shortest window, of α = 0, has at least one job of each task that can have one, and
        // of each task above.
        let count = self.counted(self.same.len(), row.deadline);
        let blocking = self.blocking + self.sections.blocking(count);
        let first: u64 = self.above.iter().chain(&self.same[..count]).map(|row| row.cost).sum();
        let own = blocking + row.cost - tail;
        let least = self.window(at, count, own, row.deadline, blocking + first - tail, left)?;
        let start = |found: &LongestResponse| match self.end {
            SearchStart::Window(end) => (end + row.jitter + tail).checked_sub(found.arrival + 1),
            SearchStart::Cycle(all) => Some(all + row.jitter - 1),
        };
        let completion = least + tail;
        if row.jitter == 0 {
            let mut found =
                LongestResponse { release: 0, arrival: completion, alpha: 0, completion };
            self.search(at, (start(&found), 0), least, &mut found, left)?;
            return Ok(LongestResponse { release: found.arrival, ..found });
        }
        // Over α ≥ J_i, then over the rest.
        let due = row.jitter + row.deadline;
        let count = self.counted(self.same.len(), due);
        let own = self.blocking + self.sections.blocking(count) + row.work(row.jitter) - tail;
        let arrival = self.window(at, count, own, due, least, left)? + tail;
        let mut found =
            LongestResponse { release: 0, arrival, alpha: row.jitter, completion: arrival };
        self.search(at, (start(&found), row.jitter), least, &mut found, left)?;
        found.release = found.arrival;
        if completion + row.jitter > found.arrival {
            let arrival = completion + row.jitter;
            found = LongestResponse { arrival, alpha: 0, completion, ..found };
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
        let tail = self.sections.tail(at);
        // Part of a response that is not in x(α) − α.
        let ahead = row.jitter + tail;
        let (mut next, floor) = range;
        let mut count = self.same.len();
        while let Some(alpha) = next.filter(|&alpha| alpha >= floor) {
            let best = found.arrival;
            let due = alpha + row.deadline;
            count = self.counted(count, due);
            let own_jobs = mutate!("analysis-edf-own-jobs", row.work(alpha), row.cost);
            let own = self.blocking + self.sections.blocking(count) + own_jobs - tail;
            count_steps(left, self.above.len() + count)?;
            // Positive: `best` is at least x(J_i) + tail where α ≥ J_i, and more than `ahead`
            // below.
            let z = alpha + best - ahead;
            if z > HORIZON_NS {
                // Impossible if the search starts with a window, which bounds z.
                return Err(Inconclusive::Limit);
            }
            let work = self.work(at, count, own, due, z);
            if work <= z {
                next = (work + ahead)
                    .checked_sub(best + mutate!("analysis-edf-response-search", 1, 2));
                continue;
            }
            let window = self.window(at, count, own, due, least.max(own), left)?;
            let smallest =
                self.step(at, count, due, window).saturating_sub(row.deadline).clamp(floor, alpha);
            let response = (window + ahead).saturating_sub(smallest);
            if response > best {
                let completion = window + tail;
                *found =
                    LongestResponse { arrival: response, alpha: smallest, completion, ..*found };
            }
            let below =
                (window + ahead).checked_sub(found.arrival + mutate!("analysis-sandwich", 1, 9));
            next = smallest.checked_sub(1).and_then(|next| Some(next.min(below?)));
        }
        Ok(())
    }
}
