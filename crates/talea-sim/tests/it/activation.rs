//! Arrival models: separation, bursts, explicit activation, all kinds of deadlines, and affinities
//! (Y3, Y5, Y13).

use crate::harness::{at, cost, listed, run, run_audited, simulation, span, task, work};
use talea_core::engine::{Affinity, SchedulerSpec, TaskId, TaskSpec, Tree, TreeErrorKind};
use talea_core::sched::PolicySpec;
use talea_sim::rng::Rng;
use talea_sim::{Arrivals, Source};

#[test]
fn y13_a_burst_of_a_hundred_is_released_once_a_period() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let mut spec = TaskSpec::new("sporadic", span(10));
    (spec.enforced, spec.backlog.capacity) = (true, 200);
    tree.task(Tree::ROOT, spec);
    let log = run(&tree, &[listed(&[5; 100], cost(2))], 2_000);
    let expected: Vec<u64> = (0..100).map(|k| 5 + 10 * k).collect();
    assert_eq!(log.starts(0), expected);
    assert!(
        log.ended
            .iter()
            .all(|job| job.deadline.as_ns() == job.release.as_ns() + 10 && !job.is_late())
    );
}

#[test]
fn y13_the_minimum_separation_is_enforced_for_any_arrivals() {
    let mut rng = Rng::new(13);
    for _ in 0..200 {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut spec = TaskSpec::new("sporadic", span(10));
        spec.enforced = true;
        tree.task(Tree::ROOT, spec);
        let mut times: Vec<u64> = (0..30).map(|_| rng.below(400)).collect();
        times.sort_unstable();
        let log = run(&tree, &[listed(&times, cost(3))], 5_000);
        // Reference model: released on arrival, or a period after the previous release.
        let mut free = 0;
        let released: Vec<u64> = times
            .iter()
            .map(|&time| {
                let release = time.max(free);
                free = release + 10;
                release
            })
            .collect();
        assert_eq!(log.ended.iter().map(|job| job.release.as_ns()).collect::<Vec<_>>(), released);
    }
}

#[test]
fn y13_a_task_without_a_pattern_is_activated_explicitly() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.task(Tree::ROOT, TaskSpec::activated("by hand", span(30)));
    tree.task(Tree::ROOT, task("background", 500));
    let mut simulation = simulation(&tree, &[Source::activated(cost(10)), listed(&[0], cost(50))]);
    let mut log = run_audited(&mut simulation, 1);
    for now in [20, 40] {
        simulation.run(at(now), &mut log);
        simulation.activate(TaskId(0));
    }
    simulation.run(at(1_000), &mut log);
    assert_eq!((log.ends(0), log.ends(1)), (vec![30, 50], vec![70]));
    assert_eq!(log.ended[0].deadline, at(50));
}

#[test]
fn y3_deadlines_shorter_equal_and_longer_than_the_period() {
    // (D, costs) of a task of period 10, alone: completion times, and the number of late jobs.
    for (deadline, costs, ends, late) in [
        (4, vec![3, 5], vec![3, 15, 23, 35], 2),
        (10, vec![3, 10], vec![3, 20, 23, 40], 0),
        // Two pending jobs: the second waits for the first and still meets its deadline.
        (25, vec![22, 3, 3], vec![22, 25, 28, 52], 0),
        (10, vec![22, 3, 3], vec![22, 25, 28, 52], 3),
    ] {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        tree.task(
            Tree::ROOT,
            TaskSpec { deadline: span(deadline), ..TaskSpec::new("t", span(10)) },
        );
        let costs = talea_sim::Cost::List(costs.into_iter().map(work).collect());
        let times = Arrivals::List((0..4).map(|k| at(10 * k)).collect());
        let log = run(&tree, &[Source { arrivals: times, cost: costs }], 100);
        assert_eq!((log.ends(0), log.late()), (ends, late), "D = {deadline}");
    }
}

#[test]
fn y5_partitioned_scheduling_in_one_engine_equals_one_engine_per_cpu() {
    let mut rng = Rng::new(5);
    for case in 0..200 {
        let cpus = 2 + rng.below(2) as u32;
        let policy = [PolicySpec::Edf, PolicySpec::RateMonotonic, PolicySpec::FixedPriority]
            [case % 3]
            .clone();
        let preemptive = rng.below(3) > 0;
        let scheduler =
            || SchedulerSpec { preemptive, ..SchedulerSpec::new("root", policy.clone()) };
        let mut all = Tree::new(cpus, scheduler());
        let mut each: Vec<(Tree, Vec<Source>, Vec<u32>)> =
            (0..cpus).map(|_| (Tree::new(1, scheduler()), Vec::new(), Vec::new())).collect();
        let mut sources = Vec::new();
        for task in 0..8 {
            let (period, cpu) = (10 + rng.below(40), rng.below(u64::from(cpus)) as u32);
            // Distinct priorities: FIFO in a level follows the engine's own sequence numbers.
            let spec =
                TaskSpec { priority: task as u8 * 7 % 8, ..TaskSpec::new("t", span(period)) };
            all.task(Tree::ROOT, TaskSpec { affinity: Affinity::only(cpu), ..spec.clone() });
            let source = Source::periodic(span(period), work(1 + rng.below(8)));
            sources.push(source.clone());
            let (tree, theirs, numbers) = &mut each[cpu as usize];
            tree.task(Tree::ROOT, spec);
            theirs.push(source);
            numbers.push(task);
        }
        let log = run(&all, &sources, 500);
        for (tree, theirs, numbers) in each {
            let alone = run(&tree, &theirs, 500);
            for (number, task) in numbers.into_iter().enumerate() {
                assert_eq!(log.ends(task), alone.ends(number as u32), "case {case}");
            }
        }
    }
}

#[test]
fn y5_schedulers_may_be_placed_too_and_sets_of_cpus_are_clusters() {
    // Two clusters of two CPUs each: global EDF in each, in one engine.
    let mut tree = Tree::new(4, SchedulerSpec::new("root", PolicySpec::Edf));
    for task in 0..6u64 {
        let affinity = Affinity(if task < 3 { 0b0011 } else { 0b1100 });
        tree.task(Tree::ROOT, TaskSpec { affinity, ..TaskSpec::new("t", span(100 + task)) });
    }
    let sources = [10, 20, 30, 10, 10, 10].map(|ns| Source::periodic(span(1_000), work(ns)));
    let log = run(&tree, &sources, 100);
    assert_eq!([log.ends(0), log.ends(1), log.ends(2)], [[10], [20], [40]]);
    assert_eq!([log.ends(3), log.ends(4), log.ends(5)], [[10], [10], [20]]);
    assert!(log.runs.iter().all(|&(_, cpu, task)| (cpu < 2) == (task < 3)));

    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    for cpu in 0..2 {
        let spec = SchedulerSpec {
            affinity: Affinity::only(cpu),
            ..SchedulerSpec::new("P", PolicySpec::RateMonotonic)
        };
        let group = tree.scheduler(Tree::ROOT, spec);
        for period in [20, 40] {
            tree.task(group, TaskSpec::new("t", span(period)));
        }
    }
    let sources = [5, 10, 7, 20].map(|ns| Source::periodic(span(20), work(ns)));
    let log = run(&tree, &sources, 20);
    assert_eq!([log.ends(0), log.ends(1), log.ends(2)], [[5], [15], [7]]);
    assert!(log.runs.iter().all(|&(_, cpu, task)| cpu == u32::from(task > 1)));
}

#[test]
fn y5_invalid_sets_of_cpus_are_refused() {
    let wrong = |cpus, affinity, below: bool| {
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
        let parent = if below {
            tree.scheduler(Tree::ROOT, SchedulerSpec::new("g", PolicySpec::Edf))
        } else {
            Tree::ROOT
        };
        tree.task(parent, TaskSpec { affinity, ..TaskSpec::new("t", span(10)) });
        tree.check().err().map(|wrong| wrong.kind)
    };
    assert_eq!(wrong(2, Affinity::only(1), false), None);
    assert_eq!(wrong(1, Affinity::only(0), false), None, "it has no other");
    assert_eq!(wrong(2, Affinity(0), false), Some(TreeErrorKind::Affinity));
    assert_eq!(wrong(2, Affinity(0b100), false), Some(TreeErrorKind::Affinity));
    assert_eq!(
        wrong(2, Affinity::only(1), true),
        Some(TreeErrorKind::Affinity),
        "a scheduler is on one CPU at a time anyway"
    );
}
