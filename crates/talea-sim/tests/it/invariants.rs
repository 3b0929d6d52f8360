//! Properties of random trees: the four invariants after every event (S2, S3), equivalence of EDF
//! trees (S5), and determinism.

use crate::bridge;
use crate::drive::{Drive, Record, replay};
use crate::reference::server::{Kind as ServerKind, Spec};
use crate::reference::{Group, Interference, Kind, Node, Order, System, Task};
use crate::soak;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Arrivals, Cost, Jobs, Simulation, Source, Workload};

/// Generates a tree of `depth` levels. Each level has one scheduler among other nodes, with every
/// valid policy and server.
fn deep(seed: u64, depth: u64) -> System {
    let mut rng = Rng::new(seed);
    let cpus = if rng.below(3) == 0 { rng.between(2, 3) as usize } else { 1 };
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
            let groups = if level == 0 { 1 } else { rng.between(1, 2).min(1 + 8 / depth) };
            for _ in 0..groups {
                let under_fp = parent == Some(0)
                    && matches!(&nodes[0].kind, Kind::Group(Group { order: Order::Fp, .. }));
                let may_share = (level == 0 && cpus == 1) || is_table(&nodes, parent) || under_fp;
                let order = match rng.below(if may_share { 9 } else { 7 }) {
                    0 => Order::Edf,
                    1 => Order::Fp,
                    2 => Order::Rm,
                    3 => Order::Dm,
                    4 => Order::Criticality,
                    5 => Order::Fifo,
                    6 if level == 0 && cpus > 1 => Order::Edf,
                    6 => Order::RoundRobin { quantum: rng.between(1, 4) },
                    more => {
                        let start = rng.below(3);
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
                let period = rng.between(4, 20);
                let deadline = rng.between(2, period);
                let server = Spec {
                    kind: kinds[rng.below(5) as usize],
                    budget: rng.between(1, deadline),
                    period,
                    deadline,
                    offset: rng.below(period),
                };
                let server = (!in_table && level > 0 && rng.below(3) == 0).then_some(server);
                let own_priority = (rng.below(3) == 0).then(|| rng.below(5));
                let group = Group { order, preemptive: rng.below(4) > 0, own_priority, server };
                nodes.push(Node { parent, kind: Kind::Group(group) });
                below.push(nodes.len() - 1);
            }
        }
        parents = below.into_iter().map(Some).collect();
    }
    // Two tasks below every group without a group, one below the others.
    for group in 0..nodes.len() {
        let has_group = nodes.iter().any(|node| node.parent == Some(group));
        for _ in 0..if has_group { 1 } else { 2 } {
            let period = rng.between(3, 40);
            let task = Task {
                period,
                deadline: rng.between(2, 60),
                priority: rng.below(5),
                criticality: rng.below(3),
                enforced: rng.below(4) == 0,
                capacity: rng.below(4) as usize,
                arrivals: vec![],
                costs: vec![1],
                accelerator: None,
                suspends: None,
            };
            nodes.push(Node { parent: Some(group), kind: Kind::Task(task) });
        }
    }
    System { cpus, bound: rng.below(2) == 0, nodes, interference: Interference::default() }
}

#[test]
fn s2_s3_random_trees_of_up_to_eight_levels_keep_the_invariants_and_replay_equally() {
    let (mut events, mut orders) = (0, 0);
    // S2 and S3 require 200 trees; a million events are many more instants each.
    let trees = soak::many(200, 400);
    for case in 0..trees {
        let (tree, _) = bridge::tree(&deep(soak::seed(case), 1 + case % 8));
        let mut drive = Drive::new(&tree, case);
        drive.run(soak::many(300, 6_000));
        events += drive.log.iter().filter(|passed| matches!(passed, Record::Input(..))).count();
        orders += drive.log.iter().filter(|passed| matches!(passed, Record::Ordered(..))).count();
        assert_eq!(replay(&tree, &drive.log), drive.log, "case {case}");
    }
    assert!(
        events as u64 >= soak::many(50_000, 1_000_000) && orders > 5_000,
        "{events} events, {orders} orders"
    );
}

/// Generates one of Fig. 9's sets: 32 tasks of 10 to 40 ms, U from 50 to 90 per cent.
fn figure_9(rng: &mut Rng) -> Vec<(u64, u64)> {
    let parts = rng.between(500, 900);
    let costs: Vec<u64> = (0..32).map(|_| rng.between(10_000_000, 40_000_000)).collect();
    costs.into_iter().map(|cost| (cost, (cost * 32 * 1_000).div_ceil(parts))).collect()
}

/// Builds an EDF tree with two children per scheduler: 2^(levels - 1) schedulers have tasks.
fn edf_tree(set: &[(u64, u64)], levels: u32) -> Tree {
    let edf = || SchedulerSpec::new("edf", PolicySpec::Edf);
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
    let mut rng = Rng::new(9);
    for _ in 0..50 {
        let set = figure_9(&mut rng);
        let sources = set
            .iter()
            .map(|&(cost, period)| Source::periodic(Span::from_ns(period), Work::from_ns(cost)));
        let workload = Workload { sources: sources.collect(), seed: 0 };
        let mut first: Option<Jobs> = None;
        for levels in 1..=5 {
            let tree = edf_tree(&set, levels);
            let mut simulation = Simulation::new(tree.build().expect("a tree"), 1, &workload);
            let mut jobs = Jobs::default();
            simulation.run(Time::from_ns(10_000_000_000), &mut jobs);
            assert!(jobs.ended.len() > 100 && jobs.ended.iter().all(|job| !job.is_late()));
            assert_eq!(first.get_or_insert_with(|| jobs.clone()), &jobs, "{levels} levels");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed: u64| {
        let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
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
                    extra_separation: Span::from_ns(9),
                }
            };
            let cost = Cost::Uniform { min: Work::from_ns(1), max: Work::from_ns(5) };
            workload.sources.push(Source { arrivals, cost });
        }
        let mut jobs = Jobs::default();
        Simulation::new(tree.build().expect("a tree"), 2, &workload)
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
            extra_separation: Span::from_ns(90),
        };
        Source { arrivals, cost: Cost::Uniform { min: Work::from_ns(1), max: Work::from_ns(100) } }
    };
    let draw = |seed: u64| {
        let workload = Workload { sources: vec![source(), source()], seed };
        talea_sim::generate_jobs(&workload, Time::from_ns(1_000), |_| 0)
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
