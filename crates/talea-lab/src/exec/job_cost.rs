//! Cost of scheduling per job, and the job body that separates it from the work of the job.
#![allow(clippy::cast_precision_loss, reason = "costs are shown")]

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::{Span, Work};
use talea_exec::JobBody;
use talea_os::clock;

/// Scheduling cost per job.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Cost {
    /// CPU time of the dispatcher per job, in µs.
    pub(crate) dispatcher_us: f64,
    /// CPU time of the workers per job outside of job bodies, in µs.
    pub(crate) workers_us: f64,
    /// Wake-ups of the dispatcher per job.
    pub(crate) wakes: f64,
    /// Total cost as a share of the CPU.
    pub(crate) share: f64,
    /// Number of jobs.
    pub(crate) jobs: u64,
}

impl Cost {
    /// Returns the cost of threads that only the kernel schedules. `beside` is their CPU time
    /// outside of jobs, in ns.
    pub(crate) fn of_threads(beside: u64, jobs: u64, duration: Span) -> Cost {
        Cost {
            workers_us: beside as f64 / 1e3 / jobs.max(1) as f64,
            share: beside as f64 / duration.as_ns().max(1) as f64,
            jobs,
            ..Cost::default()
        }
    }

    pub(crate) fn us(&self) -> f64 {
        self.dispatcher_us + self.workers_us
    }
}

/// Returns a job body that consumes the cost of each job and adds the consumed CPU time to `done`.
pub(crate) fn counting(done: &AtomicU64) -> JobBody<'_> {
    Box::new(|job, over| {
        let begin = clock::thread_cpu_time();
        let end = begin.checked_add(job.cost).unwrap_or(begin);
        let mut now = begin;
        while now < end && !over.load(Ordering::Relaxed) {
            now = clock::thread_cpu_time();
        }
        done.fetch_add(now.checked_sub(begin).map_or(0, Work::as_ns), Ordering::Relaxed);
    })
}

/// Returns the duration of a reading of the thread's own clock, in ns.
pub(crate) fn read_cost() -> u64 {
    const READS: u64 = 64;
    let begin = clock::thread_cpu_time();
    (1..READS).for_each(|_| _ = std::hint::black_box(clock::thread_cpu_time()));
    let used = clock::thread_cpu_time().checked_sub(begin).unwrap_or(Work::ZERO);
    used.as_ns() / READS
}
