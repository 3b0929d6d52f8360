//! Necessary conditions of every table: earliest and latest completion of each job, and the demand
//! between these times.

use super::model::{Infeasible, Job, Problem, minus};
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::mutate;

/// Largest number of jobs for which overloaded windows are searched, which takes O(n²).
const MAX_JOBS: usize = 4_000;

/// Earliest start and latest completion of each job, with regard to its predecessors and
/// successors.
pub(super) struct JobWindows {
    pub(super) earliest: Vec<Span>,
    pub(super) latest: Vec<Span>,
}

/// Returns the reason why no table meets the true deadlines, not even one whose entries continue in
/// the next hyperperiod.
pub(super) fn infeasibility(problem: &Problem) -> Option<Infeasible> {
    match JobWindows::of(
        problem,
        |job| mutate!("offline-cut", job.due, job.deadline),
        problem.overhead_least,
    ) {
        Err((job, end)) => Some(Infeasible::Chain { job, end }),
        Ok(frame) => frame.overloaded_window(problem),
    }
}

/// Returns the least CPU time of job `at`.
pub(super) fn min_cost(problem: &Problem, at: usize, overhead: Span) -> Span {
    let shortest =
        problem.jobs[at].choices.iter().map(|choice| choice.cost).min().expect("well formed");
    shortest + overhead
}

impl JobWindows {
    /// Propagates starts forwards and completions backwards along the chains, with deadlines `due`
    /// and cost `overhead` per start.
    ///
    /// # Errors
    /// A job that cannot complete in time, and its earliest completion.
    pub(super) fn of(
        problem: &Problem,
        due: impl Fn(&Job) -> Span,
        overhead: Span,
    ) -> Result<JobWindows, (usize, Span)> {
        let jobs = &problem.jobs;
        let least = |at| min_cost(problem, at, overhead);
        let mut earliest: Vec<Span> = Vec::with_capacity(jobs.len());
        for (at, job) in jobs.iter().enumerate() {
            let ready = job.predecessors.iter().map(|&before| earliest[before] + least(before));
            let begin = ready.fold(job.release, Ord::max);
            let end = begin + least(at);
            if end > due(job) {
                return Err((at, end));
            }
            earliest.push(begin);
        }
        let mut latest: Vec<Span> = jobs.iter().map(due).collect();
        for at in (0..jobs.len()).rev() {
            // A job that can complete in time alone leaves room for its predecessors.
            let begun = minus(latest[at], least(at));
            for &before in &jobs[at].predecessors {
                latest[before] = latest[before].min(begun);
            }
        }
        Ok(JobWindows { earliest, latest })
    }

    /// Returns a window whose demand exceeds the capacity of all CPUs. `None` if there is no such
    /// window, or if the problem has more than [`MAX_JOBS`] jobs.
    fn overloaded_window(&self, problem: &Problem) -> Option<Infeasible> {
        let jobs = problem.jobs.len();
        if jobs > MAX_JOBS {
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
                need += u128::from(min_cost(problem, at, problem.overhead_least).as_ns());
                let to = mutate!("offline-window", self.latest[at], self.earliest[at]);
                if need > u128::from(problem.cpus) * u128::from(minus(to, from).as_ns()) {
                    return Some(Infeasible::Window { from, to, need });
                }
            }
        }
        None
    }
}
