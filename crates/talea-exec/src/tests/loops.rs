//! The executor drives the engine as the simulator does.

use super::fake::{run, run_with, run_with_worker_steps, simulate};
use super::{at, ms, no_delay};
use crate::record::{RecordEntry, RecordKind};
use crate::replay::replay;
use crate::schedule_log::{ScheduleEvent, ScheduleLog};
use talea_core::criteria::Overrides;
use talea_core::engine::{Affinity, NodeId, Order, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Arrivals, Cost, Source, Workload};
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;

/// Returns a random scheduler; a third of them are servers.
fn group(rng: &mut Rng) -> SchedulerSpec {
    let policies =
        [PolicySpec::Edf, PolicySpec::FixedPriority, PolicySpec::RateMonotonic, PolicySpec::Fifo];
    let mut spec = SchedulerSpec::new("group", policies[rng.below(4) as usize].clone());
    spec.overrides = Overrides { priority: Some(rng.below(9) as u8), ..Overrides::default() };
    if rng.below(3) == 0 {
        let kinds = [
            ServerKind::Polling,
            ServerKind::Deferrable,
            ServerKind::Sporadic,
            ServerKind::HardCbs,
            ServerKind::SoftCbs,
        ];
        let period = 5 + rng.below(20);
        let budget = Work::from_ns((1 + rng.below(period)) * 1_000_000);
        spec.reservation = Some(Reservation::new(kinds[rng.below(5) as usize], budget, ms(period)));
    }
    spec
}

/// Returns a root with `cpus` CPUs, up to three groups, tasks everywhere, and their workload.
fn system(rng: &mut Rng, cpus: u32) -> (Tree, Workload) {
    let root = SchedulerSpec::new(
        "root",
        [PolicySpec::Edf, PolicySpec::FixedPriority][rng.below(2) as usize].clone(),
    );
    let mut tree = Tree::new(cpus, root);
    let mut parents = vec![NodeId(0)];
    for _ in 0..rng.below(4) {
        parents.push(tree.scheduler(Tree::ROOT, group(rng)));
    }
    let mut sources = Vec::new();
    for _ in 0..2 + rng.below(5) {
        let period = 5 + rng.below(30);
        let mut spec = TaskSpec::new("task", ms(period));
        spec.priority = rng.below(9) as u8;
        let _ = tree.task(parents[rng.below(parents.len() as u64) as usize], spec);
        // All times are tenths of a millisecond, because rounded remainders of budgets would differ
        // from the simulator.
        let tenths = |n: u64| Work::from_ns(n * 100_000);
        let mut next = 0;
        let mut sometime = || {
            next += (period * 10) + rng.below(30);
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
        let costs = (0..7).map(|_| tenths(1 + rng.below(period * 3))).collect();
        sources.push(Source { arrivals, cost: Cost::List(costs) });
    }
    (tree, Workload { sources, seed: rng.next() })
}

#[test]
fn the_executor_makes_the_same_schedule_as_the_simulator() {
    let mut rng = Rng::new(5);
    let (mut events, mut stops) = (0, 0);
    for case in 0..400 {
        let cpus = 1 + (case % 3) as u32;
        let (tree, workload) = system(&mut rng, cpus);
        let until = at(300);
        let result = run(&tree, &workload, until, no_delay);
        let simulated = simulate(&tree, &workload, until);
        if let Some(differs) = result.log.first_difference(&simulated) {
            panic!("case {case}: {differs:?}\n{tree:?}");
        }
        events += simulated.events().count();
        stops += result.stops;
        let orders = replay(&mut tree.build().expect("a valid tree"), &result.record);
        assert!(orders.expect("the same orders") > 0);
    }
    assert!(events > 50_000 && stops > 1_000, "{events} turns, {stops} stops: too little happens");
}

#[test]
fn s8_a_worker_at_the_end_of_a_segment_steps_as_its_dispatcher_would() {
    let mut rng = Rng::new(8);
    let (mut worker_completions, mut steps) = (0, 0);
    for case in 0..400 {
        let (tree, workload) = system(&mut rng, 1 + (case % 3) as u32);
        let until = at(300);
        // All ends, or some of them.
        let mut coin = Rng::new(case);
        let mut may = |_| case % 2 == 0 || coin.below(2) == 0;
        let result = run_with_worker_steps(
            &tree,
            &workload,
            until,
            (Span::ZERO, Span::ZERO),
            Vec::new(),
            &mut may,
            no_delay,
        );
        if let Some(differs) = result.log.first_difference(&simulate(&tree, &workload, until)) {
            panic!("case {case}: {differs:?}\n{tree:?}");
        }
        assert!(
            replay(&mut tree.build().expect("a valid tree"), &result.record)
                .expect("the same orders")
                > 0
        );
        worker_completions += result.worker_completions;
        steps += result.steps;
    }
    assert!(
        worker_completions * 4 > steps,
        "{worker_completions} of {steps}: most jobs that end are not accounted"
    );
}

#[test]
fn s8_a_job_costs_one_wakeup_of_a_dispatcher() {
    for cpus in [1, 2] {
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut sources = Vec::new();
        for period in [7, 11, 13] {
            let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(period)));
            // No two of them end at one instant.
            sources.push(Source::periodic(ms(period), Work::from_ns(1_300_000 + period)));
        }
        let workload = Workload { sources, seed: 1 };
        let no = (Span::ZERO, Span::ZERO);
        let result =
            run_with_worker_steps(&tree, &workload, at(1_001), no, Vec::new(), |_| true, no_delay);
        let ends = result
            .log
            .events()
            .filter(|event| matches!(event, ScheduleEvent::Completed { .. }))
            .count() as u64;
        assert_eq!(result.worker_completions, ends);
        // One for each time of an arrival, and at first one for each dispatcher.
        let by_dispatchers = result.steps - result.worker_completions;
        assert!(by_dispatchers < ends + u64::from(cpus), "{by_dispatchers} steps for {ends} jobs");
    }
}

#[test]
fn s8_a_stepping_worker_migrates_when_the_other_cpu_is_free() {
    let tenth = |tenths: u64| Time::from_ns(tenths * 100_000);
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::FixedPriority));
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
    // Dispatchers are late by half a millisecond. So the second task starts on CPU 1 at 1.5, and
    // ends when the third, bound to that CPU, arrives: its next job goes to CPU 0, where the first
    // one runs.
    let no = (Span::ZERO, Span::ZERO);
    let late = || Span::from_ns(500_000);
    let result = run_with_worker_steps(&tree, &workload, at(4), no, Vec::new(), |_| true, late);
    let runs = |event: ScheduleEvent| match event {
        ScheduleEvent::Dispatched { cpu, task, job, .. } => Some((cpu.0, task.0, job)),
        _ => None,
    };
    let runs: Vec<_> = result.log.events().filter_map(runs).collect();
    assert_eq!(runs, [(0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 2, 0)]);
    assert_eq!((result.worker_completions, result.stops), (1, 1));
}

#[test]
fn a_budget_is_enforced_if_a_worker_starts_its_job() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let mut plain = TaskSpec::new("plain", ms(100));
    plain.priority = 9;
    let _ = tree.task(Tree::ROOT, plain);
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.reservation =
        Some(Reservation::new(ServerKind::Deferrable, Work::from_ns(2_000_000), ms(20)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", ms(100)));
    let source = |cost| Source::periodic(ms(100), Work::from_ns(cost));
    let workload = Workload { sources: vec![source(3_000_000), source(10_000_000)], seed: 1 };
    let no = (Span::ZERO, Span::ZERO);
    let result =
        run_with_worker_steps(&tree, &workload, at(19), no, Vec::new(), |_| true, no_delay);
    // The client starts when `plain` has ended, in the step of its worker, and has its budget and
    // no more.
    let times: Vec<_> = result.log.timed_events().iter().map(|&(now, _)| now).collect();
    assert_eq!((result.worker_completions, times), (1, vec![at(0), at(3), at(3), at(5)]));
}

#[test]
fn partitions_switch_at_their_slot_boundaries() {
    let root = SchedulerSpec::new(
        "root",
        PolicySpec::Partitions {
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
        let partition =
            tree.scheduler(Tree::ROOT, SchedulerSpec::new("partition", PolicySpec::Edf));
        let _ = tree.task(partition, TaskSpec::new("task", ms(40)));
        sources.push(Source::periodic(ms(40), Work::from_ns(11_000_000)));
    }
    let workload = Workload { sources, seed: 1 };
    let result = run(&tree, &workload, at(400), no_delay);
    assert_eq!(result.log.first_difference(&simulate(&tree, &workload, at(400))), None);
    // Each job takes two of its slots.
    assert_eq!(result.stops, 20);
}

#[test]
fn late_dispatchers_record_what_a_fresh_engine_repeats() {
    let mut rng = Rng::new(11);
    for case in 0..200 {
        let (tree, workload) = system(&mut rng, 1 + (case % 3) as u32);
        let mut late = Rng::new(case);
        let result =
            run(&tree, &workload, at(300), || Span::from_ns(late.below(3) * late.below(400_000)));
        let replayed = replay(&mut tree.build().expect("a valid tree"), &result.record);
        assert!(replayed.unwrap_or_else(|differs| panic!("case {case}: {differs}")) > 0);
    }
}

#[test]
fn a_record_is_replayed_from_its_file() {
    let mut rng = Rng::new(21);
    for case in 0..20 {
        let (tree, workload) = system(&mut rng, 1 + (case % 3) as u32);
        let result = run(&tree, &workload, at(300), no_delay);
        let mut text = Vec::new();
        crate::record::text::write(&result.record, &mut text)
            .expect("writing to memory cannot fail");
        let text = String::from_utf8(text).expect("plain text");
        let record = crate::record::text::read(&text).expect("what was written");
        assert_eq!(record, result.record);
        assert!(
            replay(&mut tree.build().expect("a valid tree"), &record).expect("the same orders") > 0
        );
    }
}

#[test]
fn a_record_with_two_exchanged_orders_is_detected() {
    let mut rng = Rng::new(3);
    let (tree, workload) = system(&mut rng, 1);
    let result = run(&tree, &workload, at(300), no_delay);
    let orders: Vec<usize> = (0..result.record.len())
        .filter(|&at| matches!(result.record[at].kind, RecordKind::Order(Order::Run { .. })))
        .collect();
    let mut caught = 0;
    for pair in orders.windows(2) {
        let mut record = result.record.clone();
        let (a, b) = (record[pair[0]].kind, record[pair[1]].kind);
        record[pair[0]].kind = b;
        record[pair[1]].kind = a;
        let differs =
            replay(&mut tree.build().expect("a valid tree"), &record).expect_err("exchanged");
        assert_eq!(differs.at, pair[0]);
        caught += 1;
    }
    assert!(caught > 20);
    // One missing and one additional order.
    let mut record: Vec<RecordEntry> = result.record.clone();
    record.remove(orders[5]);
    assert!(replay(&mut tree.build().expect("a valid tree"), &record).is_err());
    let mut record = result.record;
    record.insert(orders[5], record[orders[5]]);
    assert!(replay(&mut tree.build().expect("a valid tree"), &record).is_err());
}

#[test]
fn a_slow_dispatcher_starves_no_client() {
    let root = SchedulerSpec::new("root", PolicySpec::FixedPriority);
    let mut tree = Tree::new(1, root);
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.reservation =
        Some(Reservation::new(ServerKind::Deferrable, Work::from_ns(5_000_000), ms(20)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", ms(40)));
    let workload =
        Workload { sources: vec![Source::periodic(ms(40), Work::from_ns(9_000_000))], seed: 1 };
    let simulated = simulate(&tree, &workload, at(400));
    for (effort, switch) in
        [(30_000, 0), (0, 3_000), (7_000, 20_000), (40_000, 40_000), (10, 200_000)]
    {
        let costs = (Span::from_ns(effort), Span::from_ns(switch));
        let result = run_with(&tree, &workload, at(400), costs, no_delay);
        assert_eq!(result.log.first_difference(&simulated), None, "{costs:?}");
        assert!(
            result.steps < 20 * 12,
            "{costs:?}: {} steps for ten jobs in two segments",
            result.steps
        );
    }
}

/// Returns the overrun of each budget of a greedy client of a server with 5 ms in 20 ms, if its
/// dispatcher is `late`.
fn overruns(late: impl FnMut() -> Span) -> Vec<i64> {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.reservation =
        Some(Reservation::new(ServerKind::Deferrable, Work::from_ns(5_000_000), ms(20)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", ms(2_000)));
    let workload = Workload {
        sources: vec![Source::periodic(ms(2_000), Work::from_ns(900_000_000))],
        seed: 1,
    };
    let result = run(&tree, &workload, at(2_000), late);
    let mut since = None;
    let mut overruns = Vec::new();
    for &(now, event) in result.log.timed_events() {
        match event {
            ScheduleEvent::Dispatched { .. } => since = Some(now),
            ScheduleEvent::Idle { .. } => {
                let used = now.since(since.take().expect("it ran"));
                overruns.push(used.as_ns() as i64 - 5_000_000);
            }
            ScheduleEvent::Completed { .. } => unreachable!("it never ends"),
        }
    }
    assert_eq!(overruns.len(), 100);
    overruns
}

#[test]
fn l5_a_dispatcher_that_is_always_late_wakes_earlier() {
    let late = Span::from_ns(9_000);
    let overruns = overruns(|| late);
    assert_eq!(overruns[0], 9_000, "it has not learned yet");
    assert!(overruns[40..].iter().all(|&over| (-4_000..=0).contains(&over)), "{overruns:?}");
}

#[test]
fn l5_a_dispatcher_that_is_no_longer_late_restores_the_budgets() {
    let mut checks = 0;
    let overruns = overruns(|| {
        checks += 1;
        Span::from_ns(if checks < 100 { 9_000 } else { 0 })
    });
    // About two checks per budget. What is left beyond two microseconds is used again.
    assert!(overruns[20..40].iter().all(|&over| over >= -4_000), "{overruns:?}");
    assert!(overruns[90..].iter().all(|&over| (-2_000..=0).contains(&over)), "{overruns:?}");
}

#[test]
fn l5_one_disturbance_costs_no_client_its_budget() {
    let mut overran = 0;
    // At the end of a budget, before it, and at a refill.
    for disturbed in 20..60 {
        let mut checks = 0;
        let overruns = overruns(|| {
            checks += 1;
            Span::from_ns(if checks == disturbed { 3_000_000 } else { 0 })
        });
        let far = overruns.iter().filter(|&&over| over > 1_000_000).count();
        assert!(far <= 1, "{disturbed}: {overruns:?}");
        overran += far;
        // The correction follows by a step, not by the whole error; half of the negligible
        // remainder is never given up.
        assert!(overruns.iter().all(|&over| over >= -2_250), "{disturbed}: {overruns:?}");
    }
    assert!(overran > 10, "{overran}");
}

#[test]
fn a_negligible_remainder_of_a_budget_is_charged() {
    let root = SchedulerSpec::new("root", PolicySpec::FixedPriority);
    let mut tree = Tree::new(1, root);
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.reservation =
        Some(Reservation::new(ServerKind::Deferrable, Work::from_ns(5_000_000), ms(20)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", ms(20)));
    // Ends 3 µs before its server's budget would: the next job finds none, although 3 µs are left.
    let sources = vec![Source {
        arrivals: Arrivals::List(vec![at(0), at(10)]),
        cost: Cost::List(vec![Work::from_ns(4_997_000), Work::from_ns(1_000_000)]),
    }];
    let workload = Workload { sources, seed: 1 };
    let result = run(&tree, &workload, at(40), no_delay);
    let runs: Vec<_> = result.log.timed_events().iter().map(|&(time, _)| time).collect();
    assert_eq!(runs[..2], [Time::ZERO, Time::from_ns(4_997_000)]);
    // It starts at the refill, not at 10 ms for 3 µs.
    assert_eq!(runs[3], at(20));
    assert!(result.steps < 12, "{} steps: too many checks", result.steps);
}

#[test]
fn quanta_and_soft_budgets_shorter_than_a_check_do_not_stop_the_loop() {
    let mut soft = SchedulerSpec::new("soft", PolicySpec::Fifo);
    soft.reservation = Some(Reservation::new(ServerKind::SoftCbs, Work::from_ns(2_000), ms(1)));
    let events =
        SchedulerSpec::new("turns", PolicySpec::RoundRobin { quantum: Work::from_ns(2_000) });
    for group in [soft, events] {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let group = tree.scheduler(Tree::ROOT, group);
        let mut sources = Vec::new();
        for _ in 0..2 {
            let _ = tree.task(group, TaskSpec::new("task", ms(10)));
            sources.push(Source::periodic(ms(10), Work::from_ns(1_000_000)));
        }
        let result = run(&tree, &Workload { sources, seed: 1 }, at(50), no_delay);
        let ends = result
            .log
            .events()
            .filter(|event| matches!(event, ScheduleEvent::Completed { .. }))
            .count();
        assert_eq!(ends, 10, "{:?}", tree.get(group));
    }
}

#[test]
fn a_budget_is_enforced_however_often_it_is_checked_before() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.overrides = Overrides { priority: Some(9), ..Overrides::default() };
    server.reservation =
        Some(Reservation::new(ServerKind::Deferrable, Work::from_ns(5_000_000), ms(20)));
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
    let result = run(&tree, &Workload { sources, seed: 1 }, at(40), no_delay);
    let (stopped, _) = result.log.timed_events()[1];
    assert_eq!(stopped, at(5), "{:?}", &result.log.timed_events()[..3]);
}

#[test]
fn a_record_of_another_system_is_rejected_without_a_panic() {
    let (tree, workload) = system(&mut Rng::new(3), 1);
    let result = run(&tree, &workload, at(50), no_delay);
    let begin = result.record[0];
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
        let refused = replay(&mut tree.build().expect("a valid tree"), &record).expect_err(&line);
        assert_eq!(refused.at, 0, "{line}");
        assert!(
            ScheduleLog::from_record(tree.cpus, &record)
                .events()
                .all(|event| matches!(event, ScheduleEvent::Completed { .. })),
            "{line}"
        );
    }
    // A time beyond all, and one that runs backwards.
    let late = RecordEntry { now: Time::from_ns(huge), ..begin };
    assert_eq!(replay(&mut tree.build().expect("sound"), &[late]).expect_err("late").at, 0);
    let record = [RecordEntry { now: at(1), ..begin }, begin];
    assert_eq!(replay(&mut tree.build().expect("sound"), &record).expect_err("backwards").at, 1);
}
