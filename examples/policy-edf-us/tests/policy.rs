//! What is known of the policy.

use policy_edf_us::make;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, contract};
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Counters, Jobs, Simulation, Source, Workload};

const POLICY: PolicySpec = PolicySpec::Custom { name: "edf-us", make };
const MS: u64 = 1_000_000;
const CPUS: u32 = 2;

/// Period and cost of each task in milliseconds, on two CPUs between which jobs migrate.
fn world(policy: PolicySpec, tasks: &[(u64, u64)]) -> Simulation {
    let mut tree = Tree::new(CPUS, SchedulerSpec::new("application", policy));
    let mut workload = Workload::default();
    for &(period, cost) in tasks {
        let mut spec = TaskSpec::new("task", Span::from_ns(period * MS));
        spec.cost = Some(Work::from_ns(cost * MS));
        tree.task(Tree::ROOT, spec);
        workload
            .sources
            .push(Source::periodic(Span::from_ns(period * MS), Work::from_ns(cost * MS)));
    }
    Simulation::new(tree.build().expect("a tree"), CPUS, &workload)
}

/// When each job ends, in milliseconds, by task.
fn ends(policy: PolicySpec, tasks: &[(u64, u64)], until: u64) -> Vec<Vec<u64>> {
    let mut jobs = Jobs::default();
    // Ends at that very moment are in.
    world(policy, tasks).run(Time::from_ns(until * MS + 1), &mut jobs);
    let mut ends = vec![vec![]; tasks.len()];
    jobs.ended.iter().for_each(|job| ends[job.task.0 as usize].push(job.end.as_ns() / MS));
    ends
}

/// The same, from the definition: in each millisecond the first two jobs run, heavy ones first.
fn plainly(tasks: &[(u64, u64)], until: u64) -> Vec<Vec<u64>> {
    let mut ends = vec![vec![]; tasks.len()];
    // (light, absolute deadline, task, what is left)
    let mut jobs: Vec<(bool, u64, usize, u64)> = vec![];
    for now in 0..until {
        for (task, &(period, cost)) in tasks.iter().enumerate().filter(|(_, of)| now % of.0 == 0) {
            jobs.push((3 * cost <= 2 * period, now + period, task, cost));
        }
        jobs.sort_unstable();
        // Of a task only the oldest.
        let mut run: Vec<usize> = vec![];
        for at in 0..jobs.len() {
            if run.len() < CPUS as usize && run.iter().all(|&other| jobs[other].2 != jobs[at].2) {
                run.push(at);
            }
        }
        for at in run {
            jobs[at].3 -= 1;
            if jobs[at].3 == 0 {
                ends[jobs[at].2].push(now + 1);
            }
        }
        jobs.retain(|job| job.3 > 0);
    }
    ends
}

/// Sets with so many thousandths of a CPU at most, of two.
fn random(dice: &mut Rng, most: u64) -> Vec<(u64, u64)> {
    let (mut tasks, mut load) = (vec![], 0);
    for _ in 0..dice.between(3, 7) {
        let period = [4, 5, 8, 10, 20, 40][dice.below(6) as usize];
        let cost = dice.between(1, period);
        let share = (cost * 1_000).div_ceil(period);
        if load + share <= most {
            load += share;
            tasks.push((period, cost));
        }
    }
    tasks
}

fn late(policy: PolicySpec, tasks: &[(u64, u64)]) -> u64 {
    let mut counters = Counters::new(tasks.len());
    world(policy, tasks).run(Time::from_ns(200 * MS), &mut counters);
    counters.tasks.iter().map(|count| count.late).sum()
}

#[test]
fn l8_it_keeps_the_contract_of_all_policies() {
    assert_eq!(contract::check(&POLICY), Ok(()));
}

#[test]
fn y21_what_dhall_and_liu_keep_waiting_goes_first() {
    // Two light tasks and a heavy one.
    let tasks = [(10, 2), (10, 2), (11, 10)];
    assert_eq!(ends(PolicySpec::Edf, &tasks, 12)[2], [12]);
    assert_eq!(ends(POLICY, &tasks, 12), [vec![2, 12], vec![4], vec![10]]);
}

#[test]
fn y21_on_two_cpus_it_does_what_its_definition_says() {
    let mut dice = Rng::new(1);
    for case in 0..300 {
        let tasks = random(&mut dice, 2_200);
        assert_eq!(ends(POLICY, &tasks, 160), plainly(&tasks, 160), "case {case}: {tasks:?}");
    }
}

#[test]
fn y21_up_to_four_thirds_of_two_cpus_nothing_is_late_and_under_edf_something_is() {
    let (mut dice, mut of_edf) = (Rng::new(2), 0);
    for case in 0..300 {
        let tasks = random(&mut dice, 1_333);
        assert_eq!(late(POLICY, &tasks), 0, "case {case}: {tasks:?}");
        of_edf += late(PolicySpec::Edf, &tasks);
    }
    assert!(of_edf > 0);
}

#[test]
fn y21_whose_cost_nobody_has_said_is_refused() {
    let mut tree = Tree::new(CPUS, SchedulerSpec::new("application", POLICY));
    tree.task(Tree::ROOT, TaskSpec::new("task", Span::from_ns(MS)));
    let refused = tree.build().expect_err("nobody knows whether it is heavy");
    assert!(refused.kind.to_string().contains("no cost is declared"), "{refused:?}");
}

#[test]
fn y21_a_policy_is_small() {
    let source = include_str!("../src/lib.rs");
    let code =
        source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    assert!(code.count() < 80, "the checklist's level for an example policy");
}
