//! Overhead of a thread: its CPU time outside of its jobs, as a mean and per job.
//!
//! Model: a job consumes its cost, so it reads the clock of its thread when it begins and until it
//! ends. The CPU time from the end of a job to the start of the next one of the same thread is
//! overhead. It includes the completion of the first job (with decisions for other threads), the
//! sleep, the wake-up and the start of the second job. The jobs need these readings anyway, and
//! store them within their own time. So the measurement adds half a reading at each end, which the
//! module subtracts.

#![allow(clippy::cast_precision_loss, reason = "shown with a few digits")]

use crate::exec::cost;
use crate::samples::Samples;
use serde::Serialize;
use std::time::Duration;
use talea_core::Work;
use talea_core::mutate;
use talea_os::clock;

/// Measurements of one thread, which runs the jobs of one task.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// Clock of the thread at the end of its last job.
    ended: Option<Work>,
    /// CPU time of the thread's jobs, in ns.
    used: u64,
    jobs: u64,
    /// `between[n]`: CPU time between job `n` and the next one, in ns.
    between: Vec<u64>,
}

impl Thread {
    /// Creates a record with room for `most` jobs, so that no job allocates.
    pub(super) fn for_jobs(most: u64) -> Thread {
        Thread { between: Vec::with_capacity(most as usize), ..Thread::default() }
    }

    /// Executes a job that consumes its cost.
    pub(super) fn work(&mut self, cost: Work) {
        let begin = clock::thread_cpu_time();
        if let Some(between) = self.ended.and_then(|ended| begin.checked_sub(ended))
            && self.between.len() < self.between.capacity()
        {
            self.between.push(between.as_ns());
        }
        self.jobs += 1;
        let end = begin.checked_add(cost).unwrap_or(begin);
        let mut now = begin;
        while now < end {
            now = clock::thread_cpu_time();
        }
        self.used += now.checked_sub(begin).map_or(0, Work::as_ns);
        self.ended = Some(mutate!("cli-fig2-between", now, begin));
    }
}

/// Overheads in µs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Overhead {
    /// Mean CPU time per job of threads that only schedule.
    pub(super) dispatchers: f64,
    /// Mean CPU time per job of workers between their jobs.
    pub(super) workers: f64,
    /// CPU time between two jobs of a thread that 99 of 100 jobs do not exceed.
    pub(super) between_p99: f64,
    /// Maximum CPU time between two jobs of a thread.
    pub(super) between_most: f64,
    /// Longest step of a thread that only schedules.
    pub(super) step_most: f64,
    pub(super) jobs: u64,
    pub(super) late: u64,
}

impl Overhead {
    /// Returns the mean overhead per job.
    pub(super) fn us(&self) -> f64 {
        self.dispatchers + self.workers
    }

    /// Returns the largest possible overhead of one job: the longest step, plus the maximum CPU
    /// time between two jobs.
    pub(super) fn most(&self) -> f64 {
        self.step_most + self.between_most
    }

    /// Computes the overhead from the total CPU time of the workers. Called when none of their jobs
    /// is running.
    pub(super) fn of<'a>(worked: Duration, threads: impl Iterator<Item = &'a Thread>) -> Overhead {
        let (mut inside, mut jobs, mut between) = (0, 0, Vec::new());
        let reading = cost::read_cost();
        for thread in threads {
            // Each job reads the clock once for its start and once for its end. Half of each
            // reading is outside of the interval that it measures.
            inside += thread.used + thread.jobs * reading;
            jobs += thread.jobs;
            between.extend(thread.between.iter().map(|ns| ns.saturating_sub(reading)));
        }
        let between = Samples::from(between).summary();
        let us = |ns: u64| ns as f64 / 1e3;
        Overhead {
            workers: us((worked.as_nanos() as u64).saturating_sub(inside)) / jobs.max(1) as f64,
            between_p99: us(between.p99_ns),
            between_most: us(between.max_ns),
            jobs,
            ..Overhead::default()
        }
    }

    /// Adds the CPU time of threads that only schedule.
    pub(super) fn with_dispatchers(self, used: Duration, longest: Duration) -> Overhead {
        Overhead {
            dispatchers: used.as_nanos() as f64 / 1e3 / self.jobs.max(1) as f64,
            step_most: longest.as_nanos() as f64 / 1e3,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_does_between_its_jobs_is_found_job_by_job_and_in_the_mean() {
        let ms = Work::from_ns(1_000_000);
        let burn = |cost: Work| Thread::default().work(cost);
        let mut thread = Thread::for_jobs(8);
        let before = clock::thread_cpu_time();
        for between in [3, 1, 1, 1, 1, 1, 1, 1] {
            thread.work(ms);
            burn(Work::from_ns(between * 1_000_000));
        }
        thread.work(ms);
        let worked = clock::thread_cpu_time().checked_sub(before).expect("it grows");
        let overhead = Overhead::of(Duration::from_nanos(worked.as_ns()), std::iter::once(&thread));
        assert_eq!((overhead.jobs, thread.between.len()), (9, 8));
        // The clock may show more than the cost, never less; half a reading at each end is
        // subtracted.
        assert!(thread.between.iter().all(|&ns| ns >= 1_000_000) && thread.between[0] >= 3_000_000);
        assert!(
            thread.between.iter().any(|&ns| ns < 2_000_000),
            "no job is in it: {:?}",
            thread.between
        );
        let most = thread.between.iter().max().copied().unwrap_or(0) as f64 / 1e3;
        assert!(overhead.between_most <= most && overhead.between_most >= 2_900.0, "{overhead:?}");
        assert!(overhead.workers >= 1_050.0, "10 ms beside 9 jobs: {overhead:?}");
        let with = overhead.with_dispatchers(Duration::from_micros(90), Duration::from_micros(7));
        assert!((with.us() - overhead.workers - 10.0).abs() < 1e-6, "{with:?}");
        assert!((with.most() - overhead.between_most - 7.0).abs() < 1e-6, "{with:?}");
    }
}
