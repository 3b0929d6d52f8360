//! Costs of jobs: pairs, cost modes, versions, steps.

use crate::harness::{at, cost, listed, run, run_audited, simulation, span, task, work};
use talea_core::engine::{Protocol, SchedulerSpec, Selection, TaskSpec, Tree, Version};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_sim::{Cost, CostMode, Jobs, Source, StepAction};

fn one() -> Tree {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.task(Tree::ROOT, TaskSpec::new("t", span(100)));
    tree
}

/// Returns the costs of the first jobs, which run alone.
fn costs(tree: &Tree, cost: &Cost, case: CostMode) -> Vec<u64> {
    let source = Source { cost: cost.clone(), ..Source::periodic(span(100), work(1)) };
    let mut jobs = Jobs::default();
    simulation(tree, &[source]).with_cost_mode(case).run(at(100_000), &mut jobs);
    jobs.ended.iter().map(|job| job.response().as_ns()).collect()
}

#[test]
fn best_worst_and_sampled_costs_of_ranges_and_of_mixed_criticality_pairs() {
    let range = Cost::Uniform { min: work(10), max: work(13) };
    let pair = Cost::Pair { low: work(10), high: work(40), share: 250 };
    for (cost, worst) in [(&range, 13), (&pair, 40)] {
        assert!(costs(&one(), cost, CostMode::Best).iter().all(|&ns| ns == 10));
        assert!(costs(&one(), cost, CostMode::Worst).iter().all(|&ns| ns == worst));
    }
    let drawn = costs(&one(), &range, CostMode::Sampled);
    assert!(
        (10..=13).all(|ns| drawn.iter().filter(|&&cost| cost == ns).count() > 200),
        "each about a quarter"
    );
    let drawn = costs(&one(), &pair, CostMode::Sampled);
    assert!(drawn.iter().all(|ns| [10, 40].contains(ns)));
    let high = drawn.iter().filter(|&&ns| ns == 40).count();
    assert!((200..300).contains(&high), "about a quarter: {high}");
}

#[test]
fn a_job_costs_the_same_in_its_version_whatever_ran_before() {
    let costs_of = Cost::Versions(vec![
        Cost::Uniform { min: work(1), max: work(50) },
        Cost::List(vec![work(3), work(4)]),
        Cost::Uniform { min: work(1), max: work(50) },
    ]);
    let with = |selection: Selection| {
        let mut tree = one();
        tree.selection = selection;
        let node = tree.children(Tree::ROOT).next().expect("a task").0;
        tree.remove(node);
        let versions = ["a", "b", "c"].map(Version::new).into();
        tree.task(Tree::ROOT, TaskSpec { versions, ..TaskSpec::new("t", span(100)) });
        costs(&tree, &costs_of, CostMode::Sampled)
    };
    let (first, second, mixed) = (
        with(Selection::Declared),
        with(Selection::User(|_| Some(1))),
        with(Selection::User(|of| Some(of.job as u32 % 3))),
    );
    for job in 0..1_000 {
        assert_eq!(second[job], 3 + job as u64 % 2);
        assert_eq!(
            mixed[job],
            if job % 3 == 1 { second[job] } else { first[job] },
            "one random number per job"
        );
    }
}

#[test]
fn a_suspended_job_releases_its_cpu_and_resumes() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.task(Tree::ROOT, task("a", 50));
    tree.task(Tree::ROOT, task("b", 100));
    // Two suspensions, one at the very start; one beyond the end is not performed.
    let a = cost(10)
        .suspending(work(0), span(3))
        .suspending(work(4), span(10))
        .suspending(work(10), span(500));
    let log = run(&tree, &[listed(&[0], a), listed(&[0], cost(20))], 1_000);
    // b 0-3, a 3-7, b 7-17, a 17-23, b 23-30.
    assert_eq!((log.ends(0), log.ends(1)), (vec![23], vec![30]));
}

#[test]
fn y15_a_job_that_keeps_its_cpu_waits_for_its_device_also_while_it_is_preempted() {
    for is_spinning in [false, true] {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        for (name, deadline) in [("high", 20), ("a", 50), ("low", 100)] {
            tree.task(Tree::ROOT, task(name, deadline));
        }
        let a = || listed(&[0], cost(10).occupying(work(4), span(10), is_spinning));
        let low = || listed(&[0], cost(20));
        // a 0-4, its device 4-14, a 14-20, low 20-40.
        let log = run(&tree, &[listed(&[], cost(1)), a(), low()], 1_000);
        assert_eq!((log.ends(1), log.ends(2)), (vec![20], vec![40]));
        // high within the time of the device, 6-11; and beyond it, 6-18.
        for (of_high, ends) in [(5, [11, 20, 40]), (12, [18, 24, 44])] {
            let log = run(&tree, &[listed(&[6], cost(of_high)), a(), low()], 1_000);
            assert_eq!([0, 1, 2].map(|task| log.ends(task)[0]), ends);
        }
    }
}

#[test]
fn y15_only_a_job_that_polls_its_device_consumes_the_budget_of_its_server() {
    for (is_spinning, end) in [(false, 16), (true, 104)] {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
        server.reservation = Some(Reservation::new(ServerKind::Deferrable, work(8), span(100)));
        let server = tree.scheduler(Tree::ROOT, server);
        tree.task(server, task("a", 200));
        // Polling exhausts the budget at 8; the device completes at 12, without the CPU.
        let a = cost(6).occupying(work(2), span(10), is_spinning);
        let log = run(&tree, &[listed(&[0], a)], 1_000);
        assert_eq!(log.ends(0), [end], "spinning: {is_spinning}");
    }
}

#[test]
fn steps_are_ordered_by_offset_and_sections_nest() {
    let mut tree = one();
    let [a, b, c] = ["a", "b", "c"].map(|name| tree.resource(name, Protocol::default()));
    let with_step = cost(10).locking(a, work(2), work(8)).locking(b, work(2), work(8)).locking(
        c,
        work(8),
        work(9),
    );
    let Cost::WithSteps { steps, .. } = with_step else { panic!("a cost with steps") };
    let actions: Vec<(u64, StepAction)> =
        steps.into_iter().map(|step| (step.at.as_ns(), step.action)).collect();
    use StepAction::{Lock, Unlock};
    assert_eq!(
        actions,
        [(2, Lock(a)), (2, Lock(b)), (8, Unlock(b)), (8, Unlock(a)), (8, Lock(c)), (9, Unlock(c))]
    );
    assert_eq!(cost(10).locking(a, work(3), work(3)), cost(10), "nothing is held for no time");
}

#[test]
fn a_job_shorter_than_its_section_releases_the_resource_at_its_end() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let r = tree.resource("r", Protocol::default());
    tree.task(Tree::ROOT, TaskSpec { uses: vec![r], ..task("a", 50) });
    let jobs = Cost::List(vec![work(10), work(4), work(1)]).locking(r, work(2), work(8));
    let mut simulation = simulation(&tree, &[listed(&[0, 20, 40], jobs)]);
    let log = run_audited(&mut simulation, 100);
    assert_eq!(log.ends(0), [10, 24, 41]);
    assert_eq!(simulation.engine().resource_holder(r), None);
}

#[test]
fn steps_beyond_the_end_of_a_job_are_not_performed() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.task(Tree::ROOT, task("a", 100));
    // Jobs cost 5, 8 and 9: only the last one reaches its suspension and continues.
    let costs =
        talea_sim::Cost::List(vec![work(5), work(8), work(9)]).suspending(work(8), span(20));
    let log = run(&tree, &[listed(&[0, 100, 200], costs)], 400);
    assert_eq!(log.ends(0), [5, 108, 229]);
}
