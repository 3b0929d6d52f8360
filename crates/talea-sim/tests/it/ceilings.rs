//! Ceilings for which the smallest relative deadline is no floor: late jobs, nodes of graphs, users
//! below servers and schedulers (docs/model.md, section 10).

use crate::harness::{Log, cost, listed, run, span, task, work};
use crate::soak;
use talea_core::criteria::Overrides;
use talea_core::engine::{Notification, Protocol, ResourceId, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_sim::rng::Rng;
use talea_sim::{Arrivals, Cost, Source};

fn is_deadlocked(log: &Log) -> bool {
    log.notifications
        .iter()
        .any(|(_, notification)| matches!(notification, Notification::Deadlock { .. }))
}

fn served(budget: u64, period: u64) -> SchedulerSpec {
    let mut spec = SchedulerSpec::new("s", PolicySpec::Edf);
    spec.reservation = Some(Reservation::new(ServerKind::HardCbs, work(budget), span(period)));
    spec
}

/// Builds a tree with one CPU and two resources with ceilings.
fn two(policy: PolicySpec) -> (Tree, ResourceId, ResourceId) {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
    let (r1, r2) = (tree.resource("r1", Protocol::Ceiling), tree.resource("r2", Protocol::Ceiling));
    (tree, r1, r2)
}

/// Returns a cost of 10, with the first resource from 1 to 9 and, nested, the second from 4 to 7.
fn outer(first: ResourceId, second: ResourceId) -> Cost {
    cost(10).locking(first, work(1), work(9)).locking(second, work(4), work(7))
}

/// Returns a cost of 9, with the first resource from 1 to 8 and, nested, the second from 3 to 5.
fn inner(first: ResourceId, second: ResourceId) -> Cost {
    cost(9).locking(first, work(1), work(8)).locking(second, work(3), work(5))
}

#[test]
fn ceilings_with_jitter_know_no_deadlock() {
    let (mut tree, r1, r2) = two(PolicySpec::Edf);
    let uses = vec![r1, r2];
    tree.task(Tree::ROOT, TaskSpec { uses: uses.clone(), ..TaskSpec::new("H", span(100)) });
    tree.task(Tree::ROOT, TaskSpec { uses, deadline: span(30), ..TaskSpec::new("U", span(40)) });
    let arrivals = |period, jitter| Arrivals::Periodic {
        offset: span(0),
        period: span(period),
        jitter: span(jitter),
    };
    let sources = [
        Source { arrivals: arrivals(100, 0), cost: outer(r1, r2) },
        Source { arrivals: arrivals(40, 20), cost: inner(r2, r1) },
    ];
    let log = run(&tree, &sources, 20_000);
    assert!(!is_deadlocked(&log) && log.refused.is_empty());
    assert!(log.ends(0).len() >= 199 && log.ends(1).len() >= 499, "{}", log.ended.len());
}

#[test]
fn ceilings_with_a_user_behind_a_server_know_no_deadlock() {
    for server_first in [false, true] {
        let (mut tree, r1, r2) = two(PolicySpec::Edf);
        let uses = vec![r1, r2];
        let (h, u) =
            (TaskSpec { uses: uses.clone(), ..task("H", 100) }, TaskSpec { uses, ..task("U", 90) });
        let mut sources = vec![listed(&[0], outer(r1, r2)), listed(&[3], inner(r2, r1))];
        if server_first {
            let server = tree.scheduler(Tree::ROOT, served(10, 20));
            tree.task(server, u);
            tree.task(Tree::ROOT, h);
            sources.reverse();
        } else {
            tree.task(Tree::ROOT, h);
            let server = tree.scheduler(Tree::ROOT, served(10, 20));
            tree.task(server, u);
        }
        let log = run(&tree, &sources, 1_000);
        assert!(!is_deadlocked(&log));
        assert_eq!(log.ended.len(), 2, "{log:?}");
    }
}

#[test]
fn a_ceiling_undercut_by_a_server_still_blocks_the_medium_job() {
    // H has r from 1; U arrives at 3 behind a server with the deadline 23, M at 5 with 55.
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
    let r = tree.resource("r", Protocol::Ceiling);
    tree.task(Tree::ROOT, TaskSpec { uses: vec![r], ..task("H", 100) });
    let server = tree.scheduler(Tree::ROOT, served(5, 20));
    tree.task(server, TaskSpec { uses: vec![r], ..task("U", 90) });
    tree.task(Tree::ROOT, task("M", 50));
    let locking = |of: u64, to: u64| cost(of).locking(r, work(1), work(to));
    let sources =
        [listed(&[0], locking(10, 9)), listed(&[3], locking(3, 2)), listed(&[5], cost(20))];
    let log = run(&tree, &sources, 1_000);
    assert_eq!([log.ends(1), log.ends(2), log.ends(0)], [[12], [32], [33]]);
}

#[test]
fn a_ceiling_over_a_node_of_a_graph_has_the_deadline_that_the_node_carries() {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
    let r = tree.resource("r", Protocol::Ceiling);
    let source = tree.task(Tree::ROOT, task("src", 20));
    let node = tree.task(Tree::ROOT, TaskSpec { uses: vec![r], inherits: true, ..task("n", 1) });
    tree.task(Tree::ROOT, TaskSpec { uses: vec![r], ..task("H", 100) });
    tree.task(Tree::ROOT, task("M", 13));
    tree.channel(source, node, 0);
    let sources = [
        listed(&[0], cost(4).suspending(work(1), span(4))),
        Source::activated(cost(3).locking(r, work(1), work(2))),
        listed(&[1], cost(10).locking(r, work(1), work(9))),
        listed(&[8], cost(5)),
    ];
    // src 0-1, H 1-5 with r from 2, src 5-8; n is released with 20, before M's 21, and H's floor is
    // 22.
    let log = run(&tree, &sources, 1_000);
    assert_eq!((log.late(), log.ended.len()), (0, 4), "{log:?}");
}

#[test]
fn a_ceiling_over_a_group_with_values_of_its_own_counts_with_its_tasks_deadline() {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
    let r = tree.resource("r", Protocol::Ceiling);
    tree.task(Tree::ROOT, TaskSpec { uses: vec![r], ..task("H", 100) });
    let own = Overrides { relative_deadline: Some(span(50)), ..Overrides::default() };
    let group = tree.scheduler(
        Tree::ROOT,
        SchedulerSpec { overrides: own, ..SchedulerSpec::new("g", PolicySpec::Edf) },
    );
    tree.task(group, TaskSpec { uses: vec![r], ..task("U", 10) });
    tree.task(Tree::ROOT, task("M", 30));
    let locking = |of: u64, to: u64| cost(of).locking(r, work(1), work(to));
    let sources =
        [listed(&[0], locking(10, 9)), listed(&[500], locking(3, 2)), listed(&[2], cost(5))];
    // The floor is 11: M has to wait until 9.
    let log = run(&tree, &sources, 1_000);
    assert_eq!([log.ends(2), log.ends(0), log.ends(1)], [[14], [15], [503]]);
}

#[test]
fn ceilings_that_equal_a_key_know_no_deadlock() {
    // Under rate monotonic a ceiling is the period of its most urgent user, and ties go to the
    // lower number.
    let (mut tree, r1, r2) = two(PolicySpec::RateMonotonic);
    let uses = vec![r1, r2];
    tree.task(Tree::ROOT, TaskSpec { uses: uses.clone(), ..TaskSpec::new("U", span(200)) });
    tree.task(Tree::ROOT, TaskSpec { uses, ..TaskSpec::new("H", span(500)) });
    let log = run(&tree, &[listed(&[3], inner(r2, r1)), listed(&[0], outer(r1, r2))], 1_000);
    assert!(!is_deadlocked(&log));
    assert_eq!(log.ended.len(), 2);
}

/// Generates a cost with nested sections of some resources, in any order.
fn crossed(rng: &mut Rng, resources: &[ResourceId]) -> (Cost, Vec<ResourceId>) {
    let length = 1 + rng.below(12);
    let (mut job, mut uses) = (cost(length), Vec::new());
    let (mut from, mut to) = (0, length);
    let mut left = resources.to_vec();
    while !left.is_empty() && to > from && rng.below(4) > 0 {
        let r = left.remove(rng.below(left.len() as u64) as usize);
        from += rng.below(to - from);
        to = from + 1 + rng.below(to - from);
        job = job.locking(r, work(from), work(to));
        uses.push(r);
    }
    if rng.below(4) == 0 {
        job = job.suspending(work(rng.below(length)), span(1 + rng.below(20)));
    }
    (job, uses)
}

/// Generates random users of resources: below schedulers, below servers, in graphs, late, on one
/// CPU or two.
fn users(rng: &mut Rng) -> (Tree, Vec<Source>) {
    let policies =
        [PolicySpec::Edf, PolicySpec::Edf, PolicySpec::RateMonotonic, PolicySpec::FixedPriority];
    let mut root = SchedulerSpec::new("root", policies[rng.below(4) as usize].clone());
    root.preemptive = rng.below(6) > 0;
    let mut tree = Tree::new(1 + rng.below(2) as u32, root);
    let resources: Vec<ResourceId> =
        (0..2 + rng.below(2)).map(|_| tree.resource("r", Protocol::Ceiling)).collect();
    let mut places = vec![Tree::ROOT];
    for _ in 0..rng.below(3) {
        let mut spec = SchedulerSpec::new("g", PolicySpec::Edf);
        if rng.below(2) == 0 {
            spec = served(1 + rng.below(5), 5 + rng.below(20));
        }
        let parent = places[rng.below(places.len() as u64) as usize];
        places.push(tree.scheduler(parent, spec));
    }
    let (mut sources, mut roots) = (Vec::new(), Vec::new());
    for _ in 0..3 + rng.below(4) {
        let (cost, uses) = crossed(rng, &resources);
        let mut spec = TaskSpec { uses, ..TaskSpec::new("t", span(100_000)) };
        (spec.deadline, spec.priority) = (span(1 + rng.below(60)), rng.below(3) as u8);
        spec.inherits = !roots.is_empty() && rng.below(4) == 0;
        let is_node = spec.inherits;
        let node = tree.task(places[rng.below(places.len() as u64) as usize], spec);
        if is_node {
            tree.channel(roots[rng.below(roots.len() as u64) as usize], node, 0);
            sources.push(Source::activated(cost));
        } else {
            roots.push(node);
            let (offset, jitter) = (span(rng.below(20)), span(rng.below(20)));
            let arrivals = Arrivals::Periodic { offset, period: span(100_000), jitter };
            sources.push(Source { arrivals, cost });
        }
    }
    (tree, sources)
}

#[test]
fn ceilings_of_crossed_sections_know_no_deadlock_wherever_their_users_stand() {
    let mut interrupted = 0;
    for case in 0..soak::many(2_000, 50_000) {
        let (tree, sources) = users(&mut Rng::new(soak::seed(case)));
        let log = run(&tree, &sources, 10_000);
        assert!(!is_deadlocked(&log), "case {case}: {tree:#?}");
        assert_eq!(log.ended.len(), sources.len(), "case {case}: {tree:#?}");
        interrupted += usize::from(log.runs.len() > 2 * sources.len());
    }
    assert!(interrupted > 50, "{interrupted}");
}
