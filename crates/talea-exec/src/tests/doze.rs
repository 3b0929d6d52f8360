//! Workers that are awake by themselves change nothing but who wakes.

use super::fake::{Fake, Ran, run, run_asked, run_dozing, simulate};
use super::{at, in_time, ms, tenths};
use crate::course::Turn;
use crate::load::{Arrival, Load};
use crate::mailbox::Mail;
use crate::record::{Entry, Log, What};
use crate::replay::replay;
use crate::root::{Root, Stepper};
use talea_core::criteria::Own;
use talea_core::machine::{
    Body, Condition, Event, Machine, Order, SchedulerSpec, TaskId, TaskSpec, Tree, Version,
};
use talea_core::sched::Policy;
use talea_core::server::{Kind, Reservation};
use talea_core::workload::{Arrivals, Cost, Source, Workload};
use talea_core::{Span, Time, Work};
use talea_sim::dice::Dice;

/// Levels of workers.
const ROOM: [u8; 3] = [1, 3, 40];

fn scheduler(dice: &mut Dice) -> SchedulerSpec {
    let policies = [
        Policy::Edf,
        Policy::FixedPriority,
        Policy::RateMonotonic,
        Policy::DeadlineMonotonic,
        Policy::CriticalityMonotonic,
        Policy::Fifo,
    ];
    let mut spec = SchedulerSpec::new("group", policies[dice.below(6) as usize].clone());
    spec.preemptive = dice.below(4) > 0;
    match dice.below(6) {
        0 => {
            spec.own = Own {
                priority: Some(dice.below(3) as u8),
                yields: dice.below(2) == 0,
                ..Own::default()
            }
        }
        1 => spec.own = Own { period: Some(ms(5 + dice.below(40))), ..Own::default() },
        2 => spec.own = Own { relative_deadline: Some(ms(5 + dice.below(40))), ..Own::default() },
        _ => {}
    }
    spec
}

fn has_budget(node: &Body) -> bool {
    matches!(node, Body::Scheduler(spec) if spec.reservation.is_some())
}

/// Few periods, levels and instants, so that much comes together; now and then more than there is
/// time for.
fn system(dice: &mut Dice) -> (Tree, Workload) {
    let mut tree = Tree::new(1, SchedulerSpec { own: Own::default(), ..scheduler(dice) });
    let mut parents = vec![Tree::ROOT];
    for _ in 0..dice.below(4) {
        let above = parents[dice.below(parents.len() as u64) as usize];
        let mut spec = scheduler(dice);
        if dice.below(12) == 0 {
            spec.reservation =
                Some(Reservation::new(Kind::Deferrable, Work::from_ns(3_000_000), ms(9)));
        }
        parents.push(tree.scheduler(above, spec));
    }
    let load = 1 + dice.below(3);
    // All in tenths of a millisecond where there is a budget: rests of it that are rounded up would
    // be no twin's.
    let jitters = load > 1 && !tree.nodes().any(|(_, node)| has_budget(&node.body));
    let mut sources = Vec::new();
    for _ in 0..=dice.below(5) {
        let period = 5 * (1 + dice.below(6));
        let mut spec = TaskSpec::new("task", ms(period));
        spec.deadline =
            ms([period, period, 1 + dice.below(period), 2 * period][dice.below(4) as usize]);
        spec.priority = dice.below(3) as u8;
        spec.criticality = dice.below(3) as u8;
        spec.backlog.capacity = [0, 1, 64][dice.below(3) as usize];
        spec.enforced = dice.below(8) == 0;
        if dice.below(3) == 0 {
            spec.versions = vec![Version::new("one"); 1 + dice.below(2) as usize];
        }
        let _ = tree.task(parents[dice.below(parents.len() as u64) as usize], spec);
        let mut next = 0;
        let mut sometime = || {
            next += 10 * (1 + dice.below(2 * period));
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
        let mut cost = Cost::List((0..7).map(|_| tenths(1 + dice.below(period * load))).collect());
        if dice.below(4) == 0 {
            cost = cost.suspending(tenths(1), Span::from_ns(dice.below(90) * 100_000));
        }
        sources.push(Source { arrivals, cost });
    }
    (tree, Workload { sources, seed: dice.next() })
}

fn interrupts_nobody(machine: &Machine, task: TaskId) -> bool {
    let others = (0..machine.tasks() as u32).map(TaskId).filter(|&other| other != task);
    machine.queues_behind_itself(task)
        && others.into_iter().all(|other| machine.leaves_alone(task, other))
}

/// Whether an arrival of a task that interrupts nobody, without jitter and alone in its step, has
/// changed who runs while somebody did: none may.
fn takes_the_cpu(tree: &Tree, ran: &Ran) -> Option<TaskId> {
    let machine = tree.build().expect("a sound tree");
    let mut busy = false;
    let mut step: Vec<(Time, What)> = Vec::new();
    for entry in &ran.record {
        match entry.what {
            What::Step => {
                let mut told = step.iter().filter(|(_, what)| matches!(what, What::Told(_)));
                let is_ordered = step.iter().any(|(_, what)| matches!(what, What::Ordered(_)));
                if let (Some(&(now, What::Told(Event::Arrived { task, arrival }))), None) =
                    (told.next(), told.next())
                    && busy
                    && is_ordered
                    && arrival == now
                    && interrupts_nobody(&machine, task)
                {
                    return Some(task);
                }
                for (_, what) in step.drain(..) {
                    if let What::Ordered(order) = what {
                        busy = matches!(order, Order::Run { .. });
                    }
                }
            }
            What::Polled => {}
            what => step.push((entry.now, what)),
        }
    }
    None
}

fn arrivals(ran: &Ran) -> u64 {
    let told = |entry: &&Entry| matches!(entry.what, What::Told(Event::Arrived { .. }));
    ran.record.iter().filter(told).count() as u64
}

#[test]
fn s8_workers_that_are_awake_by_themselves_change_no_order_and_no_count() {
    let mut dice = Dice::new(31);
    let (mut cases, mut dozing, mut by_themselves, mut saved, mut up) = (0, 0, 0, 0, 0);
    for case in 0..1_500 {
        let (tree, workload) = system(&mut dice);
        if tree.check().is_err() {
            continue;
        }
        cases += 1;
        let until = at(300);
        let plain = run(&tree, &workload, until, in_time);
        assert_eq!(
            takes_the_cpu(&tree, &plain),
            None,
            "case {case}: it interrupts somebody\n{tree:?}"
        );
        let changes = vec![(at(70), Condition::Mode(1))];
        let ran = run_dozing(&tree, &workload, until, ROOM[case % 3], changes, in_time);
        if let Some(differs) = ran.course.parts_from(&simulate(&tree, &workload, until)) {
            panic!("case {case}: {differs:?}\n{tree:?}\n{workload:?}");
        }
        assert_eq!(ran.course.timed(), plain.course.timed(), "case {case}: at other times");
        // What is late is told with its own time, and at the end of the run at the latest: so
        // nothing is counted otherwise.
        assert_eq!((&ran.tallies, ran.refused), (&plain.tallies, plain.refused), "case {case}");
        assert_eq!(arrivals(&ran), arrivals(&plain), "case {case}");
        assert!(ran.late.is_empty(), "case {case}: {:?}", ran.late);
        assert!(
            replay(&mut tree.build().expect("a sound tree"), &ran.record).is_ok(),
            "case {case}"
        );
        dozing += u64::from(ran.by_themselves > 0);
        by_themselves += ran.by_themselves;
        up += ran.up;
        saved += plain.steps.saturating_sub(ran.steps - ran.by_workers - ran.by_themselves);
    }
    assert!(cases > 1_000 && dozing * 4 > cases, "{dozing} of {cases}: too few can");
    assert!(
        by_themselves > 3_000 && saved > by_themselves,
        "{by_themselves}, {saved}: too little happens"
    );
    assert!(up > 3_000, "{up}: too many are called who are awake");
}

#[test]
fn s8_of_the_jobs_that_have_begun_the_one_that_is_to_run_stands_highest() {
    let mut dice = Dice::new(41);
    let (mut stops, mut by_themselves) = (0, 0);
    for case in 0..300 {
        let mut tree = Tree::new(1, SchedulerSpec { own: Own::default(), ..scheduler(&mut dice) });
        let mut sources = Vec::new();
        for _ in 0..=dice.below(8) {
            let period = 5 * (1 + dice.below(8));
            let mut spec = TaskSpec::new("task", ms(period));
            spec.deadline = ms(1 + dice.below(2 * period));
            (spec.priority, spec.criticality) = (dice.below(4) as u8, dice.below(4) as u8);
            let _ = tree.task(Tree::ROOT, spec);
            let mut next = 0;
            let mut sometime = || {
                next += 1 + dice.below(20 * period);
                Time::from_ns(next * 100_000)
            };
            let arrivals = Arrivals::List((0..60).map(|_| sometime()).collect());
            let cost = Cost::List((0..7).map(|_| tenths(1 + dice.below(4 * period))).collect());
            sources.push(Source { arrivals, cost });
        }
        let workload = Workload { sources, seed: case };
        let mut delays = Dice::new(case);
        let delay = || Span::from_ns(delays.below(3) * delays.below(400_000));
        let ran = run_dozing(&tree, &workload, at(300), 40, Vec::new(), delay);
        assert_eq!(ran.below, 0, "case {case}: {tree:?}");
        (stops, by_themselves) = (stops + ran.stops, by_themselves + ran.by_themselves);
    }
    assert!(stops > 500 && by_themselves > 3_000, "{stops}, {by_themselves}: too little happens");
}

#[test]
fn s8_whoever_is_late_records_what_a_fresh_machine_does_again_and_nothing_is_slept_over() {
    let mut dice = Dice::new(37);
    let (mut late, mut by_themselves) = (0, 0);
    for case in 0..300 {
        let (tree, workload) = system(&mut dice);
        if tree.check().is_err() {
            continue;
        }
        let mut delays = Dice::new(case);
        let delay = || Span::from_ns(delays.below(3) * delays.below(400_000));
        let ran = run_dozing(&tree, &workload, at(300), ROOM[case as usize % 3], Vec::new(), delay);
        let replayed = replay(&mut tree.build().expect("a sound tree"), &ran.record);
        assert!(replayed.is_ok(), "case {case}: {replayed:?}");
        // By the end all is told but what an unfinished job has behind it, and what has just come.
        let plain = run(&tree, &workload, at(300), in_time);
        let untold = arrivals(&plain).saturating_sub(arrivals(&ran));
        assert!(untold < 40, "case {case}: {untold} arrivals");
        late += ran.late.len();
        by_themselves += ran.by_themselves;
    }
    assert!(by_themselves > 500 && late > 50, "{by_themselves} by themselves, {late} noteworthy");
}

#[test]
fn y6_whoever_is_asked_for_before_its_own_time_comes_is_called_and_a_fresh_machine_does_the_same() {
    let mut dice = Dice::new(43);
    let (mut asked, mut up, mut by_themselves) = (0, 0, 0);
    for case in 0..300 {
        let (tree, workload) = system(&mut dice);
        if tree.check().is_err() {
            continue;
        }
        let mut who = Dice::new(case);
        let tasks = workload.sources.len() as u64;
        let mut asks = || {
            let asks = who.below(4) == 0;
            asked += u64::from(asks);
            asks.then(|| TaskId(who.below(tasks) as u32))
        };
        let ran = run_asked(&tree, &workload, at(300), ROOM[case as usize % 3], &mut asks, in_time);
        let replayed = replay(&mut tree.build().expect("a sound tree"), &ran.record);
        assert!(replayed.is_ok(), "case {case}: {replayed:?}");
        (up, by_themselves) = (up + ran.up, by_themselves + ran.by_themselves);
    }
    assert!(
        asked > 1_000 && up > 100 && by_themselves > 100,
        "{asked}, {up}, {by_themselves}: too little happens"
    );
}

/// A task with a job each 10 ms that takes a tenth of that, and the other one beside it.
fn two(policy: Policy, other: (u64, u64)) -> (Tree, Workload) {
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
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(10)));
    let workload =
        Workload { sources: vec![Source::periodic(ms(10), Work::from_ns(1_000_000))], seed: 1 };
    let ran = run_dozing(&tree, &workload, at(1_000), 40, Vec::new(), in_time);
    assert_eq!((ran.steps - ran.by_workers - ran.by_themselves, ran.by_themselves), (1, 99));
    // With one beside it whom it may not interrupt, and who interrupts it: on one level for all
    // that one is the dispatcher's.
    let (tree, workload) = two(Policy::Edf, (4, 1));
    let ran = run_dozing(&tree, &workload, at(1_000), 1, Vec::new(), in_time);
    assert_eq!(ran.steps - ran.by_workers - ran.by_themselves, 250);
    assert_eq!(ran.by_themselves, 50, "where both come together the dispatcher is awake anyway");
    let ran = run_dozing(&tree, &workload, at(1_000), 40, Vec::new(), in_time);
    assert_eq!(ran.steps - ran.by_workers - ran.by_themselves, 1);
    assert_eq!(
        ran.by_themselves, 299,
        "that of each job but the first two, one for both where both come"
    );
}

#[test]
fn s8_whoever_interrupts_is_awake_in_time_by_itself_and_for_a_patient_one_that_comes_with_it() {
    // Each 20 ms both come at once; the first, which computes for 13 ms, is interrupted twice in
    // between.
    let (tree, workload) = {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
        let mut sources = Vec::new();
        for (period, cost) in [(20, 13), (5, 1)] {
            let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(period)));
            sources.push(Source::periodic(ms(period), Work::from_ns(cost * 1_000_000)));
        }
        (tree, Workload { sources, seed: 1 })
    };
    let ran = run_dozing(&tree, &workload, at(1_000), 40, Vec::new(), in_time);
    assert_eq!(ran.course.parts_from(&simulate(&tree, &workload, at(1_000))), None);
    assert_eq!(
        ran.steps - ran.by_workers - ran.by_themselves,
        1,
        "the dispatcher's, of the first two"
    );
    assert_eq!((ran.by_workers, ran.by_themselves), (250, 199), "ends; arrivals of the second");
    assert_eq!(
        ran.stops, 100,
        "what comes with the first one does not stop it, nor what is due when it is"
    );
    assert!(ran.late.is_empty());
    // On one level for all, all of that is the dispatcher's.
    let ran = run_dozing(&tree, &workload, at(1_000), 1, Vec::new(), in_time);
    assert_eq!((ran.steps - ran.by_workers - ran.by_themselves, ran.by_themselves), (200, 0));
}

#[test]
fn s8_of_those_that_come_together_one_is_awake_for_all() {
    let (tree, workload) = two(Policy::Fifo, (10, 2));
    let ran = run_dozing(&tree, &workload, at(1_000), 40, Vec::new(), in_time);
    assert_eq!((ran.steps - ran.by_workers - ran.by_themselves, ran.by_themselves), (1, 99));
    assert_eq!(ran.up, 0, "nobody rings for the other one but the first");
}

#[test]
fn s8_whoever_s_time_has_come_behind_one_that_computes_is_not_called() {
    // Each 40 ms: the patient one's time comes while the other one computes, 5 ms before that ends.
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Fifo));
    let mut sources = Vec::new();
    for (offset, cost) in [(0, 15), (10, 5)] {
        let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(40)));
        let arrivals =
            Arrivals::Periodic { offset: ms(offset), period: ms(40), jitter: Span::ZERO };
        sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(cost * 1_000_000)) });
    }
    let workload = Workload { sources, seed: 1 };
    let ran = run_dozing(&tree, &workload, at(1_000), 40, Vec::new(), in_time);
    assert_eq!(ran.course.parts_from(&simulate(&tree, &workload, at(1_000))), None);
    assert_eq!((ran.by_themselves, ran.up), (24, 24), "each but the first");
}

#[test]
fn s8_whoever_is_not_called_and_whose_timer_is_late_begins_when_that_comes_and_it_excuses_nobody() {
    // The patient one's timer is due 150 us before the other one's job ends, and comes 100 us
    // behind that.
    let late = Span::from_ns(250_000);
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Fifo));
    let mut sources = Vec::new();
    for (offset, cost) in [(0, 9_900_000), (10, 5_000_000)] {
        let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(40)));
        let arrivals =
            Arrivals::Periodic { offset: ms(offset), period: ms(40), jitter: Span::ZERO };
        sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(cost)) });
    }
    let workload = Workload { sources, seed: 1 };
    let ran = run_dozing(&tree, &workload, at(1_000), 40, Vec::new(), || late);
    assert_eq!(ran.up, 24, "each but the first");
    let of = |which: fn(&Turn) -> bool| {
        let turns = ran.course.timed().iter().filter(move |(_, turn)| which(turn));
        turns.map(|&(now, _)| now).skip(1).collect::<Vec<Time>>()
    };
    let ordered = of(|turn| matches!(turn, Turn::Runs { task: TaskId(1), .. }));
    let ended = of(|turn| matches!(turn, Turn::Ended { task: TaskId(1), .. }));
    let arrivals = (1..25).map(|round| at(40 * round + 10));
    let told: Vec<_> = arrivals.clone().map(|came| came + Span::from_ns(150_000)).collect();
    assert_eq!(ordered, told);
    // As late as its timer, and no later: as if nobody had stepped before.
    let expected: Vec<_> = arrivals.map(|came| came + late + ms(5)).collect();
    assert_eq!(ended, expected);
    // The order stood meanwhile: what the CPU was idle then is held against it. Only what the other
    // one was late excuses.
    assert!(
        ran.late.iter().all(|stretch| stretch.from.as_ns() % ms(40).as_ns() == 0),
        "{:?}",
        ran.late
    );
    assert_eq!(ran.late.len(), 24);
}

#[test]
fn s8_a_worker_that_is_awake_late_on_a_free_cpu_is_told_of_and_one_that_waits_for_another_is_not() {
    let late = Span::from_ns(250_000);
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(10)));
    let workload =
        Workload { sources: vec![Source::periodic(ms(10), Work::from_ns(1_000_000))], seed: 1 };
    let ran = run_dozing(&tree, &workload, at(95), 40, Vec::new(), || late);
    assert_eq!(ran.late.len(), 9);
    for (stretch, begin) in ran.late.iter().zip(1..) {
        assert_eq!(
            (stretch.from, stretch.to, stretch.by),
            (at(10 * begin), at(10 * begin) + late, late)
        );
    }
    // Behind one that computes nobody of ours was late.
    let (tree, workload) = two(Policy::Fifo, (10, 2));
    let mut looks = 0;
    let ran = run_dozing(&tree, &workload, at(95), 40, Vec::new(), || {
        looks += 1;
        if looks > 1 { late } else { Span::ZERO }
    });
    assert!(ran.late.iter().all(|stretch| stretch.by == late), "{:?}", ran.late);
}

/// Whether nobody has to be rung for.
fn sleeps_on(root: &mut Root<Fake>) -> bool {
    let mut sleeps_on = true;
    root.alert(0, |_| sleeps_on = false);
    sleeps_on
}

#[test]
fn y6_a_worker_that_is_called_for_another_job_leaves_what_it_would_have_been_awake_for_to_the_dispatcher()
 {
    let (tree, _) = two(Policy::Fifo, (10, 1));
    let load = || {
        let arrivals = [0, 10, 20].map(|k| Arrival { seen: at(k), nominal: at(k) });
        Load::new(arrivals.to_vec(), vec![Work::from_ns(1_000_000)])
    };
    let fake = Fake::new(2);
    let machine = tree.build().expect("a sound tree");
    let Ok(mut root) =
        Root::new(machine, 1, fake.clone(), vec![load(), load()], Vec::new(), Vec::new());
    let Ok(()) = root.let_doze(40);
    let mut log = Log::new(1 << 10);
    let mut step = |root: &mut Root<Fake>, now: u64, mail: Mail| {
        fake.work_until(at(now).as_ns());
        let Ok(()) = root.step(Stepper { cpu: 0, worker: None }, at(now), &mail, &mut log);
    };
    let ended = |task| Mail { ended: vec![TaskId(task)], ..Mail::default() };
    step(&mut root, 0, Mail::default());
    let _ = root.arm(0, at(0), |_| ());
    step(&mut root, 1, ended(0));
    assert_eq!(root.doze(TaskId(0)), Ok(Some(at(10))));
    step(&mut root, 2, ended(1));
    assert_eq!(root.doze(TaskId(1)), Ok(None), "the other one is awake for both");
    assert!(sleeps_on(&mut root));
    step(&mut root, 5, Mail { asked: vec![(TaskId(0), 1)], ..Mail::default() });
    assert!(!sleeps_on(&mut root), "nobody else would be awake at 10 ms if the job slept then");
    assert_eq!(root.arm(0, at(5), |_| ()), at(10));
    step(&mut root, 6, ended(0));
    assert_eq!(root.doze(TaskId(0)), Ok(None), "the dispatcher is awake then anyway");
    assert!(sleeps_on(&mut root));
}

#[test]
fn s8_where_more_workers_sleep_than_may_be_awake_by_themselves_the_dispatcher_looks_after_the_rest()
{
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Fifo));
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
    let ran = run_dozing(&tree, &workload, at(400), 40, Vec::new(), in_time);
    assert_eq!(ran.course.parts_from(&simulate(&tree, &workload, at(400))), None);
    assert!(ran.by_themselves > 100, "{}", ran.by_themselves);
    let dispatchers = ran.steps - ran.by_workers - ran.by_themselves;
    assert!(dispatchers > 50, "{dispatchers}");
}
