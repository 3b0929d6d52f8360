//! Preemption points and floating sections: schedules by hand.

use talea_core::engine::{
    Engine, NodeId, Preemption, SchedulerSpec, TaskSpec, Tree, TreeErrorKind,
};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Time, Work};
use talea_sim::{Arrivals, Cost, Jobs, Simulation, Source, Workload};

/// Task with listed arrivals.
struct Row<'a> {
    parent: NodeId,
    priority: u8,
    arrivals: &'a [u64],
    cost: u64,
    preemption: Preemption,
    points: &'a [u64],
}

impl Default for Row<'_> {
    fn default() -> Self {
        let preemption = Preemption::Anywhere;
        Row { parent: Tree::ROOT, priority: 0, arrivals: &[0], cost: 1, preemption, points: &[] }
    }
}

fn fp() -> Tree {
    Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority))
}

fn work(list: &[u64]) -> Vec<Work> {
    list.iter().copied().map(Work::from_ns).collect()
}

/// Returns the completion times of each task.
fn completions(mut tree: Tree, rows: &[Row<'_>]) -> Vec<Vec<u64>> {
    let mut sources = Vec::new();
    for row in rows {
        let mut spec = TaskSpec::new("task", Span::from_ns(100));
        (spec.priority, spec.preemption) = (row.priority, row.preemption);
        tree.task(row.parent, spec);
        let arrivals = Arrivals::List(row.arrivals.iter().copied().map(Time::from_ns).collect());
        let cost = Cost::Constant(Work::from_ns(row.cost)).preemptible_at(&work(row.points));
        sources.push(Source { arrivals, cost });
    }
    let engine: Engine = tree.build().expect("a tree");
    let mut world = Simulation::new(engine, 1, &Workload { sources, seed: 1 });
    let mut jobs = Jobs::default();
    world.run(Time::from_ns(1_000), &mut jobs);
    let mut found = vec![Vec::new(); rows.len()];
    for job in &jobs.ended {
        found[job.task.0 as usize].push(job.end.as_ns());
    }
    found
}

#[test]
fn a_job_is_preempted_at_its_points_only() {
    let at = Preemption::AtPoints;
    let low = |points| Row { cost: 9, preemption: at, points, ..Row::default() };
    let high = |arrivals| Row { priority: 9, arrivals, cost: 2, ..Row::default() };
    // Arrivals before, at and after a point, and in the last section.
    let run = |points, arrivals| completions(fp(), &[low(points), high(arrivals)]);
    assert_eq!(run(&[3, 6], &[1]), [[11], [5]]);
    assert_eq!(run(&[3, 6], &[3]), [[11], [5]]);
    assert_eq!(run(&[3, 6], &[4]), [[11], [8]]);
    assert_eq!(run(&[3, 6], &[7]), [[9], [11]]);
    // Without a point the job is non-preemptive. Points at its ends change nothing.
    assert_eq!(run(&[], &[1]), [[9], [11]]);
    assert_eq!(run(&[0, 9, 20], &[1]), [[9], [11]]);
    // The section goes on after the preemption.
    assert_eq!(run(&[3, 6], &[1, 6]), [vec![13], vec![5, 10]]);
    // A second job begins in a section again.
    let two = Row { arrivals: &[0, 0], cost: 4, preemption: at, points: &[3], ..Row::default() };
    assert_eq!(completions(fp(), &[two, high(&[5])]), [vec![4, 10], vec![9]]);
}

#[test]
fn a_section_ends_when_its_job_suspends_itself_and_its_sibling_may_run() {
    let mut tree = fp();
    let mut sources = Vec::new();
    for (priority, arrival, cost) in [
        (0, 0, Cost::Constant(Work::from_ns(6)).suspending(Work::from_ns(2), Span::from_ns(3))),
        (9, 1, Cost::Constant(Work::from_ns(2))),
    ] {
        let mut spec = TaskSpec::new("task", Span::from_ns(100));
        spec.priority = priority;
        if priority == 0 {
            spec.preemption = Preemption::AtPoints;
        }
        tree.task(Tree::ROOT, spec);
        sources.push(Source { arrivals: Arrivals::List(vec![Time::from_ns(arrival)]), cost });
    }
    let mut world =
        Simulation::new(tree.build().expect("a tree"), 1, &Workload { sources, seed: 1 });
    let mut jobs = Jobs::default();
    world.run(Time::from_ns(100), &mut jobs);
    let ends: Vec<u64> = jobs.ended.iter().map(|job| job.end.as_ns()).collect();
    assert_eq!(ends, [4, 9]);
}

#[test]
fn the_scheduler_above_still_preempts_and_the_section_goes_on_within_the_group() {
    let mut tree = fp();
    let mut group = SchedulerSpec::new("group", PolicySpec::FixedPriority);
    group.overrides.priority = Some(5);
    let group = tree.scheduler(Tree::ROOT, group);
    let rows = [
        Row { parent: group, cost: 6, preemption: Preemption::AtPoints, ..Row::default() },
        Row { parent: group, priority: 9, arrivals: &[1], cost: 2, ..Row::default() },
        Row { priority: 8, arrivals: &[2], cost: 3, ..Row::default() },
    ];
    assert_eq!(completions(tree, &rows), [[9], [11], [5]]);
    // A budget interrupts a section, too.
    let mut tree = fp();
    let mut server = SchedulerSpec::new("server", PolicySpec::FixedPriority);
    server.overrides.priority = Some(5);
    server.reservation = Some(Reservation {
        kind: ServerKind::Deferrable,
        budget: Work::from_ns(4),
        period: Span::from_ns(10),
        deadline: None,
        offset: Span::ZERO,
    });
    let server = tree.scheduler(Tree::ROOT, server);
    let rows = [
        Row { parent: server, cost: 6, preemption: Preemption::AtPoints, ..Row::default() },
        Row { parent: server, priority: 9, arrivals: &[1], cost: 2, ..Row::default() },
        Row { arrivals: &[2], cost: 3, ..Row::default() },
    ];
    assert_eq!(completions(tree, &rows), [[12], [14], [7]]);
}

#[test]
fn floating_sections_are_no_longer_than_stated_and_a_last_one_ends_with_the_job() {
    // A job of 40 and a more urgent one that arrives at each instant of it: the delay of the more
    // urgent one is the rest of a section that began at least a nanosecond before.
    for (longest, last) in [(1, 0), (5, 0), (5, 1), (5, 5), (7, 3), (40, 40), (50, 50)] {
        let (mut most, mut undelayed) = (0, 0);
        for (seed, arrival) in (0..40).flat_map(|seed| (1..40).map(move |at| (seed, at))) {
            let mut tree = fp();
            let mut sources = Vec::new();
            for (priority, cost, arrival) in [(0, 40, 0), (9, 1, arrival)] {
                let mut spec = TaskSpec::new("task", Span::from_ns(1_000));
                spec.priority = priority;
                let mut cost = Cost::Constant(Work::from_ns(cost));
                if priority == 0 {
                    spec.preemption = Preemption::Floating;
                    cost = cost.with_floating_sections(Work::from_ns(longest), Work::from_ns(last));
                }
                tree.task(Tree::ROOT, spec);
                let arrivals = Arrivals::List(vec![Time::from_ns(arrival)]);
                sources.push(Source { arrivals, cost });
            }
            let engine = tree.build().expect("a tree");
            let mut world = Simulation::new(engine, 1, &Workload { sources, seed });
            let mut jobs = Jobs::default();
            world.run(Time::from_ns(1_000), &mut jobs);
            let delay = jobs.ended.iter().find(|job| job.task.0 == 1).expect("ended").response();
            let delay = delay.as_ns() - 1;
            assert!(delay < longest.min(40), "{delay} of {longest}");
            most = most.max(delay);
            undelayed += u64::from(delay == 0);
            if arrival + last > 40 {
                assert_eq!(delay, 40 - arrival, "in the last section");
            }
        }
        assert_eq!(most, longest.min(40) - 1, "the longest section occurs");
        assert!(undelayed > 0 || longest >= 40, "{longest}");
    }
}

#[test]
fn sections_need_one_cpu_and_no_table_above() {
    let error = |mut tree: Tree, parent| {
        let mut spec = TaskSpec::new("task", Span::from_ns(10));
        spec.preemption = Preemption::Floating;
        tree.task(parent, spec);
        tree.build().map(|_| ()).map_err(|error| error.kind)
    };
    assert_eq!(error(fp(), Tree::ROOT), Ok(()));
    let two = Tree::new(2, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    assert_eq!(error(two, Tree::ROOT), Err(TreeErrorKind::Sections));
    let slots = vec![Slot { start: Span::ZERO, end: Span::from_ns(5), owner: 0 }];
    let policy = PolicySpec::Partitions { frame: Span::from_ns(10), slots, lending: false };
    let table = Tree::new(1, SchedulerSpec::new("root", policy));
    assert_eq!(error(table, Tree::ROOT), Err(TreeErrorKind::Sections));
}
