//! Wake-up latency of the same task if Linux alone schedules its root.
//!
//! The comparison shows the cost of a dispatcher between the timer and the worker: under the
//! mechanism `linux` the worker sleeps until its own releases. The latency is reported without a
//! threshold; a test in the guest has one.

use super::super::samples::{Samples, Summary};
use super::releases::{outside_stalls, periodic};
use crate::units::us;
use serde::Serialize;
use std::sync::Mutex;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Monotonic, Span, Work};
use talea_exec::{Options, RequestedMechanism, RootPlan, TaskPlan, execute};
use talea_os::clock;

const PERIOD: Span = Span::from_ns(1_000_000);

/// Measurements of the wake-up latency under Linux alone.
#[derive(Debug, Serialize)]
pub(super) struct NativeReport {
    alone: Summary,
    /// Number of wake-ups that stalls exclude.
    stalls: usize,
}

/// Returns the latencies from the nominal release to the first action of a job, in ns.
fn round(cpu: u32, times: usize) -> anyhow::Result<Vec<u64>> {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("task", PERIOD));
    let begun = Mutex::new(Vec::with_capacity(times));
    let body = |job: &talea_exec::Job, _: &_| {
        let now = clock::now();
        begun.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((job.number, now));
    };
    let load = periodic(Span::ZERO, PERIOD, times as u64, Work::from_ns(1_000));
    let tasks = vec![TaskPlan { load, body: Box::new(body) }];
    let duration = Span::from_ns(PERIOD.as_ns() * times as u64);
    let options = Options {
        audit: false,
        monitor: false,
        mechanism: RequestedMechanism::Linux,
        ..Options::new(duration)
    };
    let plan =
        RootPlan { tree: &tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![cpu] };
    let zero = execute(vec![plan], &options)?.zero;
    let begun = begun.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let late =
        |&(k, at): &(u64, Monotonic)| at.since(zero + Span::from_ns(PERIOD.as_ns() * k)).as_ns();
    Ok(begun.iter().map(late).collect())
}

/// Measures as many wake-ups as in the other cases.
pub(super) fn measure(cpu: u32, quick: bool) -> anyhow::Result<NativeReport> {
    let (rounds, times) = if quick { (2, 100) } else { (20, 500) };
    let mut late = Vec::new();
    for _ in 0..rounds {
        late.extend(round(cpu, times)?);
    }
    let (kept, stalls) = outside_stalls(late);
    Ok(NativeReport { alone: Samples::from(kept).summary(), stalls })
}

impl NativeReport {
    pub(super) fn text(&self) -> String {
        let Summary { median_ns, p99_ns, max_ns, count, .. } = &self.alone;
        format!(
            "wake-up of the same task, native: median {:.1}, p99 {:.1}, max {:.1} µs of {count}; {} in stalls\n",
            us(*median_ns),
            us(*p99_ns),
            us(*max_ns),
            self.stalls
        )
    }
}
