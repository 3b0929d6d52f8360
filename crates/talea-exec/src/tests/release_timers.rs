//! Release timers change only which thread wakes.

use super::fake::{Fake, RunResult, run, run_with_activations, run_with_release_timers, simulate};
use super::{at, ms, no_delay, tenths};
use crate::executor::{Executor, StepContext};
use crate::load::{Arrival, Load};
use crate::mailbox::Batch;
use crate::record::{Log, RecordEntry, RecordKind};
use crate::replay::replay;
use crate::schedule_log::ScheduleEvent;
use talea_core::criteria::Overrides;
use talea_core::engine::{
    Condition, Engine, Event, NodeSpec, Order, SchedulerSpec, TaskId, TaskSpec, Tree, Version,
};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Arrivals, Cost, Source, Workload};
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;

/// Numbers of levels.
const ROOM: [u8; 3] = [1, 3, 40];

fn scheduler(rng: &mut Rng) -> SchedulerSpec {
    let policies = [
        PolicySpec::Edf,
        PolicySpec::FixedPriority,
        PolicySpec::RateMonotonic,
        PolicySpec::DeadlineMonotonic,
        PolicySpec::CriticalityMonotonic,
        PolicySpec::Fifo,
    ];
    let mut spec = SchedulerSpec::new("group", policies[rng.below(6) as usize].clone());
    spec.preemptive = rng.below(4) > 0;
    match rng.below(6) {
        0 => {
            spec.overrides = Overrides {
                priority: Some(rng.below(3) as u8),
                yields: rng.below(2) == 0,
                ..Overrides::default()
            }
        }
        1 => {
            spec.overrides =
                Overrides { period: Some(ms(5 + rng.below(40))), ..Overrides::default() }
        }
        2 => {
            spec.overrides =
                Overrides { relative_deadline: Some(ms(5 + rng.below(40))), ..Overrides::default() }
        }
        _ => {}
    }
    spec
}

fn has_budget(node: &NodeSpec) -> bool {
    matches!(node, NodeSpec::Scheduler(spec) if spec.reservation.is_some())
}

/// Returns a random system with few periods, levels and instants, so that events coincide. Some
/// systems are overloaded.
fn system(rng: &mut Rng) -> (Tree, Workload) {
    let mut tree =
        Tree::new(1, SchedulerSpec { overrides: Overrides::default(), ..scheduler(rng) });
    let mut parents = vec![Tree::ROOT];
    for _ in 0..rng.below(4) {
        let above = parents[rng.below(parents.len() as u64) as usize];
        let mut spec = scheduler(rng);
        if rng.below(12) == 0 {
            spec.reservation =
                Some(Reservation::new(ServerKind::Deferrable, Work::from_ns(3_000_000), ms(9)));
        }
        parents.push(tree.scheduler(above, spec));
    }
    let load = 1 + rng.below(3);
    // With a budget all times are tenths of a millisecond, because rounded remainders would differ
    // from the simulator.
    let jitters = load > 1 && !tree.nodes().any(|(_, node)| has_budget(&node.spec));
    let mut sources = Vec::new();
    for _ in 0..=rng.below(5) {
        let period = 5 * (1 + rng.below(6));
        let mut spec = TaskSpec::new("task", ms(period));
        spec.deadline =
            ms([period, period, 1 + rng.below(period), 2 * period][rng.below(4) as usize]);
        spec.priority = rng.below(3) as u8;
        spec.criticality = rng.below(3) as u8;
        spec.backlog.capacity = [0, 1, 64][rng.below(3) as usize];
        spec.enforced = rng.below(8) == 0;
        if rng.below(3) == 0 {
            spec.versions = vec![Version::new("one"); 1 + rng.below(2) as usize];
        }
        let _ = tree.task(parents[rng.below(parents.len() as u64) as usize], spec);
        let mut next = 0;
        let mut sometime = || {
            next += 10 * (1 + rng.below(2 * period));
            Time::from_ns(next * 100_000)
        };
        let arrivals = match period % 4 {
            0 => Arrivals::List((0..60).map(|_| sometime()).collect()),
            1 if jitters => Arrivals::Periodic { offset: ms(1), period: ms(period), jitter: ms(3) },
            _ => Arrivals::Periodic {
                offset: ms(5 * (period % 3)),
                period: ms(period),
                jitter: Span::ZERO,
            },
        };
        let mut cost = Cost::List((0..7).map(|_| tenths(1 + rng.below(period * load))).collect());
        if rng.below(4) == 0 {
            cost = cost.suspending(tenths(1), Span::from_ns(rng.below(90) * 100_000));
        }
        sources.push(Source { arrivals, cost });
    }
    (tree, Workload { sources, seed: rng.next() })
}

fn cannot_preempt(engine: &Engine, task: TaskId) -> bool {
    let others = (0..engine.tasks() as u32).map(TaskId).filter(|&other| other != task);
    engine.release_may_be_deferred(task)
        && others.into_iter().all(|other| engine.cannot_preempt(task, other))
}

/// Returns a task that cannot preempt and whose arrival, without jitter and alone in its step,
/// changed the running job.
fn takes_the_cpu(tree: &Tree, result: &RunResult) -> Option<TaskId> {
    let engine = tree.build().expect("a valid tree");
    let mut busy = false;
    let mut step: Vec<(Time, RecordKind)> = Vec::new();
    for entry in &result.record {
        match entry.kind {
            RecordKind::Step => {
                let mut found =
                    step.iter().filter(|(_, what)| matches!(what, RecordKind::Event(_)));
                let is_ordered = step.iter().any(|(_, what)| matches!(what, RecordKind::Order(_)));
                if let (Some(&(now, RecordKind::Event(Event::Arrived { task, arrival }))), None) =
                    (found.next(), found.next())
                    && busy
                    && is_ordered
                    && arrival == now
                    && cannot_preempt(&engine, task)
                {
                    return Some(task);
                }
                for (_, what) in step.drain(..) {
                    if let RecordKind::Order(order) = what {
                        busy = matches!(order, Order::Run { .. });
                    }
                }
            }
            RecordKind::Polled => {}
            what => step.push((entry.now, what)),
        }
    }
    None
}

fn arrivals(result: &RunResult) -> u64 {
    let found =
        |entry: &&RecordEntry| matches!(entry.kind, RecordKind::Event(Event::Arrived { .. }));
    result.record.iter().filter(found).count() as u64
}

#[test]
fn s8_release_timers_change_no_order_and_no_count() {
    let mut rng = Rng::new(31);
    let (mut cases, mut with_timers, mut worker_releases, mut saved, mut already_awake) =
        (0, 0, 0, 0, 0);
    for case in 0..1_500 {
        let (tree, workload) = system(&mut rng);
        if tree.check().is_err() {
            continue;
        }
        cases += 1;
        let until = at(300);
        let plain = run(&tree, &workload, until, no_delay);
        assert_eq!(takes_the_cpu(&tree, &plain), None, "case {case}: it preempts\n{tree:?}");
        let changes = vec![(at(70), Condition::Mode(1))];
        let result =
            run_with_release_timers(&tree, &workload, until, ROOM[case % 3], changes, no_delay);
        if let Some(differs) = result.log.first_difference(&simulate(&tree, &workload, until)) {
            panic!("case {case}: {differs:?}\n{tree:?}\n{workload:?}");
        }
        assert_eq!(
            result.log.timed_events(),
            plain.log.timed_events(),
            "case {case}: at other times"
        );
        // An overdue release is delivered with its own time, at the end of the run at the latest:
        // no count differs.
        assert_eq!(
            (&result.job_stats, result.refused),
            (&plain.job_stats, plain.refused),
            "case {case}"
        );
        assert_eq!(arrivals(&result), arrivals(&plain), "case {case}");
        assert!(result.late_wakeups.is_empty(), "case {case}: {:?}", result.late_wakeups);
        assert!(
            replay(&mut tree.build().expect("a valid tree"), &result.record).is_ok(),
            "case {case}"
        );
        with_timers += u64::from(result.worker_releases > 0);
        worker_releases += result.worker_releases;
        already_awake += result.already_awake;
        saved += plain
            .steps
            .saturating_sub(result.steps - result.worker_completions - result.worker_releases);
    }
    assert!(
        cases > 1_000 && with_timers * 4 > cases,
        "{with_timers} of {cases}: too few use release timers"
    );
    assert!(
        worker_releases > 3_000 && saved > worker_releases,
        "{worker_releases}, {saved}: too little happens"
    );
    assert!(already_awake > 3_000, "{already_awake}: too many awake workers are woken");
}

#[test]
fn s8_of_the_started_jobs_the_dispatched_one_has_the_highest_level() {
    let mut rng = Rng::new(41);
    let (mut stops, mut worker_releases) = (0, 0);
    for case in 0..300 {
        let mut tree =
            Tree::new(1, SchedulerSpec { overrides: Overrides::default(), ..scheduler(&mut rng) });
        let mut sources = Vec::new();
        for _ in 0..=rng.below(8) {
            let period = 5 * (1 + rng.below(8));
            let mut spec = TaskSpec::new("task", ms(period));
            spec.deadline = ms(1 + rng.below(2 * period));
            (spec.priority, spec.criticality) = (rng.below(4) as u8, rng.below(4) as u8);
            let _ = tree.task(Tree::ROOT, spec);
            let mut next = 0;
            let mut sometime = || {
                next += 1 + rng.below(20 * period);
                Time::from_ns(next * 100_000)
            };
            let arrivals = Arrivals::List((0..60).map(|_| sometime()).collect());
            let cost = Cost::List((0..7).map(|_| tenths(1 + rng.below(4 * period))).collect());
            sources.push(Source { arrivals, cost });
        }
        let workload = Workload { sources, seed: case };
        let mut delays = Rng::new(case);
        let delay = || Span::from_ns(delays.below(3) * delays.below(400_000));
        let result = run_with_release_timers(&tree, &workload, at(300), 40, Vec::new(), delay);
        assert_eq!(result.level_inversions, 0, "case {case}: {tree:?}");
        (stops, worker_releases) = (stops + result.stops, worker_releases + result.worker_releases);
    }
    assert!(
        stops > 500 && worker_releases > 3_000,
        "{stops}, {worker_releases}: too little happens"
    );
}

#[test]
fn s8_late_release_timers_record_what_a_fresh_engine_repeats_and_miss_nothing() {
    let mut rng = Rng::new(37);
    let (mut late, mut worker_releases) = (0, 0);
    for case in 0..300 {
        let (tree, workload) = system(&mut rng);
        if tree.check().is_err() {
            continue;
        }
        let mut delays = Rng::new(case);
        let delay = || Span::from_ns(delays.below(3) * delays.below(400_000));
        let result = run_with_release_timers(
            &tree,
            &workload,
            at(300),
            ROOM[case as usize % 3],
            Vec::new(),
            delay,
        );
        let replayed = replay(&mut tree.build().expect("a valid tree"), &result.record);
        assert!(replayed.is_ok(), "case {case}: {replayed:?}");
        // At the end all is delivered but what is behind an unfinished job, and what has just come.
        let plain = run(&tree, &workload, at(300), no_delay);
        let untold = arrivals(&plain).saturating_sub(arrivals(&result));
        assert!(untold < 40, "case {case}: {untold} arrivals");
        late += result.late_wakeups.len();
        worker_releases += result.worker_releases;
    }
    assert!(
        worker_releases > 500 && late > 50,
        "{worker_releases} releases by workers, {late} late wake-ups"
    );
}

#[test]
fn y6_a_worker_activated_before_its_timer_is_woken_and_a_fresh_engine_repeats_it() {
    let mut rng = Rng::new(43);
    let (mut activated, mut already_awake, mut worker_releases) = (0, 0, 0);
    for case in 0..300 {
        let (tree, workload) = system(&mut rng);
        if tree.check().is_err() {
            continue;
        }
        let mut who = Rng::new(case);
        let tasks = workload.sources.len() as u64;
        let mut activations = || {
            let activations = who.below(4) == 0;
            activated += u64::from(activations);
            activations.then(|| TaskId(who.below(tasks) as u32))
        };
        let result = run_with_activations(
            &tree,
            &workload,
            at(300),
            ROOM[case as usize % 3],
            &mut activations,
            no_delay,
        );
        let replayed = replay(&mut tree.build().expect("a valid tree"), &result.record);
        assert!(replayed.is_ok(), "case {case}: {replayed:?}");
        (already_awake, worker_releases) =
            (already_awake + result.already_awake, worker_releases + result.worker_releases);
    }
    assert!(
        activated > 1_000 && already_awake > 100 && worker_releases > 100,
        "{activated}, {already_awake}, {worker_releases}: too little happens"
    );
}

/// Returns a task with a job every 10 ms that takes a tenth of that, and another task.
fn two(policy: PolicySpec, other: (u64, u64)) -> (Tree, Workload) {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", policy));
    let mut sources = Vec::new();
    for (period, cost) in [(10, 1), other] {
        let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(period)));
        sources.push(Source::periodic(ms(period), Work::from_ns(cost * 1_000_000)));
    }
    (tree, Workload { sources, seed: 1 })
}

#[test]
fn s8_a_light_task_costs_its_dispatcher_nothing() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(10)));
    let workload =
        Workload { sources: vec![Source::periodic(ms(10), Work::from_ns(1_000_000))], seed: 1 };
    let result = run_with_release_timers(&tree, &workload, at(1_000), 40, Vec::new(), no_delay);
    assert_eq!(
        (result.steps - result.worker_completions - result.worker_releases, result.worker_releases),
        (1, 99)
    );
    // It cannot preempt the other one, which preempts it: with one level for all, its releases are
    // the dispatcher's.
    let (tree, workload) = two(PolicySpec::Edf, (4, 1));
    let result = run_with_release_timers(&tree, &workload, at(1_000), 1, Vec::new(), no_delay);
    assert_eq!(result.steps - result.worker_completions - result.worker_releases, 250);
    assert_eq!(
        result.worker_releases, 50,
        "where both are released at once the dispatcher is awake anyway"
    );
    let result = run_with_release_timers(&tree, &workload, at(1_000), 40, Vec::new(), no_delay);
    assert_eq!(result.steps - result.worker_completions - result.worker_releases, 1);
    assert_eq!(
        result.worker_releases, 299,
        "one for each job but the first two, and one for both where both are released"
    );
}

#[test]
fn s8_a_preempting_worker_wakes_in_time_by_its_timer_and_delivers_a_simultaneous_release() {
    // Every 20 ms both are released at once; the first one computes for 13 ms and is preempted
    // twice in between.
    let (tree, workload) = {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut sources = Vec::new();
        for (period, cost) in [(20, 13), (5, 1)] {
            let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(period)));
            sources.push(Source::periodic(ms(period), Work::from_ns(cost * 1_000_000)));
        }
        (tree, Workload { sources, seed: 1 })
    };
    let result = run_with_release_timers(&tree, &workload, at(1_000), 40, Vec::new(), no_delay);
    assert_eq!(result.log.first_difference(&simulate(&tree, &workload, at(1_000))), None);
    assert_eq!(
        result.steps - result.worker_completions - result.worker_releases,
        1,
        "the dispatcher's, of the first two"
    );
    assert_eq!(
        (result.worker_completions, result.worker_releases),
        (250, 199),
        "ends; arrivals of the second"
    );
    assert_eq!(
        result.stops, 100,
        "releases at the same time, or with the same deadline, do not preempt the first one"
    );
    assert!(result.late_wakeups.is_empty());
    // On one level for all, the dispatcher delivers all releases.
    let result = run_with_release_timers(&tree, &workload, at(1_000), 1, Vec::new(), no_delay);
    assert_eq!(
        (result.steps - result.worker_completions - result.worker_releases, result.worker_releases),
        (200, 0)
    );
}

#[test]
fn s8_of_simultaneous_releases_one_timer_is_armed_for_all() {
    let (tree, workload) = two(PolicySpec::Fifo, (10, 2));
    let result = run_with_release_timers(&tree, &workload, at(1_000), 40, Vec::new(), no_delay);
    assert_eq!(
        (result.steps - result.worker_completions - result.worker_releases, result.worker_releases),
        (1, 99)
    );
    assert_eq!(result.already_awake, 0, "the other one is woken only the first time");
}

#[test]
fn s8_a_worker_whose_timer_expired_behind_a_running_job_is_not_woken() {
    // Every 40 ms, the second job is released while the first one computes, 5 ms before that ends.
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Fifo));
    let mut sources = Vec::new();
    for (offset, cost) in [(0, 15), (10, 5)] {
        let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(40)));
        let arrivals =
            Arrivals::Periodic { offset: ms(offset), period: ms(40), jitter: Span::ZERO };
        sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(cost * 1_000_000)) });
    }
    let workload = Workload { sources, seed: 1 };
    let result = run_with_release_timers(&tree, &workload, at(1_000), 40, Vec::new(), no_delay);
    assert_eq!(result.log.first_difference(&simulate(&tree, &workload, at(1_000))), None);
    assert_eq!((result.worker_releases, result.already_awake), (24, 24), "each but the first");
}

#[test]
fn s8_a_worker_that_is_not_woken_starts_with_its_late_timer_which_excuses_nothing() {
    // The timer of the second one is due 150 us before the first job ends, and comes 100 us after
    // that.
    let late = Span::from_ns(250_000);
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Fifo));
    let mut sources = Vec::new();
    for (offset, cost) in [(0, 9_900_000), (10, 5_000_000)] {
        let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(40)));
        let arrivals =
            Arrivals::Periodic { offset: ms(offset), period: ms(40), jitter: Span::ZERO };
        sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(cost)) });
    }
    let workload = Workload { sources, seed: 1 };
    let result = run_with_release_timers(&tree, &workload, at(1_000), 40, Vec::new(), || late);
    assert_eq!(result.already_awake, 24, "each but the first");
    let of = |which: fn(&ScheduleEvent) -> bool| {
        let events = result.log.timed_events().iter().filter(move |(_, event)| which(event));
        events.map(|&(now, _)| now).skip(1).collect::<Vec<Time>>()
    };
    let ordered = of(|event| matches!(event, ScheduleEvent::Dispatched { task: TaskId(1), .. }));
    let ended = of(|event| matches!(event, ScheduleEvent::Completed { task: TaskId(1), .. }));
    let arrivals = (1..25).map(|round| at(40 * round + 10));
    let found: Vec<_> = arrivals.clone().map(|arrival| arrival + Span::from_ns(150_000)).collect();
    assert_eq!(ordered, found);
    // As late as its timer and no later: as if no step had been made before.
    let expected: Vec<_> = arrivals.map(|arrival| arrival + late + ms(5)).collect();
    assert_eq!(ended, expected);
    // The order stood meanwhile, so the idle time of the CPU counts against it. Only the lateness
    // of the other one excuses.
    assert!(
        result.late_wakeups.iter().all(|stretch| stretch.from.as_ns() % ms(40).as_ns() == 0),
        "{:?}",
        result.late_wakeups
    );
    assert_eq!(result.late_wakeups.len(), 24);
}

#[test]
fn s8_a_late_wakeup_on_an_idle_cpu_is_recorded_and_one_behind_a_running_job_is_not() {
    let late = Span::from_ns(250_000);
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(10)));
    let workload =
        Workload { sources: vec![Source::periodic(ms(10), Work::from_ns(1_000_000))], seed: 1 };
    let result = run_with_release_timers(&tree, &workload, at(95), 40, Vec::new(), || late);
    assert_eq!(result.late_wakeups.len(), 9);
    for (stretch, begin) in result.late_wakeups.iter().zip(1..) {
        assert_eq!(
            (stretch.from, stretch.to, stretch.amount),
            (at(10 * begin), at(10 * begin) + late, late)
        );
    }
    // Behind a computing job no thread of the run was late.
    let (tree, workload) = two(PolicySpec::Fifo, (10, 2));
    let mut checks = 0;
    let result = run_with_release_timers(&tree, &workload, at(95), 40, Vec::new(), || {
        checks += 1;
        if checks > 1 { late } else { Span::ZERO }
    });
    assert!(
        result.late_wakeups.iter().all(|stretch| stretch.amount == late),
        "{:?}",
        result.late_wakeups
    );
}

/// Whether no dispatcher has to be notified.
fn sleeps_on(root: &mut Executor<Fake>) -> bool {
    let mut sleeps_on = true;
    root.notify_late_dispatchers(0, |_| sleeps_on = false);
    sleeps_on
}

#[test]
fn y6_a_worker_woken_for_an_activation_leaves_its_coalesced_releases_to_the_dispatcher() {
    let (tree, _) = two(PolicySpec::Fifo, (10, 1));
    let load = || {
        let arrivals = [0, 10, 20].map(|k| Arrival { observed: at(k), nominal: at(k) });
        Load::new(arrivals.to_vec(), vec![Work::from_ns(1_000_000)])
    };
    let fake = Fake::new(2);
    let engine = tree.build().expect("a valid tree");
    let Ok(mut root) =
        Executor::new(engine, 1, fake.clone(), vec![load(), load()], Vec::new(), Vec::new());
    let Ok(()) = root.enable_release_timers(40);
    let mut log = Log::new(1 << 10);
    let mut step = |root: &mut Executor<Fake>, now: u64, batch: Batch| {
        fake.work_until(at(now).as_ns());
        let Ok(()) = root.step(StepContext { cpu: 0, worker: None }, at(now), &batch, &mut log);
    };
    let ended = |task| Batch { completed: vec![TaskId(task)], ..Batch::default() };
    step(&mut root, 0, Batch::default());
    let _ = root.next_wakeup(0, at(0), |_| ());
    step(&mut root, 1, ended(0));
    assert_eq!(root.arm_release_timer(TaskId(0)), Ok(Some(at(10))));
    step(&mut root, 2, ended(1));
    assert_eq!(root.arm_release_timer(TaskId(1)), Ok(None), "the other timer covers both");
    assert!(sleeps_on(&mut root));
    step(&mut root, 5, Batch { activations: vec![(TaskId(0), 1)], ..Batch::default() });
    assert!(!sleeps_on(&mut root), "no other thread would be awake at 10 ms if the job slept then");
    assert_eq!(root.next_wakeup(0, at(5), |_| ()), at(10));
    step(&mut root, 6, ended(0));
    assert_eq!(root.arm_release_timer(TaskId(0)), Ok(None), "the dispatcher is awake then anyway");
    assert!(sleeps_on(&mut root));
}

#[test]
fn s8_beyond_the_maximum_number_of_timers_the_dispatcher_delivers_the_releases() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Fifo));
    let mut sources = Vec::new();
    for task in 0..80 {
        let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(40)));
        let arrivals = Arrivals::Periodic {
            offset: Span::from_ns(500_000 * task),
            period: ms(40),
            jitter: Span::ZERO,
        };
        sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(300_000)) });
    }
    let workload = Workload { sources, seed: 1 };
    let result = run_with_release_timers(&tree, &workload, at(400), 40, Vec::new(), no_delay);
    assert_eq!(result.log.first_difference(&simulate(&tree, &workload, at(400))), None);
    assert!(result.worker_releases > 100, "{}", result.worker_releases);
    let dispatchers = result.steps - result.worker_completions - result.worker_releases;
    assert!(dispatchers > 50, "{dispatchers}");
}
