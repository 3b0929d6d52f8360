//! Flat roots with jobs that suspend themselves: no simulated response exceeds its bound, also in
//! all phases and with all suspensions of small sets.

use super::flat::simulate;
use super::random_trees::{Family, RandomTree, random_tree};
use super::simulated::{Tally, check};
use crate::rng::{Rng, rng, rounds};
use talea_analysis::tree::{Reason, RootModel};
use talea_analysis::uni::Scratch;
use talea_analysis::uni::suspension::{Suspending, fp_bounds};
use talea_core::engine::{NodeSpec, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Work};

const POLICIES: [PolicySpec; 4] = [
    PolicySpec::FixedPriority,
    PolicySpec::RateMonotonic,
    PolicySpec::DeadlineMonotonic,
    PolicySpec::Edf,
];

fn ns(ns: u64) -> Span {
    Span::from_ns(ns)
}

fn random(rng: &mut Rng, policy: &PolicySpec) -> (Tree, Vec<Source>) {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", policy.clone()));
    let mut sources = Vec::new();
    for _ in 0..rng.between(1, 4) {
        let period = rng.between(6, 30);
        let mut spec = TaskSpec::new("task", ns(period));
        spec.deadline = ns(rng.between(4, 40));
        spec.priority = rng.below(12) as u8;
        let most = rng.between(1, period / 3);
        let mut cost = match rng.below(3) {
            0 => Cost::Uniform { min: Work::from_ns(1), max: Work::from_ns(most) },
            _ => Cost::Constant(Work::from_ns(most)),
        };
        for _ in 0..rng.below(3) {
            cost = cost.suspending(Work::from_ns(rng.below(most)), ns(rng.between(1, period / 3)));
        }
        let arrivals = match rng.below(3) {
            0 => Arrivals::Sporadic {
                offset: ns(rng.below(20)),
                separation: ns(period),
                extra_separation: ns(rng.below(9)),
            },
            _ => Arrivals::Periodic {
                offset: ns(rng.below(20)),
                period: ns(period),
                jitter: ns(rng.below(4) / 3 * rng.below(9)),
            },
        };
        tree.task(Tree::ROOT, spec);
        sources.push(Source { arrivals, cost });
    }
    (tree, sources)
}

#[test]
fn no_simulated_response_of_suspending_tasks_exceeds_its_bound() {
    let mut rng = rng(2_016);
    let (mut bounded, mut reached, mut none) = (0, 0, 0);
    for round in 0..rounds(4_000) {
        let (tree, sources) = random(&mut rng, &POLICIES[round as usize % 4]);
        let bounds = RootModel::new(&tree, &sources).bounds();
        let longest = simulate(&tree, &sources, round, 600);
        for (bound, longest) in bounds.iter().zip(longest) {
            if bound.test.name != "self-suspension" {
                continue;
            }
            let Ok(most) = bound.bound else {
                none += 1;
                continue;
            };
            assert!(longest <= most, "{longest} exceeds {most}: {tree:?} {sources:?}");
            bounded += 1;
            reached += u64::from(longest == most);
        }
    }
    println!("{bounded} bounded, {reached} reached, {none} without");
    assert!(bounded > 3_000 && reached > 300, "{bounded} {reached}");
}

/// Three tasks under fixed priorities: all phases, and all offsets of the suspensions of the first
/// two.
#[test]
fn all_phases_and_suspensions_of_small_sets_are_within_the_bounds() {
    let (mut sets, mut reached) = (0, 0);
    for (costs, suspensions) in [
        ([1, 2, 2], [2, 0, 0]),
        ([2, 1, 2], [1, 1, 0]),
        ([1, 2, 1], [1, 2, 1]),
        ([2, 2, 1], [0, 2, 1]),
        ([1, 1, 3], [3, 2, 0]),
    ] {
        for periods in [[5, 7, 10], [6, 8, 12], [5, 10, 10]] {
            let mut longest = [Span::ZERO; 3];
            let mut bounds = Vec::new();
            for case in 0..periods[0] * periods[1] * costs[0] * costs[1] {
                let offsets = [case % periods[0], case / periods[0] % periods[1], 0];
                let rest = case / (periods[0] * periods[1]);
                let after = [rest % costs[0], rest / costs[0], 0];
                let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
                let mut sources = Vec::new();
                for task in 0..3 {
                    let mut spec = TaskSpec::new("task", ns(periods[task]));
                    spec.priority = 3 - task as u8;
                    tree.task(Tree::ROOT, spec);
                    let mut cost = Cost::Constant(Work::from_ns(costs[task]));
                    if suspensions[task] > 0 {
                        let after = Work::from_ns(after[task]);
                        cost = cost.suspending(after, ns(suspensions[task]));
                    }
                    let arrivals = Arrivals::Periodic {
                        offset: ns(offsets[task]),
                        period: ns(periods[task]),
                        jitter: Span::ZERO,
                    };
                    sources.push(Source { arrivals, cost });
                }
                let of = RootModel::new(&tree, &sources).bounds();
                for (task, found) in simulate(&tree, &sources, 0, 200).into_iter().enumerate() {
                    if let Ok(most) = of[task].bound {
                        assert!(found <= most, "task {task}: {tree:?} {sources:?}");
                    }
                    longest[task] = longest[task].max(found);
                }
                bounds = of;
            }
            sets += 3;
            for (bound, longest) in bounds.iter().zip(longest) {
                reached += u64::from(bound.bound.as_ref().is_ok_and(|&most| most == longest));
            }
        }
    }
    println!("{reached} of {sets} bounds reached");
    assert!(sets == 45 && reached > 15, "{reached}");
}

/// The framework is at least as tight as suspension as work, and as jitter.
#[test]
fn the_unified_bound_is_at_most_the_oblivious_one() {
    let task = |cost, suspension, period, level| Suspending {
        task: crate::rng::task(cost, period, period),
        suspension: ns(suspension),
        level,
    };
    // As work: 6 + 2 · 5 = 16. As jitter: 6 + 2 · 2 = 10.
    let set = [task(2, 3, 10, 0), task(6, 0, 20, 1)];
    let found = fp_bounds(&set, &mut Scratch::new()).expect("bounds");
    assert_eq!(found, [Some(ns(5)), Some(ns(10))]);
    // In one level the second task may have to wait for the first, and the first for the second.
    let set = [task(2, 3, 20, 0), task(4, 0, 20, 0)];
    let found = fp_bounds(&set, &mut Scratch::new()).expect("bounds");
    assert_eq!(found, [Some(ns(9)), Some(ns(9))]);
}

/// A task that may be late for its next job delays others by more than its response without work.
#[test]
fn the_unified_bound_needs_responses_within_the_periods() {
    let task = |cost, suspension, period, level| Suspending {
        task: crate::rng::task(cost, period, period),
        suspension: ns(suspension),
        level,
    };
    let set = [task(2, 0, 4, 0), task(2, 1, 6, 1), task(1, 0, 100, 2)];
    let found = fp_bounds(&set, &mut Scratch::new()).expect("bounds");
    assert_eq!(found, [Some(ns(2)), Some(ns(7)), None]);
}

#[test]
fn other_roots_with_suspensions_have_no_bounds() {
    let reasons = |change: &dyn Fn(&mut SchedulerSpec)| {
        let mut root = SchedulerSpec::new("root", PolicySpec::FixedPriority);
        change(&mut root);
        let mut tree = Tree::new(1, root);
        tree.task(Tree::ROOT, TaskSpec::new("task", ns(10)));
        let arrivals =
            Arrivals::Periodic { offset: Span::ZERO, period: ns(10), jitter: Span::ZERO };
        let cost = Cost::Constant(Work::from_ns(2)).suspending(Work::from_ns(1), ns(3));
        let sources = [Source { arrivals, cost }];
        RootModel::new(&tree, &sources).bounds()[0].bound.clone().map_err(|no| no.reason)
    };
    assert_eq!(reasons(&|_| ()), Ok(ns(5)));
    assert_eq!(reasons(&|root| root.preemptive = false), Err(Reason::Suspension));
    assert_eq!(reasons(&|root| root.policy = PolicySpec::Fifo), Err(Reason::Suspension));
}

/// Replaces what excludes the tree from the test, and lets some jobs suspend themselves.
fn suspend_some(rng: &mut Rng, system: &mut RandomTree) -> bool {
    let tree = &mut system.tree;
    let nodes: Vec<_> = tree.nodes().map(|(id, _)| id).collect();
    for id in nodes {
        let above: Vec<_> = tree.ancestors(id).map(|(_, above)| above.clone()).collect();
        let is_keyed = above.first().is_some_and(|above| {
            !matches!(above.policy, PolicySpec::Edf | PolicySpec::Partitions { .. })
        });
        let can_serve = is_keyed && above.iter().all(|above| above.reservation.is_none());
        let Some(NodeSpec::Scheduler(spec)) = tree.get_mut(id).map(|node| &mut node.spec) else {
            continue;
        };
        match &mut spec.policy {
            PolicySpec::Fifo | PolicySpec::RoundRobin { .. } => {
                spec.policy = PolicySpec::FixedPriority;
            }
            PolicySpec::Partitions { lending, .. } => *lending = false,
            _ => {}
        }
        spec.reservation = spec.reservation.filter(|_| can_serve);
        if let Some(server) = &mut spec.reservation {
            server.kind = ServerKind::Deferrable;
        }
    }
    let mut suspends = false;
    for source in &mut system.workload.sources {
        for _ in 0..rng.below(6) / 3 {
            let after = Work::from_ns(rng.below(source.cost.max().as_ns() + 1));
            source.cost = source.cost.clone().suspending(after, ns(rng.between(1, 4)));
            suspends = true;
        }
    }
    suspends
}

#[test]
fn no_response_of_suspending_tasks_in_a_tree_exceeds_its_bound() {
    let mut rng = rng(2_019);
    for family in [Family::Mixed, Family::Partitions, Family::Band] {
        let mut tally = Tally::default();
        for _ in 0..rounds(3_000) {
            let mut system = random_tree(&mut rng, family);
            if suspend_some(&mut rng, &mut system) {
                check(&system, &mut tally);
            }
        }
        let Tally { tasks, bounded, reached, .. } = tally;
        println!("{family:?}: {bounded} of {tasks} with a bound, {reached} reached");
        assert!(bounded * 5 > tasks && reached > 50, "{family:?}");
    }
}

/// Returns the longest simulated response and the bound of a task below a server that is above all
/// other tasks.
fn below_server(kind: ServerKind) -> (Span, Result<Span, Reason>) {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let mut server = SchedulerSpec::new("server", PolicySpec::FixedPriority);
    server.reservation = Some(Reservation::new(kind, Work::from_ns(10), ns(20)));
    let server = tree.scheduler(Tree::ROOT, server);
    tree.task(server, TaskSpec::new("task", ns(100)));
    let arrivals = Arrivals::Periodic { offset: ns(1), period: ns(100), jitter: Span::ZERO };
    let cost = Cost::Constant(Work::from_ns(2)).suspending(Work::from_ns(1), ns(1));
    let sources = [Source { arrivals, cost }];
    let bound = RootModel::new(&tree, &sources).bounds()[0].bound.clone();
    (simulate(&tree, &sources, 0, 400)[0], bound.map_err(|no| no.reason))
}

/// Work of 3 ns would complete 22 ns after its arrival at the latest. But a polling server discards
/// its budget when the job suspends itself, so that the job completes in the second period.
#[test]
fn a_server_that_discards_its_budget_has_no_bound_for_jobs_that_suspend_themselves() {
    assert_eq!(below_server(ServerKind::Polling), (ns(40), Err(Reason::Suspension)));
    // 10 ns without a budget, and 2 + 1 ns.
    assert_eq!(below_server(ServerKind::Deferrable), (ns(3), Ok(ns(13))));
}

#[test]
fn suspensions_that_overload_a_partition_as_work_are_no_overload() {
    let partition = SchedulerSpec::new("partition", PolicySpec::FixedPriority);
    let slot = Slot { start: Span::ZERO, end: ns(5), owner: 0 };
    let policy = PolicySpec::Partitions { frame: ns(10), slots: vec![slot], lending: false };
    let mut tree = Tree::new(1, SchedulerSpec::new("table", policy));
    let partition = tree.scheduler(Tree::ROOT, partition);
    tree.task(partition, TaskSpec::new("task", ns(10)));
    let arrivals = Arrivals::Periodic { offset: Span::ZERO, period: ns(10), jitter: Span::ZERO };
    let bound = |suspension| {
        let cost = Cost::Constant(Work::from_ns(2)).suspending(Work::from_ns(1), ns(suspension));
        let sources = [Source { arrivals: arrivals.clone(), cost }];
        RootModel::new(&tree, &sources).bounds()[0].bound.clone().map_err(|no| no.reason)
    };
    // 5 ns without the slot, and 2 + 1 ns.
    assert_eq!(bound(1), Ok(ns(8)));
    assert_eq!(bound(4), Err(Reason::Insufficient));
}
