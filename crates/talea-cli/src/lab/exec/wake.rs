//! How late a task in a tree of one level is awake, beside a plain thread that sleeps to the same times.

use super::super::bars::Bar;
use super::super::samples::{Samples, Summary, ratio};
use super::{lateness_by_hand, outside_holes, periodic, us};
use serde::Serialize;
use std::sync::Mutex;
use talea_core::machine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::{Span, Work};
use talea_exec::{Options, RootPlan, TaskPlan, execute};
use talea_os::clock;

const PERIOD: Span = Span::from_ns(1_000_000);

/// What was found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    by_hand: Summary,
    in_a_tree: Summary,
    /// Left out, by hand and in the tree: within holes.
    holes: [usize; 2],
}

/// From the nominal release to the first thing that a job does, in ns.
fn in_a_tree(cpu: u32, times: usize) -> anyhow::Result<Vec<u64>> {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::Edf));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("task", PERIOD));
    let begun = Mutex::new(Vec::with_capacity(times));
    let body = |_: &_, _: &_| {
        let now = clock::now();
        begun.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(now);
    };
    let load = periodic(Span::ZERO, PERIOD, times as u64, Work::from_ns(1_000));
    let tasks = vec![TaskPlan { load, body: Box::new(body) }];
    let duration = Span::from_ns(PERIOD.as_ns() * times as u64);
    let options = Options { audit: false, monitor: false, ..Options::new(duration) };
    let plan = RootPlan { tree: &tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![cpu] };
    let zero = execute(vec![plan], &options)?.zero;
    let begun = begun.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let late = |(k, at): (u64, &talea_core::Time)| at.since(zero + Span::from_ns(PERIOD.as_ns() * k)).as_ns();
    Ok((0..).zip(&begun).map(late).collect())
}

/// Rounds that take turns.
pub(super) fn measure(cpu: u32, quick: bool) -> anyhow::Result<Found> {
    let (rounds, times) = if quick { (2, 100) } else { (20, 500) };
    let (mut plain, mut ours) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            plain.extend(lateness_by_hand(cpu, PERIOD, times)?);
            ours.extend(in_a_tree(cpu, times)?);
        } else {
            ours.extend(in_a_tree(cpu, times)?);
            plain.extend(lateness_by_hand(cpu, PERIOD, times)?);
        }
    }
    let ((plain, a), (ours, b)) = (outside_holes(plain), outside_holes(ours));
    let summary = |all: Vec<u64>| Samples::from(all).summary();
    Ok(Found { by_hand: summary(plain), in_a_tree: summary(ours), holes: [a, b] })
}

impl Found {
    pub(super) fn bars(&self) -> Vec<Bar> {
        let bar = |what: &str, ours: u64, plain: u64, most: f64| {
            let found = ratio(ours, plain);
            let text = format!("{found:.2} × ({:.1} and {:.1} µs), at most {most:.2} ×", us(ours), us(plain));
            Bar { what: format!("wake-up in a tree of one level, {what}"), found: text, met: found <= most }
        };
        vec![
            bar("median", self.in_a_tree.median_ns, self.by_hand.median_ns, 1.4),
            bar("p99", self.in_a_tree.p99_ns, self.by_hand.p99_ns, 1.6),
        ]
    }

    pub(super) fn text(&self) -> String {
        let one = |name: &str, summary: &Summary, holes: usize| {
            format!(
                "wake-up {name}: median {:.1}, p99 {:.1}, max {:.1} µs of {}; {holes} in holes\n",
                us(summary.median_ns),
                us(summary.p99_ns),
                us(summary.max_ns),
                summary.count
            )
        };
        one("of a plain FIFO thread", &self.by_hand, self.holes[0])
            + &one("of a task in a tree of one level", &self.in_a_tree, self.holes[1])
    }
}
