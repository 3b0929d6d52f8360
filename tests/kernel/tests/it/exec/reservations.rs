//! Reservations are made, joined, listed, resized and removed between runs, and each time clients
//! that take all that they can get have what theirs has. What can't be is refused before a thread
//! is made: `talea-cli`, `s4_s22_l6_l23_…`.

use super::scene::two_cpus;
use std::time::Instant;
use talea_core::criteria::Own;
use talea_core::machine::{Body, NodeId, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::server::{Kind, Reservation};
use talea_core::{Span, Time, Work};
use talea_exec::{Arrival, Load, Options, RootPlan, TaskPlan, execute, work};
use talea_kernel_tests::{Bench, kernel, needs, needs_root};

const MS: u64 = 1_000_000;
const PERIOD: u64 = 20 * MS;
const LENGTH: u64 = 400 * MS;

/// A server of this budget every [`PERIOD`].
fn server(tree: &mut Tree, name: &str, budget: u64, priority: u8) -> NodeId {
    let mut spec = SchedulerSpec::new(name, Policy::RoundRobin { quantum: Work::from_ns(MS) });
    spec.own = Own { priority: Some(priority), ..Own::default() };
    spec.reservation =
        Some(Reservation::new(Kind::Deferrable, Work::from_ns(budget), Span::from_ns(PERIOD)));
    tree.scheduler(Tree::ROOT, spec)
}

/// Whoever takes all that it can get.
fn client(tree: &mut Tree, server: NodeId) -> NodeId {
    tree.task(server, TaskSpec::new("client", Span::from_ns(2 * LENGTH)))
}

/// Name and budget of each reservation that there is.
fn listed(tree: &Tree) -> Vec<(String, u64)> {
    let of = |(_, node): (NodeId, &talea_core::machine::Node)| match &node.body {
        Body::Scheduler(spec) => Some((spec.name.clone(), spec.reservation?.budget.as_ns())),
        Body::Task(_) => None,
    };
    tree.nodes().filter_map(of).collect()
}

/// What the clients of each reservation have used on threads, and how long the machine stood still.
fn used(tree: &Tree) -> (Vec<u64>, u64) {
    let at_once = Arrival { seen: Time::ZERO, nominal: Time::ZERO };
    let greedy = || TaskPlan {
        load: Load::new(vec![at_once], vec![Work::from_ns(2 * LENGTH)]),
        body: work::spender(),
    };
    // In the order of their nodes, as the run has them.
    let of = |(id, node): (NodeId, &talea_core::machine::Node)| match &node.body {
        Body::Task(_) => tree.above(id).next().map(|(_, spec)| spec.name.clone()),
        Body::Scheduler(_) => None,
    };
    let servers: Vec<String> = tree.nodes().filter_map(of).collect();
    let tasks = servers.iter().map(|_| greedy()).collect();
    let cpus = vec![two_cpus()[0]];
    let plan = RootPlan { tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus };
    let report = execute(vec![plan], &Options::new(Span::from_ns(LENGTH))).expect("a run");
    let holes = report.holes.iter().map(|hole| hole.length().as_ns()).sum();
    let consumed = &report.roots[0].consumed;
    let sum = |name: &String| {
        let its = servers.iter().zip(consumed).filter(|(server, _)| *server == name);
        its.map(|(_, consumed)| consumed.total.as_ns()).sum()
    };
    (listed(tree).iter().map(|(name, _)| sum(name)).collect(), holes)
}

/// Each reservation's clients have together what it has, whoever and how many they are.
fn each_has_its_own(tree: &Tree, what: &str) {
    let begun = Instant::now();
    // A machine that stands still is asked again: what it costs a server, nobody makes up for.
    let (used, holes) = loop {
        let (used, holes) = used(tree);
        if holes < 2 * MS || begun.elapsed().as_secs() >= 3 {
            break (used, holes);
        }
    };
    let listed = listed(tree);
    println!("{what}: {listed:?} have used {used:?} ns, holes {holes}");
    for ((name, budget), used) in listed.iter().zip(used) {
        let share = LENGTH / PERIOD * budget;
        // As for L5: some microseconds beyond each budget, and one more because a run is cut
        // anywhere.
        assert!(
            used <= share * 102 / 100 + budget + holes,
            "{what}: {name} {used} of {share}, holes {holes}"
        );
        let least = share * 95 / 100;
        assert!(
            used + budget + holes * budget / MS >= least,
            "{what}: {name} {used} of {share}, holes {holes}"
        );
    }
}

#[test]
fn l23_reservations_are_made_joined_resized_and_removed_between_runs() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_l23");
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::FixedPriority));
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
    let Some(Body::Scheduler(spec)) = tree.get_mut(first).map(|node| &mut node.body) else {
        panic!("it is there");
    };
    spec.reservation.as_mut().expect("a server").budget = Work::from_ns(6 * MS);
    each_has_its_own(&tree, "resized");
    tree.remove(first);
    assert_eq!(names(&tree), ["second"]);
    each_has_its_own(&tree, "removed, with its clients");
    // Its node is nobody's any more: who is named so is refused, and a new one of that name is
    // another.
    let stray = tree.task(first, TaskSpec::new("client", Span::from_ns(LENGTH)));
    assert!(tree.build().is_err(), "below nothing");
    tree.remove(stray);
    let again = server(&mut tree, "first", 3 * MS, 7);
    client(&mut tree, again);
    assert_ne!(again, first);
    each_has_its_own(&tree, "made again");
}
