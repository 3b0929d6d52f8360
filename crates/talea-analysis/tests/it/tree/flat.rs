//! Flat roots with arrival curves and limited preemption in the simulator: no simulated response
//! exceeds its bound, in any phase of small sets, and exact bounds are attained.

use crate::rng::{Rng, rng, rounds};
use std::collections::BTreeMap;
use talea_analysis::test_info::TestKind;
use talea_analysis::tree::{Reason, RootModel, TaskBound};
use talea_core::engine::{Preemption, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::distances::{DistanceFunction, DistanceSpec};
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Simulation, Workload};

const POLICIES: [PolicySpec; 4] = [
    PolicySpec::FixedPriority,
    PolicySpec::RateMonotonic,
    PolicySpec::DeadlineMonotonic,
    PolicySpec::Edf,
];

/// Flat root with the arrivals and costs of its tasks.
struct Flat {
    tree: Tree,
    sources: Vec<Source>,
}

fn distances(rng: &mut Rng) -> DistanceFunction {
    let spec = if rng.below(2) == 0 {
        let count = rng.between(1, 4);
        let mut at = rng.between(0, 3);
        let list = (0..count).map(|k| {
            at += if k + 1 == count { rng.between(8, 20) } else { rng.between(0, 6) };
            Span::from_ns(at)
        });
        DistanceSpec::List(list.collect())
    } else {
        let period = rng.between(5, 12);
        DistanceSpec::Jittered {
            period: Span::from_ns(period),
            jitter: Span::from_ns(rng.below(3) * rng.below(14)),
            separation: Span::from_ns(rng.between(0, period / 2)),
        }
    };
    DistanceFunction::new(spec).expect("a function")
}

fn random(rng: &mut Rng, policy: &PolicySpec) -> Flat {
    let mut root = SchedulerSpec::new("root", policy.clone());
    root.preemptive = rng.below(5) > 0;
    let mut tree = Tree::new(1, root);
    let mut sources = Vec::new();
    for _ in 0..rng.between(1, 3) {
        let (period, jitter) = (rng.between(5, 16), rng.below(2) * rng.below(20));
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        spec.deadline = Span::from_ns(rng.between(3, 25));
        spec.priority = rng.between(0, 4) as u8;
        let cost = rng.between(1, 5);
        let arrivals = if rng.below(2) == 0 {
            let (offset, extra_delay) = (Span::ZERO, Span::from_ns(rng.below(2) * rng.below(9)));
            Arrivals::Curve { offset, distances: Box::new(distances(rng)), extra_delay }
        } else {
            Arrivals::Periodic {
                offset: Span::ZERO,
                period: Span::from_ns(period),
                jitter: Span::from_ns(jitter),
            }
        };
        let mut costs = match rng.below(3) {
            0 => {
                Cost::Uniform { min: Work::from_ns(rng.between(1, cost)), max: Work::from_ns(cost) }
            }
            _ => Cost::Constant(Work::from_ns(cost)),
        };
        match rng.below(4) {
            0 => {
                spec.preemption = Preemption::AtPoints;
                let mut points: Vec<Work> =
                    (1..cost).filter(|_| rng.below(2) == 0).map(Work::from_ns).collect();
                points.dedup();
                costs = costs.preemptible_at(&points);
            }
            1 => {
                spec.preemption = Preemption::Floating;
                let longest = rng.between(1, cost);
                let last = rng.below(longest + 1);
                costs = costs.with_floating_sections(Work::from_ns(longest), Work::from_ns(last));
            }
            _ => {}
        }
        tree.task(Tree::ROOT, spec);
        sources.push(Source { arrivals, cost: costs });
    }
    Flat { tree, sources }
}

/// Returns the longest responses on one CPU, from the nominal arrival.
pub(super) fn simulate(tree: &Tree, sources: &[Source], seed: u64, until: u64) -> Vec<Span> {
    assert_eq!(tree.cpus, 1);
    simulate_on(tree, sources, seed, until)
}

/// Returns the longest responses on the CPUs of the tree, from the nominal arrival.
pub(super) fn simulate_on(tree: &Tree, sources: &[Source], seed: u64, until: u64) -> Vec<Span> {
    let workload = Workload { sources: sources.to_vec(), seed };
    let mut world = Simulation::new(tree.build().expect("a tree"), tree.cpus, &workload);
    let mut jobs = Jobs::default();
    world.run(Time::from_ns(until), &mut jobs);
    let mut longest = vec![Span::ZERO; sources.len()];
    for job in &jobs.ended {
        let of = &mut longest[job.task.0 as usize];
        *of = (*of).max(job.response());
    }
    longest
}

/// Returns the sources with first arrivals at `offsets`. With `dense` jobs arrive as densely as
/// they may from then on, and the first job of a periodic task has its greatest jitter.
fn at_offsets(flat: &Flat, offsets: &[u64], dense: bool) -> Vec<Source> {
    let mut sources = flat.sources.clone();
    for (source, &at) in sources.iter_mut().zip(offsets) {
        match &mut source.arrivals {
            Arrivals::Curve { offset, extra_delay, .. } => {
                *offset = Span::from_ns(at);
                if dense {
                    *extra_delay = Span::ZERO;
                }
            }
            Arrivals::Periodic { offset, period, jitter } if dense => {
                // Nominal times from `at` on, seen from the latest first release on.
                let first = at + jitter.as_ns();
                let seen = (0..40).map(|k| {
                    let nominal = Time::from_ns(at + k * period.as_ns());
                    (nominal, nominal.max(Time::from_ns(first)))
                });
                source.arrivals = Arrivals::Observed(seen.collect());
            }
            Arrivals::Periodic { offset, .. } => *offset = Span::from_ns(at),
            _ => {}
        }
    }
    sources
}

fn bounds(flat: &Flat) -> Vec<TaskBound> {
    RootModel::new(&flat.tree, &flat.sources).bounds()
}

fn is_special(flat: &Flat) -> bool {
    let has_sections = |node: &talea_core::engine::Node| match &node.spec {
        talea_core::engine::NodeSpec::Task(spec) => spec.preemption != Preemption::Anywhere,
        talea_core::engine::NodeSpec::Scheduler(_) => false,
    };
    flat.tree.nodes().any(|(_, node)| has_sections(node))
        || flat.sources.iter().any(|source| matches!(source.arrivals, Arrivals::Curve { .. }))
}

fn first_late(source: &Source) -> u64 {
    match source.arrivals {
        Arrivals::Periodic { jitter, .. } => jitter.as_ns(),
        _ => 0,
    }
}

#[test]
fn no_response_of_a_curve_or_with_sections_exceeds_its_bound() {
    let mut rng = rng(271);
    let (mut bounded, mut exact, mut reached) = (0, 0, 0);
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    let mut tests: BTreeMap<&str, u64> = BTreeMap::new();
    for round in 0..rounds(900) {
        let flat = random(&mut rng, &POLICIES[round as usize % 4]);
        let bounds = bounds(&flat);
        if !is_special(&flat) {
            continue;
        }
        let mut longest = vec![Span::ZERO; flat.sources.len()];
        let mut add = |sources: &[Source], seed: u64, until: u64| {
            let found = simulate(&flat.tree, sources, seed, until);
            for (of, response) in longest.iter_mut().zip(found) {
                *of = (*of).max(response);
            }
        };
        // All phases of up to three tasks, dense; random phases, delays and costs for long.
        let count = flat.sources.len();
        let phases = if count < 3 { 16 } else { 7 };
        for number in 0..phases_of(count, phases) {
            let offsets: Vec<u64> =
                (0..count as u32).map(|at| number / u64::pow(phases, at) % phases).collect();
            add(&at_offsets(&flat, &offsets, true), number, 120);
        }
        let latest = flat.sources.iter().map(first_late).max().unwrap_or(0);
        let together: Vec<u64> =
            flat.sources.iter().map(|source| latest - first_late(source)).collect();
        for seed in 0..3 {
            add(&at_offsets(&flat, &together, true), seed, 400);
            let offsets: Vec<u64> = (0..count).map(|_| rng.below(30)).collect();
            add(&at_offsets(&flat, &offsets, false), seed, 2_000);
        }
        for (bound, &longest) in bounds.iter().zip(&longest) {
            *tests.entry(bound.test.name).or_default() += 1;
            match &bound.bound {
                Ok(most) => {
                    bounded += 1;
                    assert!(
                        longest <= *most,
                        "{longest} exceeds {most} of {:?}: {:?} {:?}",
                        bound.node,
                        flat.tree,
                        flat.sources
                    );
                    reached += u64::from(longest == *most);
                    if bound.kind == TestKind::Exact {
                        exact += 1;
                        assert_eq!(longest, *most, "{:?} {:?}", flat.tree, flat.sources);
                    }
                }
                Err(no) => *reasons.entry(no.reason.text()).or_default() += 1,
            }
        }
    }
    println!("{bounded} bounds, {exact} exact, {reached} attained; {tests:?} {reasons:?}");
    if rounds(1) == 1 {
        assert!(
            bounded > 600 && exact > 60 && reached > bounded / 3,
            "{bounded} {exact} {reached}"
        );
        assert!(tests["limited-fp-response-times"] > 20, "{tests:?}");
        assert!(tests["limited-edf-response-times"] > 10, "{tests:?}");
    }
}

fn phases_of(count: usize, phases: u64) -> u64 {
    u64::pow(phases, count as u32)
}

#[test]
fn tasks_above_every_user_of_an_uncovered_resource_keep_their_bounds() {
    use talea_core::engine::Protocol;
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let log = tree.resource("log", Protocol::None);
    let mut sources = Vec::new();
    for (priority, period, cost, locks) in
        [(30, 10, 2, None), (20, 20, 4, Some(1)), (20, 50, 1, None), (10, 40, 5, Some(2))]
    {
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        spec.priority = priority;
        let mut cost = Cost::Constant(Work::from_ns(cost));
        if let Some(length) = locks {
            spec.uses.push(log);
            cost = cost.locking(log, Work::ZERO, Work::from_ns(length));
        }
        tree.task(Tree::ROOT, spec);
        let (offset, jitter) = (Span::ZERO, Span::ZERO);
        let arrivals = Arrivals::Periodic { offset, period: Span::from_ns(period), jitter };
        sources.push(Source { arrivals, cost });
    }
    let flat = Flat { tree, sources };
    let found = bounds(&flat);
    assert_eq!(found[0].bound, Ok(Span::from_ns(2)));
    assert_eq!(found[0].kind, TestKind::Exact);
    for one in &found[1..] {
        let reason = one.bound.as_ref().map_err(|no| no.reason);
        assert_eq!(reason, Err(Reason::Resources), "{:?}", one.node);
    }
    assert_eq!(simulate(&flat.tree, &flat.sources, 1, 400)[0], Span::from_ns(2));
}

#[test]
fn reservations_with_one_client_each_are_tasks_on_several_cpus() {
    use talea_core::server::{Reservation, ServerKind};
    let mut rng = rng(99);
    let (mut bounded, mut refused) = (0, 0);
    for _ in 0..rounds(400) {
        let cpus = rng.between(2, 3) as u32;
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut sources = Vec::new();
        for _ in 0..rng.between(2, 5) {
            let period = rng.between(6, 16);
            let budget = rng.between(1, period / 2);
            let (beyond, more) = (rng.below(2), rng.below(4));
            let cost = rng.between(1, budget + beyond);
            let mut server = SchedulerSpec::new("cbs", PolicySpec::Fifo);
            let (budget, length) = (Work::from_ns(budget), Span::from_ns(period));
            server.reservation = Some(Reservation::new(ServerKind::HardCbs, budget, length));
            let parent = tree.scheduler(Tree::ROOT, server);
            tree.task(parent, TaskSpec::new("client", Span::from_ns(period + more)));
            sources.push(Source {
                arrivals: Arrivals::Sporadic {
                    offset: Span::from_ns(rng.below(5)),
                    separation: Span::from_ns(period + more),
                    extra_separation: Span::from_ns(rng.below(6)),
                },
                cost: Cost::Constant(Work::from_ns(cost)),
            });
        }
        if tree.build().is_err() {
            continue;
        }
        let found = RootModel::new(&tree, &sources).bounds();
        let workload = Workload { sources, seed: rng.below(1_000) };
        let mut world = Simulation::new(tree.build().expect("a tree"), cpus, &workload);
        let mut jobs = Jobs::default();
        world.run(Time::from_ns(3_000), &mut jobs);
        for job in &jobs.ended {
            match &found[job.task.0 as usize].bound {
                Ok(bound) => {
                    bounded += 1;
                    assert!(job.response() <= *bound, "{job:?} {tree:?} {workload:?}");
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(bounded > 50_000 && refused > 5_000, "{bounded} {refused}");
}

fn task(tree: &mut Tree, priority: u8, preemption: Preemption) {
    let mut spec = TaskSpec::new("task", Span::from_ns(100));
    (spec.priority, spec.preemption) = (priority, preemption);
    tree.task(Tree::ROOT, spec);
}

fn curve(list: &[u64], cost: u64) -> Source {
    let list = list.iter().map(|&at| Span::from_ns(at)).collect();
    let distances = DistanceFunction::new(DistanceSpec::List(list)).expect("a function");
    let arrivals = Arrivals::Curve {
        offset: Span::ZERO,
        distances: Box::new(distances),
        extra_delay: Span::ZERO,
    };
    Source { arrivals, cost: Cost::Constant(Work::from_ns(cost)) }
}

#[test]
fn bursts_delay_those_below_by_each_of_their_jobs_at_once() {
    // Three jobs of 2 at once, then 30 without any: 6 + 5 for the lower task.
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    task(&mut tree, 2, Preemption::Anywhere);
    task(&mut tree, 1, Preemption::Anywhere);
    let sources = vec![curve(&[0, 0, 30], 2), curve(&[100], 5)];
    let flat = Flat { tree, sources };
    let found = bounds(&flat);
    assert_eq!(found[0].bound, Ok(Span::from_ns(6)));
    assert_eq!(found[1].bound, Ok(Span::from_ns(11)));
    assert!(found.iter().all(|bound| bound.kind == TestKind::Exact));
}

#[test]
fn sections_and_curves_elsewhere_have_no_test() {
    let reasons = |tree: &Tree, sources: &[Source]| -> Vec<Option<Reason>> {
        let bounds = RootModel::new(tree, sources).bounds();
        bounds.iter().map(|bound| bound.bound.as_ref().err().map(|no| no.reason)).collect()
    };
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let group = tree.scheduler(Tree::ROOT, SchedulerSpec::new("group", PolicySpec::FixedPriority));
    tree.task(group, TaskSpec::new("below", Span::from_ns(50)));
    task(&mut tree, 9, Preemption::Anywhere);
    let plain = Source::periodic(Span::from_ns(50), Work::from_ns(2));
    // The curve is below the other task, which it can't delay.
    let sources = [curve(&[10], 2), plain.clone()];
    assert_eq!(reasons(&tree, &sources), [Some(Reason::ArrivalCurve), None]);
    // Sections delay siblings of any priority.
    let mut low = TaskSpec::new("low", Span::from_ns(50));
    low.preemption = Preemption::AtPoints;
    tree.task(Tree::ROOT, low);
    let sources = [plain.clone(), plain.clone(), plain];
    assert_eq!(reasons(&tree, &sources), [Some(Reason::Sections); 3]);
}
