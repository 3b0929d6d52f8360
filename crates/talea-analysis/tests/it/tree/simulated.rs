//! Trees in the simulator: no simulated response exceeds its bound, and exact bounds are attained.

use super::random_trees::{Family, RandomTree, random_tree};
use crate::rng::{rng, rounds};
use std::collections::BTreeMap;
use talea_analysis::test_info::TestKind;
use talea_analysis::tree::{RootModel, TaskBound};
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind as Server};
use talea_core::workload::{Arrivals, Cost, CostMode, Overheads, Source};
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Simulation, Workload};

/// Results of a family.
#[derive(Default)]
pub(super) struct Tally {
    trees: u64,
    pub(super) tasks: u64,
    pub(super) bounded: u64,
    pub(super) reached: u64,
    exact: u64,
    /// Tasks with an attained exact bound that a witness refutes.
    refuted: u64,
    /// Sum of simulated response over bound, in thousandths.
    tightness: u64,
    reasons: BTreeMap<&'static str, u64>,
}

fn simulate(
    system: &RandomTree,
    workload: &Workload,
    case: CostMode,
    until: u64,
) -> Vec<(Span, u64)> {
    let machine = system.tree.build().expect("a tree");
    let world = Simulation::new(machine, system.tree.cpus, workload).with_cost_mode(case);
    let mut world = world.with_overheads(system.overheads);
    let mut jobs = Jobs::default();
    world.run(Time::from_ns(until), &mut jobs);
    let mut found = vec![(Span::ZERO, 0); workload.sources.len()];
    for job in &jobs.ended {
        let one = &mut found[job.task.0 as usize];
        let late = match system.workload.sources[job.task.0 as usize].arrivals {
            // Of arrivals that are said as they are seen: how late that is.
            Arrivals::Periodic { offset, period, jitter } if case == CostMode::Worst => {
                let nominal = offset.as_ns() + job.job * period.as_ns();
                let first = offset.as_ns() + jitter.as_ns();
                Span::from_ns(first.saturating_sub(nominal))
            }
            _ => Span::ZERO,
        };
        *one = (one.0.max(job.response() + late), one.1 + 1);
    }
    found
}

/// Returns the longest response of task `subject` in the worst run of the sources. From one time on
/// all jobs arrive at minimum separation and have their worst costs. If jobs are ordered by
/// deadline or arrival, the task itself arrives at any distance from that time. On a non-preemptive
/// CPU any one of the tasks with free phasing may arrive a nanosecond before, at any distance from
/// the jobs of tasks with known arrivals: one of these may keep it from starting at their arrival.
fn worst_run(system: &RandomTree, subject: usize, policy: &str, until: u64) -> Span {
    let by_deadline = policy == "EDF";
    let first = |source: &Source| match source.arrivals {
        Arrivals::Periodic { offset, jitter, .. } => Some((offset + jitter).as_ns()),
        Arrivals::Sporadic { offset, extra_separation: Span::ZERO, .. } => Some(offset.as_ns()),
        _ => None,
    };
    let mut starts: Vec<u64> = system.workload.sources.iter().filter_map(first).collect();
    starts.push(0);
    let apart = |source: &Source| match source.arrivals {
        Arrivals::Periodic { period, .. } | Arrivals::Sporadic { separation: period, .. } => {
            period.as_ns()
        }
        Arrivals::Curve { .. } | Arrivals::List(_) | Arrivals::Observed(_) => 1,
    };
    let shifts = if by_deadline && first(&system.workload.sources[subject]).is_none() {
        apart(&system.workload.sources[subject])
    } else {
        1
    };
    if policy == "FP, non-preemptive" {
        let known = system.workload.sources.iter().filter(|source| first(source).is_some());
        starts.extend(0..known.map(apart).max().unwrap_or(0));
    }
    starts.sort_unstable();
    starts.dedup();
    let is_free = |at: &usize| first(&system.workload.sources[*at]).is_none();
    let all = 0..system.workload.sources.len();
    let blockers = all.filter(|at| policy == "FP, non-preemptive" && *at != subject && is_free(at));
    let blockers: Vec<Option<usize>> = blockers.map(Some).chain([None]).collect();
    let mut longest = Span::ZERO;
    for (start, blocker) in
        starts.iter().flat_map(|&start| blockers.iter().map(move |&one| (start, one)))
    {
        for shift in 0..shifts {
            let mut workload = system.workload.clone();
            let start = start + u64::from(blocker.is_some());
            for (at, source) in workload.sources.iter_mut().enumerate() {
                if matches!(source.arrivals, Arrivals::List(_) | Arrivals::Observed(_)) {
                    continue;
                }
                let free =
                    start + if at == subject { shift } else { 0 } - u64::from(blocker == Some(at));
                let begin = first(source).unwrap_or(free);
                let early = match source.arrivals {
                    Arrivals::Periodic { jitter, .. } => jitter.as_ns(),
                    _ => 0,
                };
                let period = apart(source);
                let seen = (0..).map(|k| (begin + k * period).saturating_sub(early).max(begin));
                let seen = seen.take_while(|&at| at < until).map(Time::from_ns).collect();
                source.arrivals = Arrivals::List(seen);
            }
            longest = longest.max(simulate(system, &workload, CostMode::Worst, until)[subject].0);
        }
    }
    longest
}

/// Checks the bounds of a tree against a simulation.
pub(super) fn check(system: &RandomTree, tally: &mut Tally) {
    let until = 700 * system.scale;
    let mut roots = RootModel::new(&system.tree, &system.workload.sources);
    roots.overheads = system.overheads;
    roots.steps = 1 << 15;
    let answers: Vec<TaskBound> = roots.bounds();
    let found = simulate(system, &system.workload, CostMode::Sampled, until);
    tally.trees += 1;
    for (at, (answer, (longest, ended))) in answers.iter().zip(found).enumerate() {
        tally.tasks += 1;
        let bound = match &answer.bound {
            Ok(bound) => *bound,
            Err(no) => {
                *tally.reasons.entry(no.reason.text()).or_default() += 1;
                continue;
            }
        };
        assert!(longest <= bound, "{longest:?} > {answer:?}\n{system:?}");
        if let Arrivals::Periodic { offset, period, .. } = system.workload.sources[at].arrivals {
            // None is still under way that should have ended.
            let due = (until - 1).checked_sub(bound.as_ns() + offset.as_ns());
            let due = due.map_or(0, |due| due / period.as_ns() + 1);
            assert!(ended >= due, "{ended} of {due} ended: {answer:?}\n{:#?}", system.tree);
        }
        tally.bounded += 1;
        tally.reached += u64::from(longest == bound);
        tally.tightness += longest.as_ns() * 1_000 / bound.as_ns().max(1);
        // A longer window may not come to its end within the time simulated.
        if answer.kind == TestKind::Exact && bound.as_ns() < until / 2 {
            let worst = worst_run(system, at, answer.test.policy, until);
            assert_eq!(worst, bound, "exact: {answer:?}\n{system:?}");
            assert_eq!(answer.is_refuted(), worst > answer.deadline, "a refutation is a miss");
            tally.exact += 1;
            tally.refuted += u64::from(answer.is_refuted());
        }
    }
}

/// Expected number of tasks with a bound, and with an attained exact bound, per thousand of each
/// family in an ordinary run. Changes of the analysis update these numbers.
const PINNED: [(Family, u64, u64); 10] = [
    (Family::Mixed, 548, 47),
    (Family::Partitions, 373, 0),
    (Family::NonPreemptive, 685, 33),
    (Family::Overheads, 834, 0),
    (Family::Resources, 787, 127),
    (Family::ResourcesOverheads, 439, 2),
    (Family::Flat, 1000, 192),
    (Family::Band, 668, 0),
    (Family::Global, 935, 0),
    (Family::NonPreemptiveAbove, 128, 0),
];

#[test]
fn no_simulated_response_exceeds_its_bound() {
    let mut rng = rng(50);
    let mut off = Vec::new();
    for (family, bounded_before, exact_before) in PINNED {
        let mut tally = Tally::default();
        for _ in 0..rounds(1_500) {
            check(&random_tree(&mut rng, family), &mut tally);
        }
        let Tally { trees, tasks, bounded, reached, exact, refuted, tightness, reasons } = &tally;
        println!(
            "{family:?}: {trees} trees, {tasks} tasks, {bounded} bounded, {reached} reached ({exact} exact ones, {refuted} refuted), simulated/bound {} per mille",
            tightness / bounded.max(&1)
        );
        for (reason, count) in reasons {
            println!("    {count} {reason}");
        }
        let of_thousand = |count: &u64| count * 1_000 / tasks;
        let now = (of_thousand(bounded), of_thousand(exact));
        let is_ordinary = rounds(1) == 1;
        let is_off = now.0.abs_diff(bounded_before) > 25 || now.1.abs_diff(exact_before) > 25;
        if is_ordinary && is_off {
            off.push(format!(
                "{family:?}: {now:?} instead of {:?}",
                (bounded_before, exact_before)
            ));
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

/// Arrivals of some tasks are unknown, and several of their jobs may arrive at once. In a hard
/// server this does not affect other tasks.
#[test]
fn l12_unknown_load_on_a_hard_server_leaves_the_bounds_of_others_valid() {
    let mut rng = rng(51);
    for family in [Family::Mixed, Family::Band, Family::Overheads] {
        let (mut tally, mut beside) = (Tally::default(), 0);
        for _ in 0..rounds(1_500) {
            let mut system = random_tree(&mut rng, family);
            let mut some = false;
            for source in &mut system.workload.sources {
                if rng.below(3) == 0 {
                    let mut times: Vec<Time> =
                        (0..rng.between(2, 60)).map(|_| Time::from_ns(rng.below(600))).collect();
                    times.push(times[0]);
                    times.sort_unstable();
                    source.arrivals = Arrivals::List(times);
                    some = true;
                }
            }
            let before = tally.bounded;
            check(&system, &mut tally);
            beside += if some { tally.bounded - before } else { 0 };
        }
        println!(
            "{family:?}: {beside} of {} bounded beside tasks with unknown arrivals",
            tally.tasks
        );
        assert_eq!(beside > 100, family != Family::Overheads, "{family:?}: {beside}");
    }
}

/// A server of every kind, budget, period and offset, with one client, below one task and above
/// another, or beside them under EDF.
#[test]
fn every_small_server_among_two_tasks() {
    let mut tally = Tally::default();
    for kind in
        [Server::Polling, Server::Deferrable, Server::Sporadic, Server::HardCbs, Server::SoftCbs]
    {
        for policy in [PolicySpec::FixedPriority, PolicySpec::Edf] {
            for (period, budget) in
                (2..=4).flat_map(|period| (1..=period).map(move |budget| (period, budget)))
            {
                for (cost, apart, offset) in
                    (1..=2).flat_map(|c| (4..=7).flat_map(move |t| (0..=3).map(move |o| (c, t, o))))
                {
                    let ns = Span::from_ns;
                    let mut tree = Tree::new(1, SchedulerSpec::new("root", policy.clone()));
                    let mut workload = Workload::default();
                    let mut add =
                        |tree: &mut Tree,
                         parent,
                         priority,
                         (cost, period, offset): (u64, u64, u64)| {
                            let mut spec = TaskSpec::new("task", ns(period));
                            spec.priority = priority;
                            spec.backlog.capacity = 1 << 10;
                            tree.task(parent, spec);
                            let arrivals = Arrivals::Periodic {
                                offset: ns(offset),
                                period: ns(period),
                                jitter: Span::ZERO,
                            };
                            workload.sources.push(Source {
                                arrivals,
                                cost: Cost::Constant(Work::from_ns(cost)),
                            });
                        };
                    add(&mut tree, Tree::ROOT, 9, (1, 5, 0));
                    let mut spec = SchedulerSpec::new("server", PolicySpec::FixedPriority);
                    spec.overrides.priority = Some(5);
                    let mut of = Reservation::new(kind, Work::from_ns(budget), ns(period));
                    of.offset = ns(offset % period);
                    spec.reservation = Some(of);
                    let server = tree.scheduler(Tree::ROOT, spec);
                    add(&mut tree, server, 1, (cost, apart, offset));
                    add(&mut tree, Tree::ROOT, 1, (1, 9, offset / 2));
                    check(
                        &RandomTree { tree, workload, overheads: Overheads::default(), scale: 1 },
                        &mut tally,
                    );
                }
            }
        }
    }
    println!(
        "{} trees, {} of {} bounded, {} reached",
        tally.trees, tally.bounded, tally.tasks, tally.reached
    );
    assert!(tally.trees == 2_880 && tally.bounded > 4_000 && tally.reached > 1_000);
}
