//! What jobs do.

use std::sync::atomic::{AtomicBool, Ordering};
use talea_core::Work;
use talea_os::clock;

/// One job of a task, as its worker gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Which of its task, from 0.
    pub number: u64,
    /// What it costs, says its load.
    pub cost: Work,
}

/// What the jobs of one task do. The flag is raised when the run is over: a job that looks at it may end early.
pub type Body<'a> = Box<dyn FnMut(&Job, &AtomicBool) + Send + 'a>;

/// Spends what each job costs: polls the thread's own CPU clock until that much is used. What takes the CPU away costs
/// the job nothing; what the job itself does beside polling is part of it.
pub fn spender<'a>() -> Body<'a> {
    Box::new(|job, over| {
        let end = clock::thread_cpu_time().checked_add(job.cost).unwrap_or(Work::from_ns(u64::MAX));
        while clock::thread_cpu_time() < end && !over.load(Ordering::Relaxed) {}
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spender_spends_what_the_job_costs_and_little_more() {
        let cost = Work::from_ns(2_000_000);
        // A stop of the whole machine may fall between two looks at the clock, but not every time.
        let least = (0..20).map(|number| {
            let before = clock::thread_cpu_time();
            spender()(&Job { number, cost }, &AtomicBool::new(false));
            let spent = clock::thread_cpu_time().checked_sub(before).expect("a clock that goes on");
            assert!(spent >= cost, "{spent}");
            spent
        });
        let least = least.min().expect("some");
        assert!(least < cost + cost, "{least}");
    }

    #[test]
    fn a_run_that_is_over_is_not_worked_for() {
        let before = clock::thread_cpu_time();
        // Beyond what any clock shows.
        let cost = Work::from_ns(u64::MAX);
        spender()(&Job { number: 0, cost }, &AtomicBool::new(true));
        let spent = clock::thread_cpu_time().checked_sub(before).expect("a clock that goes on");
        assert!(spent < Work::from_ns(cost.as_ns() / 2));
    }
}
