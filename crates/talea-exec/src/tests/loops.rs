//! The loop drives the machine as the simulator does.

use super::fake::{run, run_by, run_with, simulate};
use super::{at, in_time, ms};
use crate::course::{Course, Turn};
use crate::record::{Entry, What};
use crate::replay::replay;
use talea_core::criteria::Own;
use talea_core::machine::{Affinity, NodeId, Order, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{Policy, Slot};
use talea_core::server::{Kind, Reservation};
use talea_core::workload::{Arrivals, Cost, Source, Workload};
use talea_core::{Span, Time, Work};
use talea_sim::dice::Dice;

/// A random scheduler; a third of them are servers.
fn group(dice: &mut Dice) -> SchedulerSpec {
    let policies = [Policy::Edf, Policy::FixedPriority, Policy::RateMonotonic, Policy::Fifo];
    let mut spec = SchedulerSpec::new("group", policies[dice.below(4) as usize].clone());
    spec.own = Own { priority: Some(dice.below(9) as u8), ..Own::default() };
    if dice.below(3) == 0 {
        let kinds = [Kind::Polling, Kind::Deferrable, Kind::Sporadic, Kind::HardCbs, Kind::SoftCbs];
        let period = 5 + dice.below(20);
        let budget = Work::from_ns((1 + dice.below(period)) * 1_000_000);
        spec.reservation =
            Some(Reservation::new(kinds[dice.below(5) as usize], budget, ms(period)));
    }
    spec
}

/// Below a root of `cpus` CPUs: up to three groups, tasks everywhere; and what they do.
fn system(dice: &mut Dice, cpus: u32) -> (Tree, Workload) {
    let root = SchedulerSpec::new(
        "root",
        [Policy::Edf, Policy::FixedPriority][dice.below(2) as usize].clone(),
    );
    let mut tree = Tree::new(cpus, root);
    let mut parents = vec![NodeId(0)];
    for _ in 0..dice.below(4) {
        parents.push(tree.scheduler(Tree::ROOT, group(dice)));
    }
    let mut sources = Vec::new();
    for _ in 0..2 + dice.below(5) {
        let period = 5 + dice.below(30);
        let mut spec = TaskSpec::new("task", ms(period));
        spec.priority = dice.below(9) as u8;
        let _ = tree.task(parents[dice.below(parents.len() as u64) as usize], spec);
        // All in tenths of a millisecond: rests of budgets that are rounded up would be no twin's.
        let tenths = |n: u64| Work::from_ns(n * 100_000);
        let mut next = 0;
        let mut sometime = || {
            next += (period * 10) + dice.below(30);
            Time::from_ns(next * 100_000)
        };
        let arrivals = match period % 3 {
            0 => Arrivals::List((0..60).map(|_| sometime()).collect()),
            _ => Arrivals::Periodic {
                offset: ms(period % 5),
                period: ms(period),
                jitter: Span::ZERO,
            },
        };
        let costs = (0..7).map(|_| tenths(1 + dice.below(period * 3))).collect();
        sources.push(Source { arrivals, cost: Cost::List(costs) });
    }
    (tree, Workload { sources, seed: dice.next() })
}

#[test]
fn the_loop_is_the_simulators_twin() {
    let mut dice = Dice::new(5);
    let (mut turns, mut stops) = (0, 0);
    for case in 0..400 {
        let cpus = 1 + (case % 3) as u32;
        let (tree, workload) = system(&mut dice, cpus);
        let until = at(300);
        let ran = run(&tree, &workload, until, in_time);
        let simulated = simulate(&tree, &workload, until);
        if let Some(differs) = ran.course.parts_from(&simulated) {
            panic!("case {case}: {differs:?}\n{tree:?}");
        }
        turns += simulated.turns().count();
        stops += ran.stops;
        let orders = replay(&mut tree.build().expect("a sound tree"), &ran.record);
        assert!(orders.expect("the same orders") > 0);
    }
    assert!(turns > 50_000 && stops > 1_000, "{turns} turns, {stops} stops: too little happens");
}

#[test]
fn s8_a_worker_that_finishes_steps_the_machine_as_its_dispatcher_would() {
    let mut dice = Dice::new(8);
    let (mut by_workers, mut steps) = (0, 0);
    for case in 0..400 {
        let (tree, workload) = system(&mut dice, 1 + (case % 3) as u32);
        let until = at(300);
        // All of them, or now one and now the other.
        let mut coin = Dice::new(case);
        let mut may = |_| case % 2 == 0 || coin.below(2) == 0;
        let ran = run_by(
            &tree,
            &workload,
            until,
            (Span::ZERO, Span::ZERO),
            Vec::new(),
            &mut may,
            in_time,
        );
        if let Some(differs) = ran.course.parts_from(&simulate(&tree, &workload, until)) {
            panic!("case {case}: {differs:?}\n{tree:?}");
        }
        assert!(
            replay(&mut tree.build().expect("a sound tree"), &ran.record).expect("the same orders")
                > 0
        );
        by_workers += ran.by_workers;
        steps += ran.steps;
    }
    assert!(
        by_workers * 4 > steps,
        "{by_workers} of {steps}: most ends are of jobs that nobody meters"
    );
}

#[test]
fn s8_a_job_costs_one_wake_of_a_dispatcher() {
    for cpus in [1, 2] {
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", Policy::Edf));
        let mut sources = Vec::new();
        for period in [7, 11, 13] {
            let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(period)));
            // No two of them end at one instant.
            sources.push(Source::periodic(ms(period), Work::from_ns(1_300_000 + period)));
        }
        let workload = Workload { sources, seed: 1 };
        let no = (Span::ZERO, Span::ZERO);
        let ran = run_by(&tree, &workload, at(1_001), no, Vec::new(), |_| true, in_time);
        let ends =
            ran.course.turns().filter(|turn| matches!(turn, Turn::Ended { .. })).count() as u64;
        assert_eq!(ran.by_workers, ends);
        // One for each time at which something arrives, and at first one for each of them.
        let by_dispatchers = ran.steps - ran.by_workers;
        assert!(by_dispatchers < ends + u64::from(cpus), "{by_dispatchers} steps for {ends} jobs");
    }
}

#[test]
fn s8_a_worker_that_goes_to_another_cpu_does_so_when_that_is_free() {
    let tenth = |tenths: u64| Time::from_ns(tenths * 100_000);
    let mut tree = Tree::new(2, SchedulerSpec::new("root", Policy::FixedPriority));
    let mut sources = Vec::new();
    for (priority, affinity, arrivals, cost) in [
        (1, Affinity::ANY, vec![tenth(0)], 20_000_000),
        (5, Affinity::ANY, vec![tenth(10), tenth(15)], 2_000_000),
        (6, Affinity::only(1), vec![tenth(35)], 5_000_000),
    ] {
        let _ = tree
            .task(Tree::ROOT, TaskSpec { priority, affinity, ..TaskSpec::new("task", ms(100)) });
        let cost = Cost::Constant(Work::from_ns(cost));
        sources.push(Source { arrivals: Arrivals::List(arrivals), cost });
    }
    let workload = Workload { sources, seed: 1 };
    // Dispatchers are late by half a millisecond. So the second task begins on CPU 1 at 1.5, and
    // ends when the third, which may run nowhere else, comes: its next job goes to CPU 0, where the
    // first one runs.
    let no = (Span::ZERO, Span::ZERO);
    let late = || Span::from_ns(500_000);
    let ran = run_by(&tree, &workload, at(4), no, Vec::new(), |_| true, late);
    let runs = |turn: Turn| match turn {
        Turn::Runs { cpu, task, job, .. } => Some((cpu.0, task.0, job)),
        _ => None,
    };
    let runs: Vec<_> = ran.course.turns().filter_map(runs).collect();
    assert_eq!(runs, [(0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 2, 0)]);
    assert_eq!((ran.by_workers, ran.stops), (1, 1));
}

#[test]
fn what_a_worker_starts_for_a_server_is_looked_after() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::FixedPriority));
    let mut plain = TaskSpec::new("plain", ms(100));
    plain.priority = 9;
    let _ = tree.task(Tree::ROOT, plain);
    let mut server = SchedulerSpec::new("server", Policy::Fifo);
    server.reservation = Some(Reservation::new(Kind::Deferrable, Work::from_ns(2_000_000), ms(20)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", ms(100)));
    let source = |cost| Source::periodic(ms(100), Work::from_ns(cost));
    let workload = Workload { sources: vec![source(3_000_000), source(10_000_000)], seed: 1 };
    let no = (Span::ZERO, Span::ZERO);
    let ran = run_by(&tree, &workload, at(19), no, Vec::new(), |_| true, in_time);
    // The client begins when `plain` has ended, by the step of its worker, and has its budget and
    // no more.
    let times: Vec<_> = ran.course.timed().iter().map(|&(now, _)| now).collect();
    assert_eq!((ran.by_workers, times), (1, vec![at(0), at(3), at(3), at(5)]));
}

#[test]
fn partitions_turn_at_their_edges() {
    let root = SchedulerSpec::new(
        "root",
        Policy::Partitions {
            frame: ms(20),
            slots: vec![
                Slot { start: ms(0), end: ms(8), owner: 0 },
                Slot { start: ms(8), end: ms(15), owner: 1 },
            ],
            lending: false,
        },
    );
    let mut tree = Tree::new(1, root);
    let mut sources = Vec::new();
    for _ in 0..2 {
        let partition = tree.scheduler(Tree::ROOT, SchedulerSpec::new("partition", Policy::Edf));
        let _ = tree.task(partition, TaskSpec::new("task", ms(40)));
        sources.push(Source::periodic(ms(40), Work::from_ns(11_000_000)));
    }
    let workload = Workload { sources, seed: 1 };
    let ran = run(&tree, &workload, at(400), in_time);
    assert_eq!(ran.course.parts_from(&simulate(&tree, &workload, at(400))), None);
    // Each job goes over two slots of its own.
    assert_eq!(ran.stops, 20);
}

#[test]
fn late_dispatchers_record_what_a_fresh_machine_does_again() {
    let mut dice = Dice::new(11);
    for case in 0..200 {
        let (tree, workload) = system(&mut dice, 1 + (case % 3) as u32);
        let mut late = Dice::new(case);
        let ran =
            run(&tree, &workload, at(300), || Span::from_ns(late.below(3) * late.below(400_000)));
        let replayed = replay(&mut tree.build().expect("a sound tree"), &ran.record);
        assert!(replayed.unwrap_or_else(|differs| panic!("case {case}: {differs}")) > 0);
    }
}

#[test]
fn a_record_is_replayed_from_its_file() {
    let mut dice = Dice::new(21);
    for case in 0..20 {
        let (tree, workload) = system(&mut dice, 1 + (case % 3) as u32);
        let ran = run(&tree, &workload, at(300), in_time);
        let mut text = Vec::new();
        crate::record::text::write(&ran.record, &mut text).expect("memory takes all");
        let text = String::from_utf8(text).expect("plain text");
        let record = crate::record::text::read(&text).expect("what was written");
        assert_eq!(record, ran.record);
        assert!(
            replay(&mut tree.build().expect("a sound tree"), &record).expect("the same orders") > 0
        );
    }
}

#[test]
fn a_record_with_two_orders_exchanged_is_caught() {
    let mut dice = Dice::new(3);
    let (tree, workload) = system(&mut dice, 1);
    let ran = run(&tree, &workload, at(300), in_time);
    let orders: Vec<usize> = (0..ran.record.len())
        .filter(|&at| matches!(ran.record[at].what, What::Ordered(Order::Run { .. })))
        .collect();
    let mut caught = 0;
    for pair in orders.windows(2) {
        let mut record = ran.record.clone();
        let (a, b) = (record[pair[0]].what, record[pair[1]].what);
        record[pair[0]].what = b;
        record[pair[1]].what = a;
        let differs =
            replay(&mut tree.build().expect("a sound tree"), &record).expect_err("exchanged");
        assert_eq!(differs.at, pair[0]);
        caught += 1;
    }
    assert!(caught > 20);
    // One that is missing, and one too many.
    let mut record: Vec<Entry> = ran.record.clone();
    record.remove(orders[5]);
    assert!(replay(&mut tree.build().expect("a sound tree"), &record).is_err());
    let mut record = ran.record;
    record.insert(orders[5], record[orders[5]]);
    assert!(replay(&mut tree.build().expect("a sound tree"), &record).is_err());
}

#[test]
fn a_dispatcher_that_takes_its_time_starves_nobody() {
    let root = SchedulerSpec::new("root", Policy::FixedPriority);
    let mut tree = Tree::new(1, root);
    let mut server = SchedulerSpec::new("server", Policy::Fifo);
    server.reservation = Some(Reservation::new(Kind::Deferrable, Work::from_ns(5_000_000), ms(20)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", ms(40)));
    let workload =
        Workload { sources: vec![Source::periodic(ms(40), Work::from_ns(9_000_000))], seed: 1 };
    let simulated = simulate(&tree, &workload, at(400));
    for (effort, switch) in
        [(30_000, 0), (0, 3_000), (7_000, 20_000), (40_000, 40_000), (10, 200_000)]
    {
        let costs = (Span::from_ns(effort), Span::from_ns(switch));
        let ran = run_with(&tree, &workload, at(400), costs, in_time);
        assert_eq!(ran.course.parts_from(&simulated), None, "{costs:?}");
        assert!(ran.steps < 20 * 12, "{costs:?}: {} steps for ten jobs in two pieces", ran.steps);
    }
}

/// A greedy client of a server with 5 ms in 20 ms: what it consumes beyond each budget, or short of
/// it, when its dispatcher is `late`.
fn overruns(late: impl FnMut() -> Span) -> Vec<i64> {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::FixedPriority));
    let mut server = SchedulerSpec::new("server", Policy::Fifo);
    server.reservation = Some(Reservation::new(Kind::Deferrable, Work::from_ns(5_000_000), ms(20)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", ms(2_000)));
    let workload = Workload {
        sources: vec![Source::periodic(ms(2_000), Work::from_ns(900_000_000))],
        seed: 1,
    };
    let ran = run(&tree, &workload, at(2_000), late);
    let mut since = None;
    let mut overruns = Vec::new();
    for &(now, turn) in ran.course.timed() {
        match turn {
            Turn::Runs { .. } => since = Some(now),
            Turn::Rests { .. } => {
                let used = now.since(since.take().expect("it ran"));
                overruns.push(used.as_ns() as i64 - 5_000_000);
            }
            Turn::Ended { .. } => unreachable!("it never ends"),
        }
    }
    assert_eq!(overruns.len(), 100);
    overruns
}

#[test]
fn l5_a_dispatcher_that_is_always_late_sets_its_alarm_earlier() {
    let late = Span::from_ns(9_000);
    let overruns = overruns(|| late);
    assert_eq!(overruns[0], 9_000, "nobody has told it");
    assert!(overruns[40..].iter().all(|&over| (-4_000..=0).contains(&over)), "{overruns:?}");
}

#[test]
fn l5_a_dispatcher_that_is_late_no_more_gives_budgets_back() {
    let mut looks = 0;
    let overruns = overruns(|| {
        looks += 1;
        Span::from_ns(if looks < 100 { 9_000 } else { 0 })
    });
    // About two looks a budget. What is left beyond two microseconds comes back.
    assert!(overruns[20..40].iter().all(|&over| over >= -4_000), "{overruns:?}");
    assert!(overruns[90..].iter().all(|&over| (-2_000..=0).contains(&over)), "{overruns:?}");
}

#[test]
fn l5_one_disturbance_costs_no_client_its_budget() {
    let mut overran = 0;
    // Now at the end of a budget, now before it, now where a new one comes.
    for disturbed in 20..60 {
        let mut looks = 0;
        let overruns = overruns(|| {
            looks += 1;
            Span::from_ns(if looks == disturbed { 3_000_000 } else { 0 })
        });
        let far = overruns.iter().filter(|&&over| over > 1_000_000).count();
        assert!(far <= 1, "{disturbed}: {overruns:?}");
        overran += far;
        // It is followed by a step, not by itself; half of what is rounded off anyway is never
        // given up.
        assert!(overruns.iter().all(|&over| over >= -2_250), "{disturbed}: {overruns:?}");
    }
    assert!(overran > 10, "{overran}");
}

#[test]
fn a_rest_of_a_budget_that_is_too_little_to_sleep_for_is_used_up() {
    let root = SchedulerSpec::new("root", Policy::FixedPriority);
    let mut tree = Tree::new(1, root);
    let mut server = SchedulerSpec::new("server", Policy::Fifo);
    server.reservation = Some(Reservation::new(Kind::Deferrable, Work::from_ns(5_000_000), ms(20)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", ms(20)));
    // Ends 3 µs before its server's budget would: the next job finds none, although 3 µs are left.
    let sources = vec![Source {
        arrivals: Arrivals::List(vec![at(0), at(10)]),
        cost: Cost::List(vec![Work::from_ns(4_997_000), Work::from_ns(1_000_000)]),
    }];
    let workload = Workload { sources, seed: 1 };
    let ran = run(&tree, &workload, at(40), in_time);
    let runs: Vec<_> = ran.course.timed().iter().map(|&(time, _)| time).collect();
    assert_eq!(runs[..2], [Time::ZERO, Time::from_ns(4_997_000)]);
    // It begins at the refill, not at 10 ms for 3 µs.
    assert_eq!(runs[3], at(20));
    assert!(ran.steps < 12, "{} steps: somebody counts microseconds", ran.steps);
}

#[test]
fn quanta_and_soft_budgets_that_are_shorter_than_a_look_do_not_stop_the_loop() {
    let mut soft = SchedulerSpec::new("soft", Policy::Fifo);
    soft.reservation = Some(Reservation::new(Kind::SoftCbs, Work::from_ns(2_000), ms(1)));
    let turns = SchedulerSpec::new("turns", Policy::RoundRobin { quantum: Work::from_ns(2_000) });
    for group in [soft, turns] {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
        let group = tree.scheduler(Tree::ROOT, group);
        let mut sources = Vec::new();
        for _ in 0..2 {
            let _ = tree.task(group, TaskSpec::new("task", ms(10)));
            sources.push(Source::periodic(ms(10), Work::from_ns(1_000_000)));
        }
        let ran = run(&tree, &Workload { sources, seed: 1 }, at(50), in_time);
        let ends = ran.course.turns().filter(|turn| matches!(turn, Turn::Ended { .. })).count();
        assert_eq!(ends, 10, "{:?}", tree.get(group));
    }
}

#[test]
fn a_budget_is_enforced_however_often_somebody_looks_before() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::FixedPriority));
    let mut server = SchedulerSpec::new("server", Policy::Fifo);
    server.own = Own { priority: Some(9), ..Own::default() };
    server.reservation = Some(Reservation::new(Kind::Deferrable, Work::from_ns(5_000_000), ms(20)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", ms(20)));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("noise", ms(20)));
    // Each of these wakes the dispatcher, with a microsecond of the budget used since the last.
    let noise = (0..40).map(|k| Time::from_ns(4_900_000 + 1_000 * k)).collect();
    let source = |times, cost| Source {
        arrivals: Arrivals::List(times),
        cost: Cost::Constant(Work::from_ns(cost)),
    };
    let sources = vec![source(vec![at(0)], 15_000_000), source(noise, 10_000)];
    let ran = run(&tree, &Workload { sources, seed: 1 }, at(40), in_time);
    let (stopped, _) = ran.course.timed()[1];
    assert_eq!(stopped, at(5), "{:?}", &ran.course.timed()[..3]);
}

#[test]
fn a_record_of_another_machine_is_refused_and_nothing_falls() {
    let (tree, workload) = system(&mut Dice::new(3), 1);
    let ran = run(&tree, &workload, at(50), in_time);
    let begin = ran.record[0];
    let huge = u64::MAX;
    for line in [
        "arrived 4294967295 0".to_owned(),
        "completed 4294967295".to_owned(),
        "completed 0".to_owned(),
        "blocked 0".to_owned(),
        "locked 0 7".to_owned(),
        "unlocked 0 7".to_owned(),
        "pushed 7".to_owned(),
        "popped 7".to_owned(),
        "ran 4294967295 1".to_owned(),
        format!("ran 0 {huge}"),
        format!("arrived 0 {huge}"),
        "run 4294967295 4294967295 0 0".to_owned(),
        "idle 4294967295".to_owned(),
    ] {
        let text = format!("{}\n0 {line}\n", crate::record::text::HEADER);
        let record = crate::record::text::read(&text).expect("words and numbers");
        let refused = replay(&mut tree.build().expect("a sound tree"), &record).expect_err(&line);
        assert_eq!(refused.at, 0, "{line}");
        assert!(
            Course::of(tree.cpus, &record).turns().all(|turn| matches!(turn, Turn::Ended { .. })),
            "{line}"
        );
    }
    // A time beyond all, and one that runs backwards.
    let late = Entry { now: Time::from_ns(huge), ..begin };
    assert_eq!(replay(&mut tree.build().expect("sound"), &[late]).expect_err("late").at, 0);
    let record = [Entry { now: at(1), ..begin }, begin];
    assert_eq!(replay(&mut tree.build().expect("sound"), &record).expect_err("backwards").at, 1);
}
