//! SF3P's sets on plain periodic threads: FIFO priorities by period, absolute sleeps, and no code
//! of Talea. The CPU time of such threads outside of their jobs is a lower limit for each scheduler
//! of threads.

use super::job_cost::{Cost, counting, read_cost};
use crate::placement::enter;
use crate::sf3p::random_sets::Set;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use talea_core::{Monotonic, Span, Work};
use talea_exec::{Band, Job};
use talea_os::{Policy, clock};

/// Time from the start of the threads to their first release.
const LEAD: Span = Span::from_ns(20_000_000);

/// Runs one of the threads. Returns its CPU time in ns and its number of jobs.
fn periodic(
    cpu: u32,
    priority: u8,
    (period, cost): (Span, Work),
    (zero, end): (Monotonic, Monotonic),
    done: &AtomicU64,
) -> io::Result<(u64, u64)> {
    enter(cpu, Policy::Fifo(priority))?;
    let (mut body, never) = (counting(done), AtomicBool::new(false));
    let (mut number, mut due) = (0, zero);
    clock::sleep_until(due);
    let before = clock::thread_cpu_time();
    while due < end {
        body(&Job::new(number, 0, cost), &never);
        (number, due) = (number + 1, due + period);
        clock::sleep_until(due);
    }
    let used = clock::thread_cpu_time().checked_sub(before).unwrap_or(Work::ZERO);
    Ok((used.as_ns(), number))
}

/// Runs a set for `duration` and returns its cost outside of jobs.
pub(super) fn set(cpu: u32, set: &Set, duration: Span) -> anyhow::Result<Cost> {
    let mut tasks = set.tasks.clone();
    tasks.sort_unstable_by_key(|&(period, _)| period);
    let zero = clock::now() + LEAD;
    let span = (zero, zero + duration);
    let done = AtomicU64::new(0);
    let all = std::thread::scope(|scope| {
        let begin = |(rank, task): (u8, (Span, Work))| {
            let (priority, done) = ((Band::default().top - 1).saturating_sub(rank).max(1), &done);
            scope.spawn(move || periodic(cpu, priority, task, span, done))
        };
        let threads: Vec<_> = (0..).zip(tasks).map(begin).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<io::Result<Vec<(u64, u64)>>>()
    })?;
    let (used, jobs) = all.iter().fold((0, 0), |(used, jobs), (of, some)| (used + of, jobs + some));
    let beside = used.saturating_sub(done.load(Ordering::Relaxed) + jobs * read_cost());
    Ok(Cost::of_threads(beside, jobs, duration))
}
