//! Wake-up latency of a task in a tree of one level, beside two baselines.
//!
//! One baseline is a plain thread that sleeps until the same times. The other baseline is a thread
//! that such a thread wakes, which shows the minimum cost of a dispatcher between timer and worker.
//! The same task under Linux alone, whose worker sleeps until its own releases, shows the cost of
//! the dispatcher. It has no threshold here, and one in a test in the guest.

use super::super::samples::{Samples, Summary};
use super::super::thresholds::Threshold;
use super::releases::{by_hand, lateness_by_hand, outside_stalls, periodic};
use crate::placement::enter;
use crate::units::us;
use serde::Serialize;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Monotonic, Span, Work};
use talea_exec::{Band, Options, RequestedMechanism, RootPlan, TaskPlan, execute};
use talea_os::event_count::EventCount;
use talea_os::{Policy, clock};

const PERIOD: Span = Span::from_ns(1_000_000);

/// Measurements of the wake-up latency.
#[derive(Debug, Serialize)]
pub(super) struct WakeReport {
    by_hand: Summary,
    handed_over: Summary,
    in_a_tree: Summary,
    native: Summary,
    /// Numbers of wake-ups that stalls exclude: by hand, handed over, in the tree and native.
    stalls: [usize; 4],
}

/// Returns the latencies from the nominal release to the first action of a job, in ns.
fn of_task(
    cpu: u32,
    times: usize,
    (policy, mechanism): (PolicySpec, RequestedMechanism),
) -> anyhow::Result<Vec<u64>> {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("task", PERIOD));
    let begun = Mutex::new(Vec::with_capacity(times));
    let body = |job: &talea_exec::Job, _: &_| {
        let now = clock::now();
        begun.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((job.number, now));
    };
    let load = periodic(Span::ZERO, PERIOD, times as u64, Work::from_ns(1_000));
    let tasks = vec![TaskPlan { load, body: Box::new(body) }];
    let duration = Span::from_ns(PERIOD.as_ns() * times as u64);
    let options = Options { audit: false, monitor: false, mechanism, ..Options::new(duration) };
    let plan =
        RootPlan { tree: &tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![cpu] };
    let zero = execute(vec![plan], &options)?.zero;
    let begun = begun.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let late =
        |&(k, at): &(u64, Monotonic)| at.since(zero + Span::from_ns(PERIOD.as_ns() * k)).as_ns();
    Ok(begun.iter().map(late).collect())
}

/// Returns the latencies of a task in a tree of one level.
fn in_a_tree(cpu: u32, times: usize) -> anyhow::Result<Vec<u64>> {
    of_task(cpu, times, (PolicySpec::Edf, RequestedMechanism::default()))
}

/// Returns the latencies of a thread that a more urgent thread wakes at the given times, in ns.
fn handed_over(cpu: u32, times: usize) -> anyhow::Result<Vec<u64>> {
    let (call, at) = (EventCount::new(), AtomicU64::new(0));
    let called = || -> io::Result<Vec<u64>> {
        enter(cpu, Policy::Fifo(Band::default().top - 1))?;
        let mut late = Vec::with_capacity(times);
        for heard in 0..times as u32 {
            call.wait(heard, Monotonic::NEVER);
            late.push(clock::now().as_ns().saturating_sub(at.load(Ordering::Relaxed)));
        }
        Ok(late)
    };
    let calls = || {
        std::thread::scope(|scope| {
            let called = scope.spawn(called);
            let own = EventCount::new();
            let mut due = clock::now() + PERIOD + PERIOD;
            for _ in 0..times {
                due += PERIOD;
                own.wait(own.key(), due);
                at.store(due.as_ns(), Ordering::Relaxed);
                call.notify();
            }
            called.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    };
    Ok(by_hand(cpu, calls)??)
}

/// Measures the cases in alternating rounds.
pub(super) fn measure(cpu: u32, quick: bool) -> anyhow::Result<WakeReport> {
    let (rounds, times) = if quick { (2, 100) } else { (20, 500) };
    let [mut plain, mut handed, mut ours, mut native]: [Vec<u64>; 4] = Default::default();
    for round in 0..rounds {
        handed.extend(handed_over(cpu, times)?);
        native.extend(of_task(cpu, times, (PolicySpec::FixedPriority, RequestedMechanism::Linux))?);
        if round % 2 == 0 {
            plain.extend(lateness_by_hand(cpu, PERIOD, times)?);
            ours.extend(in_a_tree(cpu, times)?);
        } else {
            ours.extend(in_a_tree(cpu, times)?);
            plain.extend(lateness_by_hand(cpu, PERIOD, times)?);
        }
    }
    let all = [plain, handed, ours, native];
    let [(plain, a), (handed, b), (ours, c), (native, d)] = all.map(outside_stalls);
    let summary = |all: Vec<u64>| Samples::from(all).summary();
    Ok(WakeReport {
        by_hand: summary(plain),
        handed_over: summary(handed),
        in_a_tree: summary(ours),
        native: summary(native),
        stalls: [a, b, c, d],
    })
}

impl WakeReport {
    pub(super) fn thresholds(&self) -> Vec<Threshold> {
        let threshold = |what: &str, ours, plain, most| {
            Threshold::ratio(format!("wake-up in a tree of one level, {what}"), ours, plain, most)
        };
        vec![
            threshold("median", self.in_a_tree.median_ns, self.by_hand.median_ns, 1.4),
            threshold("p99", self.in_a_tree.p99_ns, self.by_hand.p99_ns, 1.6),
        ]
    }

    pub(super) fn text(&self) -> String {
        let one = |name: &str, summary: &Summary, stalls: usize| {
            format!(
                "wake-up {name}: median {:.1}, p99 {:.1}, max {:.1} µs of {}; {stalls} in stalls\n",
                us(summary.median_ns),
                us(summary.p99_ns),
                us(summary.max_ns),
                summary.count
            )
        };
        one("of a plain FIFO thread", &self.by_hand, self.stalls[0])
            + &one("of one that another such thread calls", &self.handed_over, self.stalls[1])
            + &one("of a task in a tree of one level", &self.in_a_tree, self.stalls[2])
            + &one("of the same task, native", &self.native, self.stalls[3])
    }
}
