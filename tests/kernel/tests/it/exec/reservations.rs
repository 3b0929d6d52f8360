//! Reservations that are added, joined, listed, resized and removed between runs. In each run,
//! clients that consume all the CPU time that they get have the budgets of their reservations.
//! `talea-cli` tests the refusals (`s4_s22_l6_l23_…`).

use super::scene::two_cpus;
use std::time::Instant;
use talea_core::criteria::Overrides;
use talea_core::engine::{NodeId, NodeSpec, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Time, Work};
use talea_exec::{Arrival, Load, Options, RootPlan, TaskPlan, execute, work};
use talea_kernel_tests::{Bench, kernel, needs, needs_root};

const MS: u64 = 1_000_000;
const PERIOD: u64 = 20 * MS;
const LENGTH: u64 = 400 * MS;

/// Adds a server of this budget in every [`PERIOD`].
fn server(tree: &mut Tree, name: &str, budget: u64, priority: u8) -> NodeId {
    let mut spec = SchedulerSpec::new(name, PolicySpec::RoundRobin { quantum: Work::from_ns(MS) });
    spec.overrides = Overrides { priority: Some(priority), ..Overrides::default() };
    spec.reservation = Some(Reservation::new(
        ServerKind::Deferrable,
        Work::from_ns(budget),
        Span::from_ns(PERIOD),
    ));
    tree.scheduler(Tree::ROOT, spec)
}

/// Adds a client that consumes all the CPU time that it gets.
fn client(tree: &mut Tree, server: NodeId) -> NodeId {
    tree.task(server, TaskSpec::new("client", Span::from_ns(2 * LENGTH)))
}

/// Returns the name and the budget of each reservation.
fn listed(tree: &Tree) -> Vec<(String, u64)> {
    let of = |(_, node): (NodeId, &talea_core::engine::Node)| match &node.spec {
        NodeSpec::Scheduler(spec) => Some((spec.name.clone(), spec.reservation?.budget.as_ns())),
        NodeSpec::Task(_) => None,
    };
    tree.nodes().filter_map(of).collect()
}

/// Runs the tree on threads. Returns the CPU time that the clients of each reservation have
/// consumed, and the stalled time, in nanoseconds.
fn used(tree: &Tree) -> (Vec<u64>, u64) {
    let at_once = Arrival { observed: Time::ZERO, nominal: Time::ZERO };
    let greedy = || TaskPlan {
        load: Load::new(vec![at_once], vec![Work::from_ns(2 * LENGTH)]),
        body: work::spender(),
    };
    // In the order of their nodes, as the run has them.
    let of = |(id, node): (NodeId, &talea_core::engine::Node)| match &node.spec {
        NodeSpec::Task(_) => tree.ancestors(id).next().map(|(_, spec)| spec.name.clone()),
        NodeSpec::Scheduler(_) => None,
    };
    let servers: Vec<String> = tree.nodes().filter_map(of).collect();
    let tasks = servers.iter().map(|_| greedy()).collect();
    let cpus = vec![two_cpus()[0]];
    let plan = RootPlan { tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus };
    let report = execute(vec![plan], &Options::new(Span::from_ns(LENGTH))).expect("a run");
    let stalls = report.stalls.iter().map(|stall| stall.length().as_ns()).sum();
    let consumed = &report.roots[0].consumed;
    let sum = |name: &String| {
        let its = servers.iter().zip(consumed).filter(|(server, _)| *server == name);
        its.map(|(_, consumed)| consumed.total.as_ns()).sum()
    };
    (listed(tree).iter().map(|(name, _)| sum(name)).collect(), stalls)
}

/// Checks that the clients of each reservation together consume its share, for any number of
/// clients.
fn each_has_its_own(tree: &Tree, what: &str) {
    let begun = Instant::now();
    // A stalled run is repeated: a stall costs a server time that no later period returns.
    let (used, stalls) = loop {
        let (used, stalls) = used(tree);
        if stalls < 2 * MS || begun.elapsed().as_secs() >= 3 {
            break (used, stalls);
        }
    };
    let listed = listed(tree);
    println!("{what}: {listed:?} have used {used:?} ns, stalls {stalls}");
    for ((name, budget), used) in listed.iter().zip(used) {
        let share = LENGTH / PERIOD * budget;
        // As for L5: some microseconds beyond each budget, and one more because a run is cut
        // anywhere.
        assert!(
            used <= share * 102 / 100 + budget + stalls,
            "{what}: {name} {used} of {share}, stalls {stalls}"
        );
        let least = share * 95 / 100;
        assert!(
            used + budget + stalls * budget / MS >= least,
            "{what}: {name} {used} of {share}, stalls {stalls}"
        );
    }
}

#[test]
fn l23_reservations_are_made_joined_resized_and_removed_between_runs() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_l23");
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let first = server(&mut tree, "first", 2 * MS, 9);
    let second = server(&mut tree, "second", 4 * MS, 8);
    for server in [first, second] {
        client(&mut tree, server);
    }
    let names = |tree: &Tree| listed(tree).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&tree), ["first", "second"]);
    each_has_its_own(&tree, "made");
    client(&mut tree, first);
    client(&mut tree, first);
    each_has_its_own(&tree, "joined by two more clients");
    let Some(NodeSpec::Scheduler(spec)) = tree.get_mut(first).map(|node| &mut node.spec) else {
        panic!("it is there");
    };
    spec.reservation.as_mut().expect("a server").budget = Work::from_ns(6 * MS);
    each_has_its_own(&tree, "resized");
    tree.remove(first);
    assert_eq!(names(&tree), ["second"]);
    each_has_its_own(&tree, "removed, with its clients");
    // Its node has no parent any more: a task below it is refused, and a new node of that name is
    // another.
    let stray = tree.task(first, TaskSpec::new("client", Span::from_ns(LENGTH)));
    assert!(tree.build().is_err(), "below nothing");
    tree.remove(stray);
    let again = server(&mut tree, "first", 3 * MS, 7);
    client(&mut tree, again);
    assert_ne!(again, first);
    each_has_its_own(&tree, "made again");
}
