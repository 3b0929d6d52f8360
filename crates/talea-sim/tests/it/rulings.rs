//! Rulings of docs/model.md on cases that no paper covers.

use crate::harness::{at, cost, listed, run, span, task, work};
use talea_core::engine::{Cpu, Event, Migration, Order, SchedulerSpec, TaskId, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};

/// Builds a CPU with a server, its client, and a less urgent task.
fn served(reservation: Reservation) -> Tree {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
    let mut spec = SchedulerSpec::new("server", PolicySpec::Fifo);
    spec.reservation = Some(reservation);
    let server = tree.scheduler(Tree::ROOT, spec);
    tree.task(server, task("client", 1_000));
    tree
}

#[test]
fn s1_a_task_alone_in_round_robin_uses_none_of_its_quantum() {
    let mut tree =
        Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::RoundRobin { quantum: work(3) }));
    tree.task(Tree::ROOT, task("first", 1_000));
    tree.task(Tree::ROOT, task("second", 1_000));
    // The first has run for 2 when the second arrives, and for its whole quantum of 3 from then on.
    let log = run(&tree, &[listed(&[0], cost(9)), listed(&[2], cost(4))], 100);
    assert_eq!(log.runs, [(0, 0, 0), (5, 0, 1), (8, 0, 0), (11, 0, 1), (12, 0, 0)]);
}

#[test]
fn l5_a_cbs_keeps_its_budget_if_it_just_fits_and_starts_a_new_period_otherwise() {
    let of = Reservation::new(ServerKind::HardCbs, work(4), span(20));
    let ends = |again: u64| {
        let tree = served(of);
        let log = run(&tree, &[listed(&[0, again], cost(1))], 100);
        assert_eq!(log.ends(0), [1, again + 1]);
        // Excess demand shows when the budget is exhausted, and when it is refilled.
        let log =
            run(&tree, &[listed(&[0, again], talea_sim::Cost::List(vec![work(1), work(10)]))], 100);
        log.ends(0)[1]
    };
    // Three are left, until 20: at 5 they need exactly 4 in 20. 5 to 8, 20 to 24, 40 to 43.
    assert_eq!(ends(5), 43);
    // At 6 they need more: a new budget with 26 as the deadline. 6 to 10, 26 to 30, 46 to 48.
    assert_eq!(ends(6), 48);
}

#[test]
fn l5_a_cbs_with_a_late_refill_starts_a_new_period_and_recovers_nothing() {
    // The end of the budget is reported at `end`, and the engine is not called again until `late`.
    let next = |late: u64| {
        let mut engine = served(Reservation::new(ServerKind::HardCbs, work(4), span(20)))
            .build()
            .expect("a tree");
        let (task, cpu) = (TaskId(0), Cpu(0));
        let _ = engine.handle(at(0), Event::Arrived { task, arrival: at(0) });
        assert!(matches!(engine.poll(at(0)), Some(Order::Run { .. })));
        let spend = |engine: &mut talea_core::engine::Engine, now: u64| {
            let _ = engine.handle(at(now), Event::Ran { cpu, work: work(4) });
            while engine.poll(at(now)).is_some() {}
        };
        while engine.poll(at(0)).is_some() {}
        spend(&mut engine, 4);
        assert_eq!(engine.next_wakeup(), Some(at(20)));
        let _ = engine.handle(at(late), Event::Timer);
        while engine.poll(at(late)).is_some() {}
        spend(&mut engine, late + 4);
        engine.next_wakeup().map(talea_core::Time::as_ns)
    };
    assert_eq!(next(20), Some(40), "in time");
    assert_eq!(next(30), Some(40), "late within the period: it is this period's budget");
    assert_eq!(next(70), Some(90), "two periods late: those are lost, and a period begins at 70");
}

#[test]
fn s17_lending_also_gives_the_time_between_slots_to_the_lowest_number() {
    let run_with = |lending: bool| {
        let slots = vec![Slot { start: span(2), end: span(4), owner: 1 }];
        let policy = PolicySpec::Partitions { frame: span(10), slots, lending };
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
        tree.task(Tree::ROOT, task("without a slot", 1_000));
        tree.task(Tree::ROOT, task("owner", 1_000));
        run(&tree, &[listed(&[0], cost(6)), listed(&[0], cost(3))], 100)
    };
    let strict = run_with(false);
    assert_eq!((strict.ends(0), strict.ends(1)), (vec![], vec![13]), "2 to 4, 12 to 13");
    // Up to 2 and from 4 on to the lowest number; the slot belongs to its owner.
    let lent = run_with(true);
    assert_eq!(lent.runs, [(0, 0, 0), (2, 0, 1), (4, 0, 0), (8, 0, 1)]);
    assert_eq!((lent.ends(0), lent.ends(1)), (vec![8], vec![9]));
}

#[test]
fn s13_l1_a_nonpreemptive_table_lets_a_job_complete_beyond_its_slot() {
    let run_with = |preemptive: bool| {
        let slot = |start, end, owner| Slot { start: span(start), end: span(end), owner };
        let slots = vec![slot(0, 5, 0), slot(5, 10, 1)];
        let policy = PolicySpec::Partitions { frame: span(10), slots, lending: false };
        let mut tree =
            Tree::new(1, SchedulerSpec { preemptive, ..SchedulerSpec::new("cpu", policy) });
        tree.task(Tree::ROOT, task("long", 1_000));
        tree.task(Tree::ROOT, task("other", 1_000));
        let log = run(&tree, &[listed(&[0], cost(8)), listed(&[0], cost(3))], 100);
        (log.ends(0), log.ends(1))
    };
    assert_eq!(run_with(true), (vec![13], vec![8]));
    // The other slot begins at 8 for its owner, which has 2 of its 5: the rest follows in the next
    // one.
    assert_eq!(run_with(false), (vec![8], vec![11]));
}

#[test]
fn y5_a_group_stays_on_the_cpu_of_its_jobs_until_all_started_ones_have_completed() {
    let run_with = |migration: Migration| {
        let mut tree = Tree::new(2, SchedulerSpec::new("cpus", PolicySpec::Edf));
        tree.migration = migration;
        let group = tree.scheduler(Tree::ROOT, SchedulerSpec::new("group", PolicySpec::Edf));
        tree.task(group, task("long", 100));
        tree.task(group, task("urgent", 3));
        tree.task(Tree::ROOT, task("a", 20));
        tree.task(Tree::ROOT, task("b", 10));
        // `long` starts on CPU 0 and `a` on CPU 1; `b` preempts `long`. The group returns with
        // `urgent` at 4.
        let sources = [
            listed(&[0], cost(10)),
            listed(&[4, 40], cost(1)),
            listed(&[2], cost(6)),
            listed(&[3], cost(6)),
        ];
        run(&tree, &sources, 100)
    };
    let cpu_at_4 = |migration| {
        let log = run_with(migration);
        log.begins.iter().find(|begin| (begin.at, begin.task) == (4, 1)).expect("it is urgent").cpu
    };
    assert_eq!(cpu_at_4(Migration::Anytime), 1, "from `a`, the least urgent");
    assert_eq!(cpu_at_4(Migration::JobBoundaries), 0, "`long` has started there, so from `b`");
    // `urgent` completes at 5 and `long` has not: it waits for CPU 0 until `b` completes at 10,
    // beside CPU 1, idle from 8.
    assert_eq!(run_with(Migration::JobBoundaries).ends(0), [17]);
    assert_eq!(run_with(Migration::Anytime).ends(0), [16]);
}
