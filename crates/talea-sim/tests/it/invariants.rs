//! Properties of random trees: the four invariants after every event (S2, S3), equivalence of EDF
//! trees (S5), and that the same goes in and the same comes out.

use crate::bridge;
use crate::drive::{Drive, Passed, replay};
use crate::naive::server::{Kind as ServerKind, Spec};
use crate::naive::{Group, Kind, Node, Order, Spoiled, System, Task};
use crate::soak;
use talea_core::machine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::{Span, Time, Work};
use talea_sim::dice::Dice;
use talea_sim::{Arrivals, Cost, Jobs, Source, Workload, World};

/// A tree of so many levels: at each a group among others, with every policy and server where they
/// may stand.
fn deep(seed: u64, depth: u64) -> System {
    let mut dice = Dice::new(seed);
    let cpus = if dice.below(3) == 0 { dice.between(2, 3) as usize } else { 1 };
    let mut nodes: Vec<Node> = vec![];
    let mut parents: Vec<Option<usize>> = vec![None];
    let is_table = |nodes: &[Node], at: Option<usize>| {
        at.is_some_and(|at| {
            matches!(&nodes[at].kind, Kind::Group(Group { order: Order::Table { .. }, .. }))
        })
    };
    for level in 0..depth {
        let mut below = vec![];
        for parent in parents {
            let groups = if level == 0 { 1 } else { dice.between(1, 2).min(1 + 8 / depth) };
            for _ in 0..groups {
                let under_fp = parent == Some(0)
                    && matches!(&nodes[0].kind, Kind::Group(Group { order: Order::Fp, .. }));
                let may_share = (level == 0 && cpus == 1) || is_table(&nodes, parent) || under_fp;
                let order = match dice.below(if may_share { 9 } else { 7 }) {
                    0 => Order::Edf,
                    1 => Order::Fp,
                    2 => Order::Rm,
                    3 => Order::Dm,
                    4 => Order::Criticality,
                    5 => Order::Fifo,
                    6 if level == 0 && cpus > 1 => Order::Edf,
                    6 => Order::RoundRobin { quantum: dice.between(1, 4) },
                    more => {
                        let start = dice.below(3);
                        let slots = vec![(start, start + 4, 0), (start + 5, start + 9, 1)];
                        Order::Table { frame: start + 9, slots, lending: more == 8 }
                    }
                };
                let mut above = parent;
                let mut in_table = false;
                while let Some(at) = above {
                    in_table |= is_table(&nodes, above);
                    above = nodes[at].parent;
                }
                let kinds = [
                    ServerKind::Polling,
                    ServerKind::Deferrable,
                    ServerKind::Sporadic,
                    ServerKind::HardCbs,
                    ServerKind::SoftCbs,
                ];
                let period = dice.between(4, 20);
                let deadline = dice.between(2, period);
                let server = Spec {
                    kind: kinds[dice.below(5) as usize],
                    budget: dice.between(1, deadline),
                    period,
                    deadline,
                    offset: dice.below(period),
                };
                let server = (!in_table && level > 0 && dice.below(3) == 0).then_some(server);
                let own_priority = (dice.below(3) == 0).then(|| dice.below(5));
                let group = Group { order, preemptive: dice.below(4) > 0, own_priority, server };
                nodes.push(Node { parent, kind: Kind::Group(group) });
                below.push(nodes.len() - 1);
            }
        }
        parents = below.into_iter().map(Some).collect();
    }
    // Two tasks below every group that has no group, one below the others.
    for group in 0..nodes.len() {
        let has_group = nodes.iter().any(|node| node.parent == Some(group));
        for _ in 0..if has_group { 1 } else { 2 } {
            let period = dice.between(3, 40);
            let task = Task {
                period,
                deadline: dice.between(2, 60),
                priority: dice.below(5),
                criticality: dice.below(3),
                enforced: dice.below(4) == 0,
                capacity: dice.below(4) as usize,
                arrivals: vec![],
                costs: vec![1],
                accelerator: None,
                suspends: None,
            };
            nodes.push(Node { parent: Some(group), kind: Kind::Task(task) });
        }
    }
    System { cpus, bound: dice.below(2) == 0, nodes, spoiled: Spoiled::default() }
}

#[test]
fn s2_s3_random_trees_of_one_to_eight_levels_keep_the_invariants_after_every_event_and_replay_alike()
 {
    let (mut events, mut orders) = (0, 0);
    // 200 are the row's; a million events are many more instants each.
    let trees = soak::many(200, 400);
    for case in 0..trees {
        let (tree, _) = bridge::tree(&deep(soak::seed(case), 1 + case % 8));
        let mut drive = Drive::new(&tree, case);
        drive.run(soak::many(300, 6_000));
        events += drive.log.iter().filter(|passed| matches!(passed, Passed::Told(..))).count();
        orders += drive.log.iter().filter(|passed| matches!(passed, Passed::Ordered(..))).count();
        assert_eq!(replay(&tree, &drive.log), drive.log, "case {case}");
    }
    assert!(
        events as u64 >= soak::many(50_000, 1_000_000) && orders > 5_000,
        "{events} events, {orders} orders"
    );
}

/// One of Fig. 9's sets: 32 tasks of 10 to 40 ms, U from 50 to 90 per cent.
fn figure_9(dice: &mut Dice) -> Vec<(u64, u64)> {
    let parts = dice.between(500, 900);
    let costs: Vec<u64> = (0..32).map(|_| dice.between(10_000_000, 40_000_000)).collect();
    costs.into_iter().map(|cost| (cost, (cost * 32 * 1_000).div_ceil(parts))).collect()
}

/// EDF trees with two children a scheduler: 2^(levels - 1) of them have tasks.
fn edf_tree(set: &[(u64, u64)], levels: u32) -> Tree {
    let edf = || SchedulerSpec::new("edf", Policy::Edf);
    let mut tree = Tree::new(1, edf());
    let mut leaves = vec![Tree::ROOT];
    for _ in 1..levels {
        leaves = leaves
            .iter()
            .flat_map(|&above| [tree.scheduler(above, edf()), tree.scheduler(above, edf())])
            .collect();
    }
    for (at, &(_, period)) in set.iter().enumerate() {
        tree.task(
            leaves[at * leaves.len() / set.len()],
            TaskSpec::new("task", Span::from_ns(period)),
        );
    }
    tree
}

#[test]
fn s5_edf_trees_of_one_to_five_levels_are_one_schedule() {
    let mut dice = Dice::new(9);
    for _ in 0..50 {
        let set = figure_9(&mut dice);
        let sources = set
            .iter()
            .map(|&(cost, period)| Source::periodic(Span::from_ns(period), Work::from_ns(cost)));
        let workload = Workload { sources: sources.collect(), seed: 0 };
        let mut first: Option<Jobs> = None;
        for levels in 1..=5 {
            let tree = edf_tree(&set, levels);
            let mut world = World::new(tree.build().expect("a tree"), 1, &workload);
            let mut jobs = Jobs::default();
            world.run(Time::from_ns(10_000_000_000), &mut jobs);
            assert!(jobs.ended.len() > 100 && jobs.ended.iter().all(|job| !job.is_late()));
            assert_eq!(first.get_or_insert_with(|| jobs.clone()), &jobs, "{levels} levels");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed: u64| {
        let mut tree = Tree::new(2, SchedulerSpec::new("root", Policy::Edf));
        let mut workload = Workload { sources: vec![], seed };
        for task in 0..6 {
            let period = Span::from_ns(10 + 3 * task);
            tree.task(Tree::ROOT, TaskSpec::new("task", period));
            let arrivals = if task % 2 == 0 {
                Arrivals::Periodic { offset: Span::ZERO, period, jitter: Span::from_ns(5) }
            } else {
                Arrivals::Sporadic {
                    offset: Span::from_ns(task),
                    separation: period,
                    slack: Span::from_ns(9),
                }
            };
            let cost = Cost::Uniform { min: Work::from_ns(1), max: Work::from_ns(5) };
            workload.sources.push(Source { arrivals, cost });
        }
        let mut jobs = Jobs::default();
        World::new(tree.build().expect("a tree"), 2, &workload)
            .run(Time::from_ns(10_000), &mut jobs);
        jobs
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!(run(1).ended.len() > 1_000);
}

#[test]
fn arrivals_and_costs_depend_on_the_seed_and_on_the_task_each() {
    let source = || {
        let arrivals = Arrivals::Sporadic {
            offset: Span::ZERO,
            separation: Span::from_ns(10),
            slack: Span::from_ns(90),
        };
        Source { arrivals, cost: Cost::Uniform { min: Work::from_ns(1), max: Work::from_ns(100) } }
    };
    let draw = |seed: u64| {
        let workload = Workload { sources: vec![source(), source()], seed };
        talea_sim::draw(&workload, Time::from_ns(1_000), |_| 0)
    };
    let (one, other) = (draw(1), draw(2));
    for (a, b) in [(&one[0], &other[0]), (&one[1], &other[1]), (&one[0], &one[1])] {
        assert_ne!(a.arrivals, b.arrivals);
        assert_ne!(a.costs, b.costs);
    }
    assert_eq!(draw(1), one);
    let distances = one[0].arrivals.windows(2).map(|pair| pair[1].0.since(pair[0].0).as_ns());
    assert!(distances.into_iter().all(|distance| (10..=100).contains(&distance)));
}
