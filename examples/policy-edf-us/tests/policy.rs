//! Tests of the policy: a reference model, the utilization bound, and a set that EDF does not
//! schedule.

use policy_edf_us::make;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, contract};
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Counters, Jobs, Simulation, Source, Workload};

const POLICY: PolicySpec = PolicySpec::Custom { name: "edf-us", make };
const MS: u64 = 1_000_000;
const CPUS: u32 = 2;

/// Returns a simulation of tasks, by period and cost in milliseconds, on two CPUs with migration.
fn simulation(policy: PolicySpec, tasks: &[(u64, u64)]) -> Simulation {
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

/// Returns the completion times of each task's jobs, in milliseconds.
fn completions(policy: PolicySpec, tasks: &[(u64, u64)], until: u64) -> Vec<Vec<u64>> {
    let mut jobs = Jobs::default();
    // The run includes completions at `until`.
    simulation(policy, tasks).run(Time::from_ns(until * MS + 1), &mut jobs);
    let mut completions = vec![vec![]; tasks.len()];
    jobs.ended.iter().for_each(|job| completions[job.task.0 as usize].push(job.end.as_ns() / MS));
    completions
}

/// Reference model of [`completions`]: in each millisecond the first two jobs run, heavy tasks
/// first.
fn reference_completions(tasks: &[(u64, u64)], until: u64) -> Vec<Vec<u64>> {
    let mut completions = vec![vec![]; tasks.len()];
    // (light, absolute deadline, task, remaining work)
    let mut jobs: Vec<(bool, u64, usize, u64)> = vec![];
    for now in 0..until {
        let arrivals = tasks.iter().enumerate().filter(|(_, task)| now % task.0 == 0);
        for (task, &(period, cost)) in arrivals {
            jobs.push((3 * cost <= 2 * period, now + period, task, cost));
        }
        jobs.sort_unstable();
        // Only the oldest job of a task may run.
        let mut run: Vec<usize> = vec![];
        for at in 0..jobs.len() {
            if run.len() < CPUS as usize && run.iter().all(|&other| jobs[other].2 != jobs[at].2) {
                run.push(at);
            }
        }
        for at in run {
            jobs[at].3 -= 1;
            if jobs[at].3 == 0 {
                completions[jobs[at].2].push(now + 1);
            }
        }
        jobs.retain(|job| job.3 > 0);
    }
    completions
}

/// Returns a random set, by period and cost in milliseconds, with a utilization of at most `max`
/// thousandths of a CPU.
fn random_set(rng: &mut Rng, max: u64) -> Vec<(u64, u64)> {
    let (mut tasks, mut total) = (vec![], 0);
    for _ in 0..rng.between(3, 7) {
        let period = [4, 5, 8, 10, 20, 40][rng.below(6) as usize];
        let cost = rng.between(1, period);
        let utilization = (cost * 1_000).div_ceil(period);
        if total + utilization <= max {
            total += utilization;
            tasks.push((period, cost));
        }
    }
    tasks
}

/// Returns the number of late jobs in 200 ms.
fn misses(policy: PolicySpec, tasks: &[(u64, u64)]) -> u64 {
    let mut counters = Counters::new(tasks.len());
    simulation(policy, tasks).run(Time::from_ns(200 * MS), &mut counters);
    counters.tasks.iter().map(|count| count.late).sum()
}

#[test]
fn l8_the_policy_keeps_the_contract_of_all_policies() {
    assert_eq!(contract::check(&POLICY), Ok(()));
}

#[test]
fn y21_light_tasks_do_not_delay_a_heavy_task() {
    // The set of Dhall and Liu: two light tasks and a heavy one.
    let tasks = [(10, 2), (10, 2), (11, 10)];
    assert_eq!(completions(PolicySpec::Edf, &tasks, 12)[2], [12]);
    assert_eq!(completions(POLICY, &tasks, 12), [vec![2, 12], vec![4], vec![10]]);
}

#[test]
fn y21_on_two_cpus_the_policy_agrees_with_its_reference_model() {
    let mut rng = Rng::new(1);
    for case in 0..300 {
        let tasks = random_set(&mut rng, 2_200);
        assert_eq!(
            completions(POLICY, &tasks, 160),
            reference_completions(&tasks, 160),
            "case {case}: {tasks:?}"
        );
    }
}

#[test]
fn y21_no_deadline_is_missed_up_to_a_utilization_of_four_thirds_and_under_edf_some_are() {
    let (mut rng, mut misses_of_edf) = (Rng::new(2), 0);
    for case in 0..300 {
        let tasks = random_set(&mut rng, 1_333);
        assert_eq!(misses(POLICY, &tasks), 0, "case {case}: {tasks:?}");
        misses_of_edf += misses(PolicySpec::Edf, &tasks);
    }
    assert!(misses_of_edf > 0);
}

#[test]
fn y21_a_task_without_a_cost_is_refused() {
    let mut tree = Tree::new(CPUS, SchedulerSpec::new("application", POLICY));
    tree.task(Tree::ROOT, TaskSpec::new("task", Span::from_ns(MS)));
    let refused = tree.build().expect_err("a task without a cost");
    assert!(refused.kind.to_string().contains("no cost is declared"), "{refused:?}");
}

#[test]
fn y21_the_policy_has_fewer_than_80_lines_of_code() {
    let source = include_str!("../src/lib.rs");
    let code =
        source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    assert!(code.count() < 80, "the limit for an example policy");
}
