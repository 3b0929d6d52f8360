//! CPU stalls and scheduling overheads, by hand.

use crate::harness::{at, cost, listed, run, run_audited, simulation, span, task, work};
use talea_core::engine::{Affinity, Cpu, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_sim::rng::Rng;
use talea_sim::{Overheads, Source};

fn two() -> Tree {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.task(Tree::ROOT, task("urgent", 50));
    tree.task(Tree::ROOT, task("other", 500));
    tree
}

#[test]
fn nothing_progresses_in_a_stall_and_decisions_are_not_delayed() {
    let sources = [listed(&[12], cost(5)), listed(&[0], cost(20))];
    let stalls = vec![(at(10), at(14)), (at(16), at(17)), (at(13), at(15))];
    let log = run_audited(&mut simulation(&two(), &sources).with_stalls(Cpu(0), stalls), 1_000);
    // other 0-10, a stall 10-15 in which urgent arrives, urgent 15-16 and 17-21, other 21-31.
    assert_eq!((log.ends(0), log.ends(1)), (vec![21], vec![31]));
    assert_eq!(log.starts(0), [12]);
}

#[test]
fn l24_a_stall_consumes_no_budget() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.reservation = Some(Reservation::new(ServerKind::HardCbs, work(10), span(100)));
    let server = tree.scheduler(Tree::ROOT, server);
    tree.task(server, task("a", 500));
    let sources = [listed(&[0], cost(25))];
    let mut quiet = simulation(&tree, &sources);
    assert_eq!(run_audited(&mut quiet, 1_000).ends(0), [205]);
    // A stall in the first budget, and a long one just before the end of the second.
    let mut stalled = simulation(&tree, &sources)
        .with_stalls(Cpu(0), vec![(at(5), at(45)), (at(109), at(50_109))]);
    let mut log = crate::harness::Log::default();
    let outcome = stalled.run(at(100_000), &mut log);
    // 0-5, 45-50; 100-109, 50109-50110; the next budget comes one period later.
    assert_eq!(log.ends(0).len(), 1);
    assert!(log.ends(0)[0] >= 50_115, "{:?}", log.ends(0));
    assert!(
        outcome.steps < 1_100,
        "a stall is not simulated nanosecond by nanosecond: {}",
        outcome.steps
    );
}

/// Simulates round robin with a quantum of 10. Job a has cost 100 and arrives at 0; job b has cost
/// 20 and arrives at 5. Returns the completion of b.
fn second_in_turn(change: impl Fn(talea_sim::Simulation) -> talea_sim::Simulation) -> u64 {
    let mut tree =
        Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::RoundRobin { quantum: work(10) }));
    tree.task(Tree::ROOT, task("a", 1_000));
    tree.task(Tree::ROOT, task("b", 1_000));
    let sources = [listed(&[0], cost(100)), listed(&[5], cost(20))];
    run_audited(&mut change(simulation(&tree, &sources)), 1_000).ends(1)[0]
}

#[test]
fn a_second_task_has_its_turn_below_other_schedulers() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let group = tree.scheduler(Tree::ROOT, SchedulerSpec::new("group", PolicySpec::Edf));
    let turns = SchedulerSpec::new("turns", PolicySpec::RoundRobin { quantum: work(10) });
    let turns = tree.scheduler(group, turns);
    tree.task(turns, task("a", 1_000));
    tree.task(turns, task("b", 1_000));
    let sources = [listed(&[0], cost(100)), listed(&[5], cost(20))];
    let log = run_audited(&mut simulation(&tree, &sources), 1_000);
    assert_eq!(log.ends(1), [45]);
}

#[test]
fn a_second_task_has_its_turn_even_if_the_first_has_not_progressed() {
    // a 0-15, of which 10 count, b 15-25, a 25-35, b 35-45.
    assert_eq!(second_in_turn(|simulation| simulation), 45);
    // a's first order takes until 10; a 10-20; b's order until 30, b 30-40; and so on.
    let overheads = Overheads { decision: span(10), ..Overheads::default() };
    assert_eq!(second_in_turn(|simulation| simulation.with_overheads(overheads)), 80);
    // The stall ends at 10: a 10-20, b 20-30, a 30-40, b 40-50.
    assert_eq!(
        second_in_turn(|simulation| simulation.with_stalls(Cpu(0), vec![(at(0), at(10))])),
        50
    );
}

#[test]
fn each_overhead_is_spent_on_its_cpu() {
    let overheads = Overheads {
        release: span(1),
        decision: span(2),
        level: span(3),
        switch: span(4),
        migration: span(100),
    };
    let sources = [listed(&[20], cost(5)), listed(&[0], cost(20))];
    let log = run_audited(&mut simulation(&two(), &sources).with_overheads(overheads), 1_000);
    // Each job: release 1 and an order of 2 + 4 + 3 for one level. other: 0-10 overhead, 10-20
    // work; urgent arrives: 20-30 overhead, 30-35 work; an order 35-44; other's rest 44-54.
    assert_eq!((log.ends(0), log.ends(1)), (vec![35], vec![54]));
    // Deeper in the tree each order costs one level more.
    let mut deep = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let group = deep.scheduler(Tree::ROOT, SchedulerSpec::new("group", PolicySpec::Edf));
    deep.task(group, task("a", 50));
    let log = run_audited(
        &mut simulation(&deep, &[listed(&[0], cost(5))]).with_overheads(overheads),
        100,
    );
    assert_eq!(log.ends(0), [18]);
}

#[test]
fn the_first_release_overhead_is_spent_on_an_allowed_cpu() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    for cpu in 0..2 {
        tree.task(Tree::ROOT, TaskSpec { affinity: Affinity::only(cpu), ..task("t", 100) });
    }
    let overheads = Overheads { release: span(5), ..Overheads::default() };
    let sources = [listed(&[0], cost(10)), listed(&[2], cost(10))];
    let log = run_audited(&mut simulation(&tree, &sources).with_overheads(overheads), 100);
    assert_eq!((log.ends(0), log.ends(1)), (vec![15], vec![17]));
}

#[test]
fn a_migration_delays_the_migrating_job() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    for deadline in [50, 60, 70] {
        tree.task(Tree::ROOT, task("t", deadline));
    }
    // c starts on CPU 1, is preempted there by b, and resumes on CPU 0 when a completes.
    let sources = [listed(&[0], cost(10)), listed(&[4], cost(20)), listed(&[0], cost(10))];
    let plain = run(&tree, &sources, 100);
    assert_eq!([plain.ends(0), plain.ends(1), plain.ends(2)], [[10], [24], [16]]);
    let overheads = Overheads { migration: span(7), ..Overheads::default() };
    let log = run_audited(&mut simulation(&tree, &sources).with_overheads(overheads), 100);
    assert_eq!([log.ends(0), log.ends(1), log.ends(2)], [[10], [24], [23]]);
}

#[test]
fn zero_overheads_and_no_stalls_equal_a_plain_simulation() {
    let mut rng = Rng::new(3);
    for case in 0..100 {
        let cpus = 1 + case % 3;
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut server = SchedulerSpec::new("server", PolicySpec::Edf);
        server.reservation = Some(Reservation::new(ServerKind::Deferrable, work(5), span(20)));
        let server = tree.scheduler(Tree::ROOT, server);
        let mut sources = Vec::new();
        for task in 0..6 {
            let period = 10 + rng.below(40);
            tree.task(if task < 2 { server } else { Tree::ROOT }, TaskSpec::new("t", span(period)));
            sources.push(Source::periodic(span(period), work(1 + rng.below(8))));
        }
        let plain = run(&tree, &sources, 400);
        let mut interference = simulation(&tree, &sources)
            .with_overheads(Overheads::default())
            .with_stalls(Cpu(0), vec![]);
        let log = run_audited(&mut interference, 400);
        assert_eq!((plain.ended, plain.runs), (log.ended, log.runs));
    }
}
