//! Priorities found for trees, against all orders.

use crate::rng::{Rng, rng, rounds};
use talea_analysis::tree::{PriorityAssignment, RootModel, assign_priorities};
use talea_core::engine::{NodeId, NodeSpec, Protocol, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Arrivals, Cost, CostMode, JobStep, Source, StepAction};
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Simulation, Workload};

/// Parts of a random root that each have a test of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Jitter,
    NonPreemptive,
    Phases,
    Ceiling,
    Server,
    Pinned,
    Global,
}

const PARTS: [Part; 7] = [
    Part::Jitter,
    Part::NonPreemptive,
    Part::Phases,
    Part::Ceiling,
    Part::Server,
    Part::Pinned,
    Part::Global,
];

/// Draws a root by fixed priorities with up to five children.
fn random(rng: &mut Rng, part: Part) -> (Tree, Vec<Source>) {
    let mut root = SchedulerSpec::new("root", PolicySpec::FixedPriority);
    root.preemptive = part != Part::NonPreemptive && (part != Part::Phases || rng.below(3) > 0);
    let cpus = if matches!(part, Part::Pinned | Part::Global) { 2 } else { 1 };
    let mut tree = Tree::new(cpus, root);
    let lock = (part == Part::Ceiling).then(|| tree.resource("lock", Protocol::Ceiling));
    let count = rng.between(2, if part == Part::Server { 3 } else { 5 });
    let mut sources = Vec::new();
    for place in 0..count {
        let period = [4, 6, 8, 12, 24][rng.below(5) as usize];
        let most = (period * u64::from(cpus) * 5 / (4 * count)).clamp(1, period);
        let cost = rng.between(1, most);
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        spec.deadline = Span::from_ns(rng.between(cost, period + 2));
        if part == Part::Global {
            spec.deadline = spec.deadline.min(spec.period);
        }
        spec.priority = rng.between(1, 9) as u8;
        if part == Part::Pinned {
            spec.affinity = talea_core::engine::Affinity(1 << rng.below(2));
        }
        let mut home = Tree::ROOT;
        if part == Part::Server && place == 0 {
            let mut group = SchedulerSpec::new("group", PolicySpec::FixedPriority);
            group.overrides.priority = Some(rng.between(1, 9) as u8);
            group.reservation = Some(Reservation::new(
                ServerKind::Polling,
                Work::from_ns(rng.between(1, 3)),
                Span::from_ns(6),
            ));
            home = tree.scheduler(Tree::ROOT, group);
            spec.deadline = Span::from_ns(spec.deadline.as_ns() * 3);
            let mut second = TaskSpec::new("second", Span::from_ns(48));
            second.priority = spec.priority + 1;
            tree.task(home, spec.clone());
            tree.task(home, second);
            sources.push(source(&spec, 1, 0, 0));
            sources.push(source(&TaskSpec::new("second", Span::from_ns(48)), 1, 0, 0));
            continue;
        }
        let jitter = if part == Part::Jitter { rng.below(4).min(period - 1) } else { 0 };
        let offset = if part == Part::Phases { rng.below(period) } else { 0 };
        let mut one = source(&spec, cost, jitter, offset);
        if let Some(lock) = lock.filter(|_| rng.below(2) == 0) {
            let at = |ns, action| JobStep { at: Work::from_ns(ns), action };
            one.cost = Cost::WithSteps {
                base: Box::new(Cost::Constant(Work::from_ns(cost))),
                steps: vec![
                    at(0, StepAction::Lock(lock)),
                    at(rng.between(1, cost), StepAction::Unlock(lock)),
                ],
            };
        }
        sources.push(one);
        tree.task(home, spec);
    }
    (tree, sources)
}

fn source(spec: &TaskSpec, cost: u64, jitter: u64, offset: u64) -> Source {
    let arrivals = Arrivals::Periodic {
        offset: Span::from_ns(offset),
        period: spec.period,
        jitter: Span::from_ns(jitter),
    };
    Source { arrivals, cost: Cost::Constant(Work::from_ns(cost)) }
}

/// Calls `each` with every order of the children of all `fp` schedulers; stops if it returns true.
fn any_order(tree: &mut Tree, schedulers: &[NodeId], each: &mut dyn FnMut(&Tree) -> bool) -> bool {
    let Some((&first, rest)) = schedulers.split_first() else { return each(tree) };
    let children: Vec<NodeId> = tree.children(first).map(|(id, _)| id).collect();
    permute(tree, &children, 1, rest, each)
}

fn permute(
    tree: &mut Tree,
    open: &[NodeId],
    level: u8,
    rest: &[NodeId],
    each: &mut dyn FnMut(&Tree) -> bool,
) -> bool {
    if open.is_empty() {
        return any_order(tree, rest, each);
    }
    open.iter().any(|&node| {
        match &mut tree.get_mut(node).expect("a child").spec {
            NodeSpec::Task(spec) => spec.priority = level,
            NodeSpec::Scheduler(spec) => spec.overrides.priority = Some(level),
        }
        let others: Vec<NodeId> = open.iter().copied().filter(|&other| other != node).collect();
        permute(tree, &others, level + 1, rest, each)
    })
}

/// Whether a job is late in four hyperperiods, with the phases of the sources.
fn is_late(model: &RootModel<'_>) -> bool {
    let workload = Workload { sources: model.sources.to_vec(), seed: 1 };
    let cpus = model.tree.cpus;
    let world = Simulation::new(model.tree.build().expect("a tree"), cpus, &workload);
    let mut jobs = Jobs::default();
    world.with_cost_mode(CostMode::Worst).run(Time::from_ns(4 * 48), &mut jobs);
    jobs.ended.iter().any(|job| job.end > job.deadline)
}

#[test]
fn priorities_are_found_if_any_order_is_proved() {
    let mut rng = rng(27);
    // Per part: found, stuck, and refuted.
    let mut seen = [[0u32; 3]; PARTS.len()];
    let mut better = 0;
    for round in 0..rounds(700) {
        let at = round as usize % PARTS.len();
        let part = PARTS[at];
        let (tree, sources) = random(&mut rng, part);
        let phases_known = part == Part::Phases;
        let model = RootModel::new(&tree, &sources).with_phases_known(phases_known);
        let schedulers: Vec<NodeId> = tree
            .nodes()
            .filter(|(_, node)| matches!(node.spec, NodeSpec::Scheduler(_)))
            .map(|(id, _)| id)
            .collect();
        let any = |passes: &dyn Fn(&RootModel<'_>) -> bool| {
            any_order(&mut tree.clone(), &schedulers, &mut |tree| {
                passes(&RootModel::new(tree, &sources).with_phases_known(phases_known))
            })
        };
        match assign_priorities(&model) {
            PriorityAssignment::Found(found) => {
                let again = RootModel::new(&found, &sources).with_phases_known(phases_known);
                assert!(again.are_proved(), "{part:?}: {found:?}");
                seen[at][0] += 1;
                better += u32::from(!model.are_proved());
            }
            PriorityAssignment::Stuck { nodes, hopeless, refuted } => {
                assert!(!nodes.is_empty() && hopeless.iter().all(|one| nodes.contains(one)));
                let NodeSpec::Scheduler(root) = &tree.get(Tree::ROOT).expect("a root").spec else {
                    panic!("a root is a scheduler");
                };
                if part != Part::Phases || root.preemptive {
                    assert!(!any(&|model| model.are_proved()), "{part:?}: {nodes:?} of {tree:?}");
                }
                if refuted {
                    // Jitter is random in a simulation, and need not be at its worst.
                    let is_met = |model: &RootModel<'_>| part != Part::Jitter && !is_late(model);
                    assert!(!any(&is_met), "{part:?}: {nodes:?} of {tree:?}");
                    seen[at][2] += 1;
                }
                seen[at][1] += 1;
            }
            PriorityAssignment::NotFound if part == Part::Global => seen[at][1] += 1,
            other => panic!("{part:?}: {other:?}"),
        }
    }
    println!("found, stuck, refuted of {PARTS:?}: {seen:?}; {better} where the file's are not");
    assert!(seen.iter().all(|&[found, stuck, _]| found > 5 && stuck > 5), "{seen:?}");
    assert!(better > 20 && seen.iter().map(|of| of[2]).sum::<u32>() > 20, "{seen:?}");
}
