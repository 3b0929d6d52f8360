//! What every table must keep to: how early a job can end, how late it may, and how much lies
//! between.

use super::{Impossible, Job, Problem, minus};
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::mutate;

/// Problems with more jobs are not searched for overloaded windows, which takes O(n²).
const MOST_JOBS: usize = 4_000;

/// Of each job, when it can begin and by when it must have ended for the sake of those before and
/// behind it.
pub(super) struct Frame {
    pub(super) earliest: Vec<Span>,
    pub(super) latest: Vec<Span>,
}

/// Why no table at all keeps to when jobs are really due, also one whose entries go on in the next
/// hyperperiod.
pub(super) fn impossible(problem: &Problem) -> Option<Impossible> {
    match Frame::of(
        problem,
        |job| mutate!("offline-cut", job.due, job.deadline),
        problem.overhead_least,
    ) {
        Err((job, end)) => Some(Impossible::Chain { job, end }),
        Ok(frame) => frame.overloaded_window(problem),
    }
}

/// The least CPU time that job `at` takes.
pub(super) fn least(problem: &Problem, at: usize, overhead: Span) -> Span {
    let shortest =
        problem.jobs[at].choices.iter().map(|choice| choice.cost).min().expect("well formed");
    shortest + overhead
}

impl Frame {
    /// Passes begins forwards and ends backwards along the chains, where `due` says when jobs are
    /// and beginning one costs `overhead`. `Err`: a job that can't end in time, and when it can.
    pub(super) fn of(
        problem: &Problem,
        due: impl Fn(&Job) -> Span,
        overhead: Span,
    ) -> Result<Frame, (usize, Span)> {
        let jobs = &problem.jobs;
        let least = |at| least(problem, at, overhead);
        let mut earliest: Vec<Span> = Vec::with_capacity(jobs.len());
        for (at, job) in jobs.iter().enumerate() {
            let ready = job.after.iter().map(|&before| earliest[before] + least(before));
            let begin = ready.fold(job.release, Ord::max);
            let end = begin + least(at);
            if end > due(job) {
                return Err((at, end));
            }
            earliest.push(begin);
        }
        let mut latest: Vec<Span> = jobs.iter().map(due).collect();
        for at in (0..jobs.len()).rev() {
            // Whoever can end in time alone leaves room for those before it.
            let begun = minus(latest[at], least(at));
            for &before in &jobs[at].after {
                latest[before] = latest[before].min(begun);
            }
        }
        Ok(Frame { earliest, latest })
    }

    /// A window in which more must be computed than all CPUs can.
    fn overloaded_window(&self, problem: &Problem) -> Option<Impossible> {
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
                need += u128::from(least(problem, at, problem.overhead_least).as_ns());
                let to = self.latest[at];
                if need > u128::from(problem.cpus) * u128::from(minus(to, from).as_ns()) {
                    return Some(Impossible::Window { from, to, need });
                }
            }
        }
        None
    }
}
