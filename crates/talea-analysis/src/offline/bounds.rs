//! What every table must keep to: how early a job can end, how late it may, and how much lies between.

use super::{Impossible, Problem, minus};
use alloc::vec::Vec;
use talea_core::Span;

/// Problems with more jobs are not searched for overloaded windows, which takes O(n²).
const MOST_JOBS: usize = 4_000;

/// Of each job, when it can begin and by when it must have ended for the sake of those before and behind it.
pub(super) struct Frame {
    pub(super) earliest: Vec<Span>,
    pub(super) latest: Vec<Span>,
}

/// The least CPU time that job `at` takes.
pub(super) fn least(problem: &Problem, at: usize) -> Span {
    let shortest = problem.jobs[at].choices.iter().map(|choice| choice.cost).min().expect("well formed");
    shortest + problem.overhead
}

impl Frame {
    /// Passes begins forwards and ends backwards along the chains.
    pub(super) fn of(problem: &Problem) -> Result<Frame, Impossible> {
        let jobs = &problem.jobs;
        let mut earliest: Vec<Span> = Vec::with_capacity(jobs.len());
        for (at, job) in jobs.iter().enumerate() {
            let ready = job.after.iter().map(|&before| earliest[before] + least(problem, before));
            let begin = ready.fold(job.release, Ord::max);
            let end = begin + least(problem, at);
            if end > job.deadline {
                return Err(Impossible::Chain { job: at, end });
            }
            earliest.push(begin);
        }
        let mut latest: Vec<Span> = jobs.iter().map(|job| job.deadline).collect();
        for at in (0..jobs.len()).rev() {
            // Whoever can end in time alone leaves room for those before it.
            let begun = latest[at].checked_sub(least(problem, at)).expect("it fits its chain");
            for &before in &jobs[at].after {
                latest[before] = latest[before].min(begun);
            }
        }
        Ok(Frame { earliest, latest })
    }

    /// A window in which more must be computed than all CPUs can.
    pub(super) fn overloaded_window(&self, problem: &Problem) -> Option<Impossible> {
        let jobs = problem.jobs.len();
        if jobs > MOST_JOBS {
            return None;
        }
        let mut by_end: Vec<usize> = (0..jobs).collect();
        by_end.sort_by_key(|&at| self.latest[at]);
        let mut begins = self.earliest.clone();
        begins.sort_unstable();
        begins.dedup();
        for from in begins {
            let mut need = 0u128;
            for &at in by_end.iter().filter(|&&at| self.earliest[at] >= from) {
                need += u128::from(least(problem, at).as_ns());
                let to = self.latest[at];
                if need > u128::from(problem.cpus) * u128::from(minus(to, from).as_ns()) {
                    return Some(Impossible::Window { from, to, need });
                }
            }
        }
        None
    }
}
