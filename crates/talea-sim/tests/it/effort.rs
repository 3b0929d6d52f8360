//! Scheduling effort, counted instead of timed: signals between runnables (SF3P's Fig. 7).

#![allow(clippy::cast_precision_loss, reason = "means")]

use std::collections::BTreeMap;
use talea_core::engine::{NodeId, Observer, SchedulerSpec, Signal, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Arrivals, Cost, Counters, Simulation, Source, Workload};

/// Number of SF3P's five events, which its scheduler threads process.
#[derive(Debug, Default)]
struct Signals(u64);

impl Observer for Signals {
    const ENABLED: bool = true;

    fn on_signal(&mut self, _now: Time, _signal: Signal, _node: NodeId) {
        self.0 += 1;
    }
}

const MS: u64 = 1_000_000;

/// Returns the costs of a set of Fig. 6: half of them short, half long.
fn costs(set: u64) -> Vec<u64> {
    let mut rng = Rng::for_part(8, set);
    let n = rng.between(5, 50);
    (0..n)
        .map(|_| {
            if rng.below(2) == 0 {
                rng.between(5 * MS, 10 * MS)
            } else {
                rng.between(40 * MS, 50 * MS)
            }
        })
        .collect()
}

/// Returns signals and jobs per second, averaged over 10 s.
///
/// The tasks share `percent` hundredths of the CPU equally.
fn counted(policy: &PolicySpec, costs: &[u64], percent: u64) -> (f64, f64) {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", policy.clone()));
    let mut workload = Workload::default();
    for &cost in costs {
        let period = Span::from_ns((cost * costs.len() as u64 * 100).div_ceil(percent));
        tree.task(Tree::ROOT, TaskSpec::new("task", period));
        workload.sources.push(Source::periodic(period, Work::from_ns(cost)));
    }
    let mut simulation =
        Simulation::new(tree.build_with(Signals::default()).expect("a flat tree"), 1, &workload);
    let mut counters = Counters::new(costs.len());
    simulation.run(Time::from_ns(10_000 * MS), &mut counters);
    let signals = simulation.engine_mut().observer().0;
    (signals as f64 / 10.0, counters.total().completed as f64 / 10.0)
}

/// Fits a line through the points by least squares. Returns slope, intercept, and explained
/// variation.
fn line(points: &[(f64, f64)]) -> (f64, f64, f64) {
    let mean =
        |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let product = mean(&|point| (point.0 - x) * (point.1 - y));
    let (x2, y2) = (mean(&|point| (point.0 - x).powi(2)), mean(&|point| (point.1 - y).powi(2)));
    (product / x2, y - product / x2 * x, product * product / (x2 * y2))
}

/// Numbers of signals by kind, of the tasks and of the root. The run ends without pending jobs.
#[derive(Debug, Default)]
struct Kinds {
    tasks: BTreeMap<&'static str, u64>,
    root: BTreeMap<&'static str, u64>,
}

impl Observer for Kinds {
    const ENABLED: bool = true;

    fn on_signal(&mut self, _now: Time, signal: Signal, node: NodeId) {
        let kind = match signal {
            Signal::Ready => "ready",
            Signal::Update => "update",
            Signal::Activate => "activate",
            Signal::Deactivate => "deactivate",
            Signal::Finished => "finished",
        };
        *if node == Tree::ROOT { &mut self.root } else { &mut self.tasks }
            .entry(kind)
            .or_default() += 1;
    }
}

/// The cost of a job is equal at every utilisation. Preemptions and pauses increase, each with its
/// own cost. No signal is left over.
#[test]
fn s8_a_job_takes_five_operations_a_preemption_three_and_a_pause_three() {
    for percent in (20..=100).step_by(10) {
        for set in 0..20 {
            let costs = costs(set);
            let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
            let mut workload = Workload::default();
            for (task, &cost) in (0..).zip(&costs) {
                let period = Span::from_ns((cost * costs.len() as u64 * 100).div_ceil(percent));
                tree.task(Tree::ROOT, TaskSpec::new("task", period));
                // No two arrivals at one instant: a job that is overtaken before any job runs was
                // not preempted.
                let (offset, jitter) = (Span::from_ns(task * 1_000_003), Span::ZERO);
                let arrivals = Arrivals::Periodic { offset, period, jitter };
                workload
                    .sources
                    .push(Source { arrivals, cost: Cost::Constant(Work::from_ns(cost)) });
            }
            let mut simulation = Simulation::new(
                tree.build_with(Kinds::default()).expect("a flat tree"),
                1,
                &workload,
            );
            let mut counters = Counters::new(costs.len());
            simulation.run(Time::from_ns(10_000 * MS), &mut counters);
            // Complete the pending jobs.
            simulation.stop();
            simulation.run(Time::from_ns(20_000 * MS), &mut counters);
            let (jobs, Kinds { tasks, root }) =
                (counters.total(), std::mem::take(simulation.engine_mut().observer()));
            assert_eq!((jobs.completed, jobs.late), (jobs.arrived, 0), "{percent} %, set {set}");
            let jobs = jobs.completed;
            // Intervals between two times without a pending job.
            let stretches = root["ready"];
            let preemptions = tasks["deactivate"] - jobs;
            assert!(
                stretches + preemptions <= jobs,
                "{percent} %, set {set}: at most one of both for each arrival"
            );
            let count = |of: &BTreeMap<&str, u64>, kind: &str| of.get(kind).copied().unwrap_or(0);
            let of = |of| {
                ["ready", "update", "activate", "deactivate", "finished"]
                    .map(|kind| count(of, kind))
            };
            assert_eq!(
                of(&tasks),
                [jobs, 0, jobs + preemptions, jobs + preemptions, jobs],
                "{percent} %, set {set}"
            );
            let updates = jobs - stretches + preemptions;
            assert_eq!(
                of(&root),
                [stretches, updates, stretches, stretches, stretches],
                "{percent} %, set {set}"
            );
            let all: u64 = tasks.values().chain(root.values()).sum();
            assert_eq!(all, 5 * jobs + 3 * preemptions + 3 * stretches);
        }
    }
}

#[test]
fn s8_operations_per_job_are_bounded_and_operations_per_second_grow_linearly_with_utilisation() {
    const SETS: u64 = 20;
    let mut curves: Vec<Vec<(f64, f64)>> = Vec::new();
    for policy in [PolicySpec::Edf, PolicySpec::RateMonotonic, PolicySpec::Fifo] {
        let mut points = Vec::new();
        for percent in (20..=100).step_by(10) {
            let mut sum = 0.0;
            for set in 0..SETS {
                let (signals, jobs) = counted(&policy, &costs(set), percent);
                // A task is ready, activated, deactivated and finished once per job; so is the
                // root, unless it continues with another job: four to eight signals. The root's
                // update makes nine. A preempting job saves the root's four, and the preempted task
                // is deactivated and activated once more.
                let per_job = signals / jobs;
                assert!(
                    (4.0..=9.0).contains(&per_job),
                    "{policy:?}, {percent} %, set {set}: {per_job}"
                );
                sum += signals;
            }
            points.push((percent as f64 / 100.0, sum / SETS as f64));
        }
        curves.push(points);
    }
    let [edf, rm, fifo] = &curves[..] else { panic!("three policies") };
    for points in [edf, rm] {
        let (slope, at_zero, explained) = line(points);
        assert!(
            explained > 0.99 && at_zero.abs() < 0.1 * slope,
            "{explained} {at_zero} {slope}: {points:?}"
        );
    }
    // The paper: equal costs for all at 20 %, and FIFO, which never preempts, is the cheapest at
    // high load.
    for ((edf, rm), fifo) in edf.iter().zip(rm).zip(fifo) {
        assert!((edf.1 / rm.1 - 1.0).abs() < 0.05 && fifo.1 < edf.1, "{edf:?} {rm:?} {fifo:?}");
    }
    let share = |at: usize| fifo[at].1 / edf[at].1;
    assert!(share(0) > 0.95 && share(7) < 0.8, "{} {}", share(0), share(7));
}
