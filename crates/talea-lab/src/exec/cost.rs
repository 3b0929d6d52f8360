//! Cost of scheduling: CPU time of dispatchers, and of workers outside of the work of their jobs.

#![allow(clippy::cast_precision_loss, reason = "shown with a few digits")]

use super::super::samples::median;
use super::super::thresholds::{self, Threshold};
use super::job_cost::counting;
pub(in super::super) use super::job_cost::{Cost, read_cost};
use super::plain;
use super::releases::{by_hand, periodic};
use crate::sf3p::random_sets::{POLICIES, Set, set_of};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::engine::{NodeId, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Work};
use talea_exec::{Arrivals, Load, Options, Report, RootPlan, TaskPlan, execute};
use talea_os::clock;
use talea_os::event_count::EventCount;
use talea_sim::rng::Rng;
use talea_study::output::Table;

const PERIOD: Span = Span::from_ns(1_000_000);
/// Work of a job: long enough for the dispatcher to be asleep before the job completes.
const COST: Work = Work::from_ns(100_000);
/// Distance of two arrivals of SF3P's sets at 90 % utilization.
const RARE_PERIOD: Span = Span::from_ns(14_000_000);
/// Levels of the deepest tree.
const LEVELS: usize = 5;

/// Measurements of the scheduling cost.
#[derive(Debug, Serialize)]
pub(in super::super) struct CostReport {
    /// `empty_us[round]`: CPU time of an empty wake-up of a dispatcher, in µs.
    empty_us: Vec<f64>,
    /// `seldom_us[set]`: CPU time of a wake-up that is as rare as the arrivals of a set, in µs. It
    /// begins with cold caches.
    seldom_us: Vec<f64>,
    /// `one[round]`: cost of a job in a tree of one level.
    one: Vec<Cost>,
    /// `five[round]`: cost of a job in a tree of five levels.
    five: Vec<Cost>,
    /// Cost of SF3P's sets at 90 % utilization, by policy.
    sets: Vec<(&'static str, Vec<Cost>)>,
    /// Cost of the same sets on plain FIFO threads with rate-monotonic priorities.
    plain: Vec<Cost>,
}

/// Run with its scheduling cost.
#[derive(Debug)]
pub(in super::super) struct Run {
    pub(in super::super) report: Report,
    pub(in super::super) cost: Cost,
    /// CPU time of the dispatchers. `workers` is that of the workers including their jobs.
    pub(in super::super) dispatcher: Work,
    pub(in super::super) workers: Work,
}

/// Runs `tree` with these loads and measures the scheduling cost.
pub(in super::super) fn run(
    cpu: u32,
    tree: &Tree,
    loads: Vec<Load>,
    options: &Options,
) -> anyhow::Result<Run> {
    let done = AtomicU64::new(0);
    let listed =
        |load: &Load| if let Arrivals::List(list) = &load.arrivals { list.len() } else { 0 };
    let jobs: usize = loads.iter().map(listed).sum();
    let tasks = loads.into_iter().map(|load| TaskPlan { load, body: counting(&done) }).collect();
    let plan = RootPlan { tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![cpu] };
    let report = execute(vec![plan], options)?;
    let root = &report.roots[0];
    let dispatcher: u64 = root.dispatchers.iter().map(|effort| effort.cpu_time.as_ns()).sum();
    let workers: u64 = root.consumed.iter().map(|consumed| consumed.total.as_ns()).sum();
    // Each job reads the clock twice. Half of each reading is outside of the interval that it
    // measures.
    let ours = workers.saturating_sub(done.load(Ordering::Relaxed) + jobs as u64 * read_cost());
    let wakes: u64 = root.dispatchers.iter().map(|effort| effort.steps).sum();
    let per_job = |ns: u64| ns as f64 / 1e3 / jobs.max(1) as f64;
    let cost = Cost {
        dispatcher_us: per_job(dispatcher),
        workers_us: per_job(ours),
        wakes: wakes as f64 / jobs.max(1) as f64,
        share: (dispatcher + ours) as f64 / report.length.as_ns().max(1) as f64,
        jobs: jobs as u64,
    };
    let (dispatcher, workers) = (Work::from_ns(dispatcher), Work::from_ns(workers));
    Ok(Run { report, cost, dispatcher, workers })
}

/// Runs for `duration` without monitor and audit, and returns the cost.
fn of(cpu: u32, tree: &Tree, loads: Vec<Load>, duration: Span) -> anyhow::Result<Cost> {
    let options = Options { audit: false, monitor: false, ..Options::new(duration) };
    Ok(run(cpu, tree, loads, &options)?.cost)
}

/// Returns the CPU time of an empty wake-up of a thread like a dispatcher, in µs, as the mean of
/// `times` sleeps.
pub(in super::super) fn empty(cpu: u32, period: Span, times: u64) -> anyhow::Result<f64> {
    let used = by_hand(cpu, move || {
        let event_count = EventCount::new();
        let mut due = clock::now() + period;
        event_count.wait(event_count.key(), due);
        let before = clock::thread_cpu_time();
        for _ in 0..times {
            due += period;
            event_count.wait(event_count.key(), due);
        }
        clock::thread_cpu_time().checked_sub(before).unwrap_or(Work::ZERO)
    })?;
    Ok(used.as_ns() as f64 / 1e3 / times as f64)
}

/// Builds EDF over EDF with two children per scheduler and four tasks at the bottom. The schedule
/// does not depend on the number of levels.
fn tree(levels: usize) -> Tree {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let mut row = vec![NodeId(0)];
    for _ in 1..levels {
        let below = |parent: NodeId| {
            [(); 2].map(|()| (parent, SchedulerSpec::new("level", PolicySpec::Edf)))
        };
        let specs: Vec<_> = row.iter().copied().flat_map(below).collect();
        row = specs.into_iter().map(|(parent, spec)| tree.scheduler(parent, spec)).collect();
    }
    for task in 0..4 {
        let _ = tree.task(
            row[task * row.len() / 4],
            TaskSpec::new("task", PERIOD + PERIOD + PERIOD + PERIOD),
        );
    }
    tree
}

fn round(cpu: u32, levels: usize, jobs: u64) -> anyhow::Result<Cost> {
    let four = Span::from_ns(4 * PERIOD.as_ns());
    let load = |task: u64| periodic(Span::from_ns(task * PERIOD.as_ns()), four, jobs / 4, COST);
    let duration = Span::from_ns(jobs * PERIOD.as_ns());
    of(cpu, &tree(levels), (0..4).map(load).collect(), duration)
}

/// Measures one of SF3P's random sets for `duration`.
pub(in super::super) fn set(
    cpu: u32,
    set: &Set,
    policy: &PolicySpec,
    duration: Span,
) -> anyhow::Result<Cost> {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy.clone()));
    let mut loads = Vec::new();
    for &(period, cost) in &set.tasks {
        let mut spec = TaskSpec::new("task", period);
        spec.backlog.capacity = 1_000;
        tree.task(Tree::ROOT, spec);
        loads.push(periodic(Span::ZERO, period, duration.as_ns().div_ceil(period.as_ns()), cost));
    }
    of(cpu, &tree, loads, duration)
}

/// Measures all cases in alternating rounds.
pub(super) fn measure(cpu: u32, quick: bool) -> anyhow::Result<CostReport> {
    let (rounds, jobs, sets, seconds) = if quick { (2, 100, 1, 1) } else { (11, 500, 6, 3) };
    let mut found = CostReport {
        empty_us: Vec::new(),
        seldom_us: Vec::new(),
        one: Vec::new(),
        five: Vec::new(),
        sets: Vec::new(),
        plain: Vec::new(),
    };
    for turn in 0..rounds {
        found.empty_us.push(empty(cpu, PERIOD, jobs)?);
        // The order alternates, so that no case always follows the same other case.
        if turn % 2 == 0 {
            found.one.push(round(cpu, 1, jobs)?);
            found.five.push(round(cpu, LEVELS, jobs)?);
        } else {
            found.five.push(round(cpu, LEVELS, jobs)?);
            found.one.push(round(cpu, 1, jobs)?);
        }
    }
    found.sets = POLICIES.map(|(name, _)| (name, Vec::new())).to_vec();
    for number in 0..sets {
        let mut rng = Rng::for_part(7, number);
        let n = rng.between(5, 50);
        let one = set_of(&mut rng, n, 900_000);
        found.seldom_us.push(empty(cpu, RARE_PERIOD, 1_000_000_000 / RARE_PERIOD.as_ns())?);
        for ((_, policy), (_, costs)) in POLICIES.iter().zip(&mut found.sets) {
            costs.push(set(cpu, &one, policy, Span::from_ns(seconds * 1_000_000_000))?);
        }
        found.plain.push(plain::set(cpu, &one, Span::from_ns(seconds * 1_000_000_000))?);
    }
    Ok(found)
}

impl CostReport {
    fn ratios(&self, of: &[Cost]) -> Vec<f64> {
        of.iter().zip(&self.empty_us).map(|(cost, empty)| cost.us() / empty).collect()
    }

    pub(super) fn thresholds(&self) -> Vec<Threshold> {
        let at_most = |what: &str, values: &[f64], most: f64, unit: &str| {
            let found = median(values.iter().copied());
            let (low, high) = thresholds::range(values.iter().copied());
            let found_text = format!(
                "{found:.2}{unit} ({low:.2} to {high:.2} in {} rounds), at most {most:.2}{unit}",
                values.len()
            );
            Threshold { what: what.to_owned(), found: found_text, passed: found <= most }
        };
        let levels = (LEVELS - 1) as f64;
        let each: Vec<f64> = self
            .one
            .iter()
            .zip(&self.five)
            .map(|(one, five)| (five.us() - one.us()) / levels)
            .collect();
        let wakes: Vec<f64> = self.one.iter().map(|cost| cost.wakes).collect();
        let mut thresholds = vec![
            at_most(
                "a job against an empty wake of a dispatcher",
                &self.ratios(&self.one),
                1.6,
                " ×",
            ),
            at_most("wakes of the dispatcher per job", &wakes, 1.01, ""),
            at_most("a further level, per job", &each, 0.5, " µs"),
        ];
        // As in SF3P's Fig. 7, the CPU time that workers need without a scheduler is not
        // scheduling.
        for (policy, costs) in &self.sets {
            let more = |(ours, plain): (&Cost, &Cost)| (ours.share - plain.share) * 100.0;
            let more: Vec<f64> = costs.iter().zip(&self.plain).map(more).collect();
            let what = format!("SF3P's sets at 90 %, {policy}, beside what threads cost by hand");
            thresholds.push(at_most(&what, &more, 0.13, " %"));
        }
        thresholds
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new(
            "WHAT | >DISPATCHER µs/job | >WORKERS µs/job | >SUM µs | >WAKES/job | >CPU %",
        );
        let middle = |costs: &[Cost], of: fn(&Cost) -> f64| median(costs.iter().map(of));
        let empty = median(self.empty_us.iter().copied());
        table.row(vec![
            "an empty wake".into(),
            format!("{empty:.2}"),
            "-".into(),
            format!("{empty:.2}"),
            "1.00".into(),
            "-".into(),
        ]);
        let seldom = median(self.seldom_us.iter().copied());
        table.row(vec![
            "an empty wake, as seldom as on SF3P's sets".into(),
            format!("{seldom:.2}"),
            "-".into(),
            format!("{seldom:.2}"),
            "1.00".into(),
            format!("{:.3}", seldom * 1e5 / RARE_PERIOD.as_ns() as f64),
        ]);
        let named = [
            ("a job, one level".to_owned(), &self.one),
            (format!("a job, {LEVELS} levels"), &self.five),
        ];
        let sets =
            self.sets.iter().map(|(name, costs)| (format!("SF3P's sets at 90 %, {name}"), costs));
        let plain = [("the same by hand, plain FIFO threads, rm".to_owned(), &self.plain)];
        for (name, costs) in named.into_iter().chain(sets).chain(plain) {
            table.row(vec![
                name,
                format!("{:.2}", middle(costs, |cost| cost.dispatcher_us)),
                format!("{:.2}", middle(costs, |cost| cost.workers_us)),
                format!("{:.2}", middle(costs, Cost::us)),
                format!("{:.2}", middle(costs, |cost| cost.wakes)),
                format!("{:.3}", middle(costs, |cost| cost.share * 100.0)),
            ]);
        }
        table.render() + "\n"
    }
}
