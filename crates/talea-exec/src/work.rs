//! What jobs do.

use std::sync::atomic::{AtomicBool, Ordering};
use talea_core::Work;
use talea_os::clock;

/// One job of a task, as its worker gets it; of a job that does something on its way, one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Which of its task, from 0.
    pub number: u64,
    /// In which version it is done.
    pub version: u32,
    /// What it, or this piece of it, costs, says its load.
    pub cost: Work,
}

/// What the jobs of one task do; called for each piece. The flag is raised when the run is over: a
/// job that looks at it may end early.
pub type Body<'a> = Box<dyn FnMut(&Job, &AtomicBool) + Send + 'a>;

/// Spends what each job costs: polls the thread's own CPU clock until that much is used. What takes
/// the CPU away costs the job nothing; what the job itself does beside polling is part of it.
pub fn spender<'a>() -> Body<'a> {
    Box::new(|job, over| {
        let end = clock::thread_cpu_time().checked_add(job.cost).unwrap_or(Work::from_ns(u64::MAX));
        while clock::thread_cpu_time() < end && !over.load(Ordering::Relaxed) {}
    })
}

/// How fast a CPU counts: what a fixed number of rounds costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Rounds in a millisecond of CPU time.
    pub rounds: u64,
}

/// Rounds between two looks at the flag: some ten microseconds.
const CHUNK: u64 = 16_384;
/// Rounds of a sample: about a millisecond where a round is one cycle of 2 GHz.
const SAMPLE: u64 = 2_000_000;
const SAMPLES: usize = 15;
const MILLISECOND: u64 = 1_000_000;

impl Pace {
    /// Of the CPU that the caller runs on: the median of some samples of a millisecond each.
    pub fn measure() -> Pace {
        let mut samples: Vec<u64> = (0..SAMPLES)
            .map(|_| {
                let before = clock::thread_cpu_time();
                count(SAMPLE, &AtomicBool::new(false));
                let spent = clock::thread_cpu_time().checked_sub(before).unwrap_or(Work::ZERO);
                spent.as_ns().max(1)
            })
            .collect();
        samples.sort_unstable();
        Pace { rounds: (SAMPLE * MILLISECOND / samples[SAMPLES / 2]).max(1) }
    }

    /// How many rounds cost so much.
    fn rounds_of(self, work: Work) -> u64 {
        let rounds = u128::from(work.as_ns()) * u128::from(self.rounds) / u128::from(MILLISECOND);
        u64::try_from(rounds).unwrap_or(u64::MAX)
    }
}

/// Does as many rounds as cost what the job costs where `pace` was measured: how long it really
/// takes, the machine decides, as with the code of an application.
pub fn counter<'a>(pace: Pace) -> Body<'a> {
    Box::new(move |job, over| count(pace.rounds_of(job.cost), over))
}

fn count(rounds: u64, over: &AtomicBool) {
    let mut left = rounds;
    while left > 0 && !over.load(Ordering::Relaxed) {
        let chunk = left.min(CHUNK);
        for round in 0..chunk {
            std::hint::black_box(round);
        }
        left -= chunk;
    }
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
            spender()(&Job { number, version: 0, cost }, &AtomicBool::new(false));
            let spent = clock::thread_cpu_time().checked_sub(before).expect("a clock that goes on");
            assert!(spent >= cost, "{spent}");
            spent
        });
        let least = least.min().expect("some");
        assert!(least < cost + cost, "{least}");
    }

    #[test]
    fn s21_spent_jobs_cost_what_was_asked_to_three_thousandths() {
        let mut body = spender();
        for ms in [1, 5, 20] {
            let cost = Work::from_ns(ms * 1_000_000);
            let mut off: Vec<u64> = (0..9)
                .map(|number| {
                    let before = clock::thread_cpu_time();
                    body(&Job { number, version: 0, cost }, &AtomicBool::new(false));
                    let spent =
                        clock::thread_cpu_time().checked_sub(before).expect("a clock that goes on");
                    spent.checked_sub(cost).expect("it spends all of it").as_ns()
                })
                .collect();
            off.sort_unstable();
            // The best third: a stop of the machine between two looks at the clock counts as spent.
            assert!(off[2] <= cost.as_ns() * 3 / 1_000, "{off:?} ns beyond {cost}");
        }
    }

    #[test]
    fn s21_the_median_of_counted_jobs_costs_what_was_asked() {
        let cost = Work::from_ns(5_000_000);
        // A machine that changes its speed between the measurement and the jobs shows that by
        // itself: measured anew then, for some seconds at most. A pace that is wrong is wrong each
        // time.
        let differs = |pace: Pace| {
            let mut body = counter(pace);
            let mut spent: Vec<u64> = (0..9)
                .map(|number| {
                    let before = clock::thread_cpu_time();
                    body(&Job { number, version: 0, cost }, &AtomicBool::new(false));
                    clock::thread_cpu_time()
                        .checked_sub(before)
                        .expect("a clock that goes on")
                        .as_ns()
                })
                .collect();
            spent.sort_unstable();
            spent[4].abs_diff(cost.as_ns())
        };
        let tries = (0..60).map(|_| differs(Pace::measure()));
        let near = tries.filter(|differs| *differs < cost.as_ns() / 50).take(3).count();
        assert_eq!(near, 3, "hardly ever within a fiftieth of {cost}");
    }

    #[test]
    fn rounds_follow_the_pace_and_no_job_is_too_long_to_be_counted() {
        let pace = Pace { rounds: 1_000_000 };
        assert_eq!(pace.rounds_of(Work::from_ns(1_500_000)), 1_500_000);
        assert_eq!(pace.rounds_of(Work::ZERO), 0);
        assert_eq!(Pace { rounds: u64::MAX }.rounds_of(Work::from_ns(u64::MAX)), u64::MAX);
        count(u64::MAX, &AtomicBool::new(true));
    }

    #[test]
    fn a_run_that_is_over_is_not_worked_for() {
        let before = clock::thread_cpu_time();
        // Beyond what any clock shows.
        let cost = Work::from_ns(u64::MAX);
        spender()(&Job { number: 0, version: 0, cost }, &AtomicBool::new(true));
        let spent = clock::thread_cpu_time().checked_sub(before).expect("a clock that goes on");
        assert!(spent < Work::from_ns(cost.as_ns() / 2));
    }
}
