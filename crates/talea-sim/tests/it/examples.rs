//! SF3P's six shipped examples as hand tables (S1), in milliseconds, and the statements about its
//! policies.
//!
//! The utilisation that EDF can use (S7), preemption (S13, Y4), releases (S14), the key of a queued
//! job (S15), late releases (S16).

use crate::harness::{self, Log, listed, run, simulation};
use crate::soak;
use talea_core::criteria::Overrides;
use talea_core::engine::{Cpu, Migration, NodeId, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Arrivals, Cost, Jobs, Simulation, Source, Workload};

const MS: u64 = 1_000_000;

fn ms(n: u64) -> Span {
    Span::from_ns(n * MS)
}

fn tree(policy: PolicySpec) -> Tree {
    Tree::new(1, SchedulerSpec::new("root", policy))
}

/// Adds a task with period, deadline and priority.
fn task(tree: &mut Tree, parent: NodeId, period: u64, deadline: u64, priority: u8) {
    let mut spec = TaskSpec::new("task", ms(period));
    (spec.deadline, spec.priority) = (ms(deadline), priority);
    tree.task(parent, spec);
}

fn source(offset: u64, period: u64, cost: u64) -> Source {
    let arrivals =
        Arrivals::Periodic { offset: ms(offset), period: ms(period), jitter: Span::ZERO };
    Source { arrivals, cost: Cost::Constant(Work::from_ns(cost * MS)) }
}

/// Returns the completion times of each task, in one second.
fn ends(tree: &Tree, sources: &[Source]) -> Vec<Vec<u64>> {
    let log = run(tree, sources, 1_000 * MS);
    assert_eq!(log.late(), 0);
    (0..sources.len() as u32)
        .map(|task| log.ends(task).iter().map(|end| end / MS).collect())
        .collect()
}

fn every(period: u64, first: u64, jobs: u64) -> Vec<u64> {
    (0..jobs).map(|job| first + job * period).collect()
}

#[test]
fn s1_the_edf_example_ends_at_20_40_and_60() {
    let mut tree = tree(PolicySpec::Edf);
    for deadline in [80, 100, 40] {
        task(&mut tree, Tree::ROOT, 100, deadline, 0);
    }
    let ends = ends(&tree, &[source(0, 100, 20), source(0, 100, 20), source(0, 100, 20)]);
    assert_eq!(ends, [every(100, 40, 10), every(100, 60, 10), every(100, 20, 10)]);
}

/// Simulates three tasks of 19 in 71 with offsets 3, 2 and 5.
fn in_turn(policy: PolicySpec, deadlines: [u64; 3]) -> Vec<Vec<u64>> {
    let mut tree = tree(policy);
    for (deadline, priority) in deadlines.into_iter().zip([27, 30, 25]) {
        task(&mut tree, Tree::ROOT, 71, deadline, priority);
    }
    ends(&tree, &[source(3, 71, 19), source(2, 71, 19), source(5, 71, 19)])
}

#[test]
fn s1_the_fifo_and_the_fixed_priority_example_run_the_second_task_first() {
    let expected = [every(71, 40, 14), every(71, 21, 14), every(71, 59, 14)];
    assert_eq!(in_turn(PolicySpec::Fifo, [40, 20, 60]), expected);
    assert_eq!(in_turn(PolicySpec::FixedPriority, [71, 71, 71]), expected);
}

fn group(tree: &mut Tree, parent: NodeId, policy: PolicySpec, priority: u8) -> NodeId {
    let mut spec = SchedulerSpec::new("group", policy);
    spec.overrides = Overrides { priority: Some(priority), ..Overrides::default() };
    tree.scheduler(parent, spec)
}

#[test]
fn s1_the_example_of_a_fixed_priority_top_serves_the_edf_group_first() {
    let mut tree = tree(PolicySpec::FixedPriority);
    let edf = group(&mut tree, Tree::ROOT, PolicySpec::Edf, 20);
    let fifo = group(&mut tree, Tree::ROOT, PolicySpec::Fifo, 10);
    for (parent, deadline) in [(edf, 51), (edf, 40), (fifo, 51), (fifo, 51)] {
        task(&mut tree, parent, 51, deadline, 0);
    }
    let sources = [source(0, 51, 9), source(0, 51, 9), source(0, 51, 9), source(0, 51, 9)];
    // The last job of the last task would complete at 1005.
    let expected =
        [(18, 20), (9, 20), (27, 20), (36, 19)].map(|(first, jobs)| every(51, first, jobs));
    assert_eq!(ends(&tree, &sources), expected);
}

fn slots(lengths: &[u64]) -> PolicySpec {
    let mut at = 0;
    let slots = lengths.iter().enumerate().map(|(owner, length)| {
        at += length;
        Slot { start: ms(at - length), end: ms(at), owner: owner as u32 }
    });
    let slots = slots.collect();
    PolicySpec::Partitions { frame: ms(at), slots, lending: false }
}

#[test]
fn s1_the_tdma_example_runs_each_task_in_its_slots() {
    let mut tree = tree(slots(&[25, 25, 25]));
    for _ in 0..3 {
        task(&mut tree, Tree::ROOT, 81, 1_000, 0);
    }
    let ends = ends(&tree, &[source(0, 81, 19), source(0, 81, 19), source(0, 81, 19)]);
    // Frames begin at 0, 75, 150, 225. The first task's third job arrives at 162, in its slot until
    // 175, and resumes at 225.
    assert_eq!(ends[0][..3], [19, 100, 231]);
    assert_eq!(ends[1][..3], [44, 119, 194]);
    assert_eq!(ends[2][..3], [69, 144, 219]);
}

#[test]
fn s1_the_example_of_a_tdma_top_runs_each_group_in_its_slots() {
    let mut tree = tree(slots(&[25, 25]));
    let (edf, fifo) = (
        tree.scheduler(Tree::ROOT, SchedulerSpec::new("edf", PolicySpec::Edf)),
        tree.scheduler(Tree::ROOT, SchedulerSpec::new("fifo", PolicySpec::Fifo)),
    );
    for (parent, period, deadline) in
        [(edf, 41, 82), (edf, 41, 80), (fifo, 51, 102), (fifo, 51, 102)]
    {
        task(&mut tree, parent, period, deadline, 0);
    }
    let ends =
        ends(&tree, &[source(0, 41, 9), source(0, 41, 9), source(0, 51, 9), source(0, 51, 9)]);
    assert_eq!([&ends[0][..2], &ends[1][..2]], [[18, 68], [9, 59]]);
    assert_eq!([&ends[2][..2], &ends[3][..2]], [[34, 84], [43, 93]]);
}

/// Generates a random set of SF3P's Fig. 6 with a demand of at most `parts` in 1,000.
fn figure_6(rng: &mut Rng, parts: u64) -> Vec<(u64, u64)> {
    let n = rng.between(5, 50);
    let share = |rng: &mut Rng| {
        if rng.below(2) == 0 { rng.between(5, 10) } else { rng.between(40, 50) }
    };
    // P = C·n/U, rounded up: never more than requested.
    (0..n).map(|_| share(rng) * MS).map(|cost| (cost, (cost * n * 1_000).div_ceil(parts))).collect()
}

fn flat(policy: PolicySpec, set: &[(u64, u64)]) -> (Tree, Workload) {
    let (mut tree, mut workload) = (tree(policy), Workload::default());
    for &(cost, period) in set {
        tree.task(Tree::ROOT, TaskSpec::new("task", Span::from_ns(period)));
        workload.sources.push(Source::periodic(Span::from_ns(period), Work::from_ns(cost)));
    }
    (tree, workload)
}

#[test]
fn s7_edf_misses_nothing_at_99_9_per_cent() {
    let mut rng = Rng::new(7);
    for _ in 0..100 {
        let (tree, workload) = flat(PolicySpec::Edf, &figure_6(&mut rng, 999));
        let mut simulation = Simulation::new(tree.build().expect("a tree"), 1, &workload);
        let mut jobs = Jobs::default();
        simulation.run(Time::from_ns(soak::many(10_000, 100_000) * MS), &mut jobs);
        assert!(jobs.ended.len() > 100);
        assert_eq!(jobs.ended.iter().filter(|job| job.is_late()).count(), 0);
    }
}

/// Counts preemptions: a job starts or resumes while another one is incomplete.
fn preemptions(log: &Log) -> usize {
    let mut ended = log.ended.iter().map(|job| (job.end.as_ns(), job.task.0)).peekable();
    let mut preemptions = 0;
    for two in log.runs.windows(2) {
        let (at, task) = (two[1].0, two[0].2);
        while ended.peek().is_some_and(|&(end, _)| end < at) {
            ended.next();
        }
        let has_ended = log
            .ended
            .iter()
            .any(|job| job.task.0 == task && (two[0].0..=at).contains(&job.end.as_ns()));
        preemptions += usize::from(!has_ended);
    }
    preemptions
}

#[test]
fn s13_y4_without_preemption_no_job_is_interrupted_and_blocking_is_one_lower_job() {
    let mut rng = Rng::new(13);
    let mut interrupted = 0;
    for _ in 0..50 {
        let set: Vec<(u64, u64)> =
            (0..4).map(|_| (rng.between(1, 9), rng.between(20, 60))).collect();
        let (mut tree, workload) = flat(PolicySpec::Edf, &set);
        interrupted += preemptions(&run(&tree, &workload.sources, 600));
        tree = Tree::new(
            1,
            SchedulerSpec { preemptive: false, ..SchedulerSpec::new("root", PolicySpec::Edf) },
        );
        for &(_, period) in &set {
            tree.task(Tree::ROOT, TaskSpec::new("task", Span::from_ns(period)));
        }
        let log = run(&tree, &workload.sources, 600);
        assert_eq!(preemptions(&log), 0);
        // From its arrival on, a job is delayed by at most one job with a later deadline: the
        // running one.
        for job in &log.ended {
            let later = log.ended.iter().filter(|other| {
                other.deadline > job.deadline && other.end > job.release && other.end < job.end
            });
            assert!(later.count() <= 1, "{job:?}");
        }
    }
    assert!(interrupted > 100, "with preemption a job is interrupted");
}

#[test]
fn s14_releases_are_at_k_t_plus_offset_jitter_is_bounded_and_nothing_drifts() {
    let mut tree = tree(PolicySpec::Edf);
    for _ in 0..3 {
        task(&mut tree, Tree::ROOT, 10, 1_000, 0);
    }
    let jitter = Arrivals::Periodic { offset: ms(3), period: ms(10), jitter: ms(4) };
    let list = Arrivals::List([1, 2, 50, 51].map(|at| Time::from_ns(at * MS)).into());
    let cost = Cost::Constant(Work::from_ns(1));
    let sources = [
        source(7, 10, 1),
        Source { arrivals: jitter, cost: cost.clone() },
        Source { arrivals: list, cost: cost.clone() },
    ];
    let log = run(&tree, &sources, 10_000 * MS);
    let releases = |task: u32| log.ended.iter().filter(move |job| job.task.0 == task);
    let mut starts: [Vec<u64>; 3] = [vec![], vec![], vec![]];
    for begin in &log.begins {
        starts[begin.task as usize].push(begin.at);
    }
    let seen: Vec<u64> = releases(0).map(|job| job.release.as_ns()).collect();
    assert_eq!(seen, (0..seen.len() as u64).map(|k| (7 + 10 * k) * MS).collect::<Vec<_>>());
    assert_eq!(seen.len(), 1_000, "none is lost");
    let mut latest = 0;
    for (k, (job, &start)) in releases(1).zip(&starts[1]).enumerate() {
        let nominal = (3 + 10 * k as u64) * MS;
        assert_eq!(job.release.as_ns(), nominal, "deadlines count from the nominal time");
        // The other tasks take at most a millisecond.
        assert!(start >= nominal && start <= nominal + 5 * MS, "{start} {nominal}");
        latest = latest.max(start - nominal);
    }
    assert!(latest > 3 * MS, "jitter is used: {latest}");
    assert_eq!(releases(2).map(|job| job.release.as_ns() / MS).collect::<Vec<_>>(), [1, 2, 50, 51]);
}

#[test]
fn s15_a_queued_job_is_ordered_by_its_own_deadline() {
    // SF3P's case D4: A (10 every 20), B (15, deadline 18, at 0), X (10, deadline 30, at 24).
    let mut tree = tree(PolicySpec::Edf);
    for (period, deadline) in [(20, 20), (1_000, 18), (1_000, 30)] {
        task(&mut tree, Tree::ROOT, period, deadline, 0);
    }
    let job = |at: &[u64], cost: u64| {
        listed(&at.iter().map(|at| at * MS).collect::<Vec<_>>(), harness::cost(cost * MS))
    };
    let log = run(&tree, &[job(&[0, 20], 10), job(&[0], 15), job(&[24], 10)], 100 * MS);
    assert_eq!(log.ends(1), [15 * MS]);
    assert_eq!(log.ends(0), [25 * MS, 35 * MS], "the second job of A (deadline 40) before X (54)");
    assert_eq!(log.ends(2), [45 * MS]);
}

#[test]
fn s16_a_stall_of_60_ms_causes_misses_of_a_10_ms_task() {
    let mut tree = tree(PolicySpec::Edf);
    task(&mut tree, Tree::ROOT, 10, 10, 0);
    let stall = vec![(Time::from_ns(102 * MS), Time::from_ns(162 * MS))];
    let mut simulation = simulation(&tree, &[source(0, 10, 3)]).with_stalls(Cpu(0), stall);
    let log = harness::run_audited(&mut simulation, 1_000 * MS);
    assert_eq!(log.ended.len(), 100, "no release is lost");
    // 100 completes at 163, then one every 3 ms: 160 at 181, 170 at 184, and 180 at 187, in time.
    let late: Vec<u64> =
        log.ended.iter().filter(|job| job.is_late()).map(|job| job.release.as_ns() / MS).collect();
    assert_eq!(late, [100, 110, 120, 130, 140, 150, 160, 170]);
}

/// Simulates tasks with implicit deadlines on two CPUs.
fn on_two(policy: PolicySpec, migration: Migration, tasks: &[(u64, u64)]) -> Tree {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", policy));
    tree.migration = migration;
    for &(_, deadline) in tasks {
        tree.task(Tree::ROOT, harness::task("task", deadline));
    }
    tree
}

#[test]
fn y2_oracle_1_dhall_global_edf_misses_what_partitioned_edf_meets() {
    let tasks = [(2, 10), (2, 10), (10, 11)];
    for migration in [Migration::Anytime, Migration::JobBoundaries] {
        let sources: Vec<Source> =
            tasks.iter().map(|&(cost, _)| listed(&[0], harness::cost(cost))).collect();
        let log = run(&on_two(PolicySpec::Edf, migration, &tasks), &sources, 100);
        assert_eq!(log.ends(2), [12]);
        assert_eq!(log.late(), 1);
    }
    // Partitioned: one root per CPU.
    let mut late = 0;
    for part in [&tasks[..2], &tasks[2..]] {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
        let mut sources = vec![];
        for &(cost, period) in part {
            tree.task(Tree::ROOT, TaskSpec::new("task", Span::from_ns(period)));
            sources.push(Source::periodic(Span::from_ns(period), Work::from_ns(cost)));
        }
        late += run(&tree, &sources, 1_100).late();
    }
    assert_eq!(late, 0);
}

#[test]
fn y2_y4_oracle_2_without_job_migration_the_first_job_ends_at_18_and_with_it_at_16() {
    let tasks = [(10, 100), (8, 90), (8, 10)];
    let sources = [
        listed(&[0], harness::cost(10)),
        listed(&[0], harness::cost(8)),
        listed(&[2], harness::cost(8)),
    ];
    for (migration, end) in [(Migration::JobBoundaries, 18), (Migration::Anytime, 16)] {
        let log = run(&on_two(PolicySpec::Edf, migration, &tasks), &sources, 100);
        assert_eq!([log.ends(0), log.ends(1), log.ends(2)], [[end], [8], [10]]);
    }
    // Without preemption the third job waits for the second.
    let mut tree = on_two(PolicySpec::Edf, Migration::JobBoundaries, &tasks);
    if let Some(node) = tree.get_mut(Tree::ROOT)
        && let talea_core::engine::NodeSpec::Scheduler(root) = &mut node.spec
    {
        root.preemptive = false;
    }
    let log = run(&tree, &sources, 100);
    assert_eq!([log.ends(0), log.ends(1), log.ends(2)], [[10], [8], [16]]);
    assert_eq!(log.runs.len(), 3, "no job is interrupted");
}

#[test]
fn y3_two_pending_jobs_of_one_task_run_in_order_and_each_has_its_own_deadline() {
    // Period 10, cost 12 once: with D < T and D = T the first job is late, with D > T neither is.
    for (deadline, late) in [(8, 1), (10, 1), (15, 0)] {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut spec = TaskSpec::new("task", Span::from_ns(10));
        spec.deadline = Span::from_ns(deadline);
        tree.task(Tree::ROOT, spec);
        let costs = Cost::List([12, 5, 3, 3].map(Work::from_ns).into());
        let source = Source { cost: costs, ..Source::periodic(Span::from_ns(10), Work::ZERO) };
        let log = run(&tree, &[source], 40);
        assert_eq!(log.ends(0), [12, 17, 23, 33]);
        assert_eq!(log.late(), late, "deadline {deadline}");
        assert_eq!(log.ended[1].deadline, Time::from_ns(10 + deadline));
    }
}
