//! Job bodies: what jobs execute.

use std::sync::atomic::{AtomicBool, Ordering};
use talea_core::{Time, Work};
use talea_os::clock;

/// Job of a task, or one segment of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Number of the job within its task, from 0.
    pub number: u64,
    /// Version of the job.
    pub version: u32,
    /// CPU time of this job or segment in its load.
    pub cost: Work,
    /// Wait for a device, in place of computing: the worker keeps its CPU meanwhile.
    pub(crate) wait: Option<DeviceWait>,
}

/// Wait for a device in which a worker keeps its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceWait {
    /// Run time at which the device completes.
    pub(crate) until: Time,
    /// Whether the worker polls; otherwise it sleeps, and no other worker has the CPU.
    pub(crate) is_spinning: bool,
}

impl Job {
    /// Returns a job that computes.
    pub fn new(number: u64, version: u32, cost: Work) -> Job {
        Job { number, version, cost, wait: None }
    }
}

/// Body of the jobs of one task, called for each segment. The executor sets the flag when the run
/// is over. A job may then end early.
pub type JobBody<'a> = Box<dyn FnMut(&Job, &AtomicBool) + Send + 'a>;

/// Returns a body that consumes the cost of each job by polling the CPU clock of the thread.
///
/// The clock does not advance while another thread has the CPU. The work of the job beside polling
/// counts.
pub fn spender<'a>() -> JobBody<'a> {
    Box::new(|job, over| {
        let end = clock::thread_cpu_time().checked_add(job.cost).unwrap_or(Work::from_ns(u64::MAX));
        while clock::thread_cpu_time() < end && !over.load(Ordering::Relaxed) {}
    })
}

/// Speed of a CPU for [`counter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Rounds per millisecond of CPU time.
    pub rounds_per_ms: u64,
}

/// Rounds between two reads of the flag: some ten microseconds.
const CHUNK_ROUNDS: u64 = 16_384;
/// Rounds of a sample: about a millisecond where a round takes one cycle at 2 GHz.
const SAMPLE_ROUNDS: u64 = 2_000_000;
const SAMPLES: usize = 15;
const NS_PER_MS: u64 = 1_000_000;

impl Calibration {
    /// Measures the calling thread's CPU: the median of some samples of a millisecond each.
    pub fn measure() -> Calibration {
        let mut samples: Vec<u64> = (0..SAMPLES)
            .map(|_| {
                let before = clock::thread_cpu_time();
                count(SAMPLE_ROUNDS, &AtomicBool::new(false));
                let spent = clock::thread_cpu_time().checked_sub(before).unwrap_or(Work::ZERO);
                spent.as_ns().max(1)
            })
            .collect();
        samples.sort_unstable();
        Calibration { rounds_per_ms: (SAMPLE_ROUNDS * NS_PER_MS / samples[SAMPLES / 2]).max(1) }
    }

    /// Returns the number of rounds that cost `work`.
    fn rounds_for(self, work: Work) -> u64 {
        let rounds =
            u128::from(work.as_ns()) * u128::from(self.rounds_per_ms) / u128::from(NS_PER_MS);
        u64::try_from(rounds).unwrap_or(u64::MAX)
    }
}

/// Returns a body that executes as many rounds as cost the job's cost at the speed of `pace`.
///
/// The real length of a job depends on the CPU, as with code of an application.
pub fn counter<'a>(pace: Calibration) -> JobBody<'a> {
    Box::new(move |job, over| count(pace.rounds_for(job.cost), over))
}

fn count(rounds: u64, over: &AtomicBool) {
    let mut left = rounds;
    while left > 0 && !over.load(Ordering::Relaxed) {
        let chunk = left.min(CHUNK_ROUNDS);
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
    fn a_spender_consumes_the_cost_and_little_more() {
        let cost = Work::from_ns(2_000_000);
        // A stall may fall between two reads of the clock, but not every time.
        let least = (0..20).map(|number| {
            let before = clock::thread_cpu_time();
            spender()(&Job::new(number, 0, cost), &AtomicBool::new(false));
            let spent = clock::thread_cpu_time().checked_sub(before).expect("a monotonic clock");
            assert!(spent >= cost, "{spent}");
            spent
        });
        let least = least.min().expect("some");
        assert!(least < cost + cost, "{least}");
    }

    #[test]
    fn s21_spent_jobs_cost_the_request_within_three_thousandths() {
        let mut body = spender();
        for ms in [1, 5, 20] {
            let cost = Work::from_ns(ms * 1_000_000);
            let mut off: Vec<u64> = (0..9)
                .map(|number| {
                    let before = clock::thread_cpu_time();
                    body(&Job::new(number, 0, cost), &AtomicBool::new(false));
                    let spent =
                        clock::thread_cpu_time().checked_sub(before).expect("a monotonic clock");
                    spent.checked_sub(cost).expect("it spends all of it").as_ns()
                })
                .collect();
            off.sort_unstable();
            // The best third: a stall between two reads of the clock counts as consumed.
            assert!(off[2] <= cost.as_ns() * 3 / 1_000, "{off:?} ns beyond {cost}");
        }
    }

    #[test]
    fn s21_the_median_of_counted_jobs_costs_the_request() {
        let cost = Work::from_ns(5_000_000);
        // A CPU that changes its speed between measurement and jobs is measured again, for some
        // seconds at most. A wrong calibration is wrong each time.
        let differs = |pace: Calibration| {
            let mut body = counter(pace);
            let mut spent: Vec<u64> = (0..9)
                .map(|number| {
                    let before = clock::thread_cpu_time();
                    body(&Job::new(number, 0, cost), &AtomicBool::new(false));
                    clock::thread_cpu_time().checked_sub(before).expect("a monotonic clock").as_ns()
                })
                .collect();
            spent.sort_unstable();
            spent[4].abs_diff(cost.as_ns())
        };
        let tries = (0..60).map(|_| differs(Calibration::measure()));
        let near = tries.filter(|differs| *differs < cost.as_ns() / 50).take(3).count();
        assert_eq!(near, 3, "rarely within a fiftieth of {cost}");
    }

    #[test]
    fn rounds_follow_the_calibration_and_no_job_is_too_long() {
        let pace = Calibration { rounds_per_ms: 1_000_000 };
        assert_eq!(pace.rounds_for(Work::from_ns(1_500_000)), 1_500_000);
        assert_eq!(pace.rounds_for(Work::ZERO), 0);
        assert_eq!(
            Calibration { rounds_per_ms: u64::MAX }.rounds_for(Work::from_ns(u64::MAX)),
            u64::MAX
        );
        count(u64::MAX, &AtomicBool::new(true));
    }

    #[test]
    fn a_job_ends_early_when_the_run_is_over() {
        let before = clock::thread_cpu_time();
        // Beyond the range of any clock.
        let cost = Work::from_ns(u64::MAX);
        spender()(&Job::new(0, 0, cost), &AtomicBool::new(true));
        let spent = clock::thread_cpu_time().checked_sub(before).expect("a monotonic clock");
        assert!(spent < Work::from_ns(cost.as_ns() / 2));
    }
}
