//! Tests of the policy: a reference model, the optimality, and system files that name the policy.

use policy_llf::make;
use talea_core::criteria::Criteria;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{ChildInfo, PolicySpec, ReadyChild, contract};
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Counters, Jobs, Simulation, Source, Workload};
use talea_system::{self as system, Registry};

const POLICY: PolicySpec = PolicySpec::Custom { name: "llf", make };
const MS: u64 = 1_000_000;

/// Returns a simulation of tasks, by period, cost and relative deadline in milliseconds.
fn simulation(policy: PolicySpec, tasks: &[(u64, u64, u64)]) -> Simulation {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu0", policy));
    let mut workload = Workload::default();
    for &(period, cost, deadline) in tasks {
        let mut spec = TaskSpec::new("task", Span::from_ns(period * MS));
        spec.deadline = Span::from_ns(deadline * MS);
        spec.cost = Some(Work::from_ns(cost * MS));
        tree.task(Tree::ROOT, spec);
        workload
            .sources
            .push(Source::periodic(Span::from_ns(period * MS), Work::from_ns(cost * MS)));
    }
    Simulation::new(tree.build().expect("a tree"), 1, &workload)
}

/// Returns the completion times of each task's jobs, in milliseconds.
fn completions(policy: PolicySpec, tasks: &[(u64, u64, u64)], until: u64) -> Vec<Vec<u64>> {
    let mut jobs = Jobs::default();
    // The run includes completions at `until`.
    simulation(policy, tasks).run(Time::from_ns(until * MS + 1), &mut jobs);
    let mut completions = vec![vec![]; tasks.len()];
    jobs.ended.iter().for_each(|job| completions[job.task.0 as usize].push(job.end.as_ns() / MS));
    completions
}

/// Reference model of [`completions`]: in each millisecond the job with the least laxity runs.
fn reference_completions(tasks: &[(u64, u64, u64)], until: u64) -> Vec<Vec<u64>> {
    let mut completions = vec![vec![]; tasks.len()];
    // (task, absolute deadline, remaining work)
    let mut jobs: Vec<(usize, u64, u64)> = vec![];
    for now in 0..until {
        let arrivals = tasks.iter().enumerate().filter(|(_, task)| now % task.0 == 0);
        for (task, &(_, cost, deadline)) in arrivals {
            jobs.push((task, now + deadline, cost));
        }
        let is_oldest =
            |job: &(usize, u64, u64)| !jobs.iter().any(|other| other.0 == job.0 && other.1 < job.1);
        let Some(at) = (0..jobs.len())
            .filter(|&at| is_oldest(&jobs[at]))
            .min_by_key(|&at| (jobs[at].1 as i64 - jobs[at].2 as i64, jobs[at].0))
        else {
            continue;
        };
        jobs[at].2 -= 1;
        if jobs[at].2 == 0 {
            completions[jobs.remove(at).0].push(now + 1);
        }
    }
    completions
}

/// Returns a random set with implicit deadlines and a utilization of about `max` thousandths at
/// most.
fn random_set(rng: &mut Rng, max: u64) -> Vec<(u64, u64, u64)> {
    let (mut tasks, mut utilization) = (vec![], 0);
    for _ in 0..rng.between(2, 5) {
        let period = [4, 5, 8, 10, 20, 40][rng.below(6) as usize];
        let cost = rng.between(1, period / 2);
        utilization += cost * 1_000 / period;
        if utilization <= max {
            tasks.push((period, cost, period));
        }
    }
    tasks
}

#[test]
fn l8_the_policy_keeps_the_contract_of_all_policies() {
    assert_eq!(contract::check(&POLICY), Ok(()));
}

#[test]
fn s19_jobs_with_equal_laxity_alternate_and_the_least_laxity_is_first() {
    // The latest start times are 7 and 7, then 8 and 7, ...: the jobs alternate every millisecond.
    assert_eq!(completions(POLICY, &[(20, 3, 10), (20, 3, 10)], 20), [[5], [6]]);
    // EDF runs the earlier deadline. The second job has a laxity of 3 ms and the first of 8 ms,
    // until the second has consumed 5 ms.
    let tasks = [(20, 2, 10), (20, 8, 11)];
    assert_eq!(completions(PolicySpec::Edf, &tasks, 20), [[2], [10]]);
    assert_eq!(completions(POLICY, &tasks, 20), [[8], [10]]);
}

#[test]
fn l8_s19_y21_an_external_policy_agrees_with_its_reference_model() {
    let mut rng = Rng::new(1);
    for case in 0..300 {
        let tasks = random_set(&mut rng, 1_200);
        assert_eq!(
            completions(POLICY, &tasks, 160),
            reference_completions(&tasks, 160),
            "case {case}: {tasks:?}"
        );
    }
}

#[test]
fn s19_the_policy_is_optimal_on_one_cpu() {
    let mut rng = Rng::new(2);
    for case in 0..300 {
        let tasks = random_set(&mut rng, 1_000);
        let mut counters = Counters::new(tasks.len());
        simulation(POLICY, &tasks).run(Time::from_ns(200 * MS), &mut counters);
        assert!(counters.tasks.iter().all(|count| count.late == 0), "case {case}: {tasks:?}");
    }
}

#[test]
fn s19_a_job_is_identified_by_its_number_and_not_by_its_deadline() {
    let entry = |child, job, deadline| {
        let criteria = Criteria { deadline: Time::from_ns(deadline * MS), ..Criteria::LEAST };
        ReadyChild { child, job, ready_seq: 0, criteria }
    };
    let mut policy = make(2);
    for child in 0..2 {
        let cost = Some(Work::from_ns(8 * MS));
        policy
            .admit(&ChildInfo { child, name: "task", criteria: Criteria::LEAST, cost })
            .expect("a child");
    }
    let mut head_after = |entry: ReadyChild, used: u64| {
        let _ = policy.update(Time::ZERO, &entry);
        let _ = policy.charge(Time::ZERO, entry.child, Work::from_ns(used * MS));
        policy.head(Time::ZERO)
    };
    // The latest start time of child 0 is 12, and 15 after 3 ms of work; that of child 1 is 14.
    assert_eq!(head_after(entry(0, 0, 20), 3), Some(0));
    assert_eq!(head_after(entry(1, 0, 22), 0), Some(1));
    // Child 0 inherits an earlier deadline; its remaining work is still 5 ms: 14, not 11.
    assert_eq!(head_after(entry(0, 0, 19), 0), Some(0));
    assert_eq!(head_after(entry(1, 0, 21), 0), Some(1), "13 is before 14");
    // The next job has the same deadline and all of its work remaining: 11.
    assert_eq!(head_after(entry(0, 1, 19), 0), Some(0));
    // `before` uses its arguments and not the latest entries: 14 or 2 for the same child.
    assert!(policy.before(Time::ZERO, &entry(1, 0, 10), &entry(1, 0, 22)));
}

/// A system in which `holds` inherits the deadline of `waits`.
const INHERITANCE: &str = r#"
duration = "50ms"

[[scheduler]]
name = "cpu0"
policy = "llf"

[[resource]]
name = "bus"
protocol = "inheritance"

[[task]]
name = "holds"
period = "100ms"
deadline = "80ms"
cost = "15ms"

[[task.section]]
resource = "bus"
start = "1ms"
length = "12ms"

[[task]]
name = "waits"
offset = "6ms"
period = "100ms"
deadline = "34ms"
cost = "4ms"

[[task.section]]
resource = "bus"
start = "1ms"
length = "2ms"

[[task]]
name = "third"
offset = "8ms"
period = "100ms"
deadline = "23ms"
cost = "3ms"
"#;

#[test]
fn s19_inheritance_does_not_reset_the_remaining_work_of_the_holder() {
    let registry = Registry::new().policy("llf", make);
    let system = system::read_with(INHERITANCE, "system.toml", &(), &registry).expect("a system");
    let root = &system.roots[0];
    let mut simulation =
        Simulation::new(root.tree.build().expect("a tree"), 1, &root.workload(system.seed));
    let mut jobs = Jobs::default();
    simulation.run(Time::from_ns(50 * MS), &mut jobs);
    let mut completions = [0; 3];
    jobs.ended.iter().for_each(|job| completions[job.task.0 as usize] = job.end.as_ns() / MS);
    // At 7 `holds` inherits the deadline 40 with 9 ms of remaining work. At 8 its latest start time
    // is 32; that of `third` is 28, and rises to 31 until its completion. With 15 ms of remaining
    // work, that of `holds` would be 26. The section ends at 17; then `waits` is first again.
    assert_eq!(completions, [22, 20, 11]);
}

const SYSTEM: &str = include_str!("../system.toml");

#[test]
fn s19_l8_a_system_file_uses_the_policy_in_a_tree_of_three_levels() {
    let registry = Registry::new().policy("llf", make);
    let system = system::read_with(SYSTEM, "system.toml", &(), &registry).expect("a system");
    let root = &system.roots[0];
    let engine = root.tree.build().expect("a tree");
    assert_eq!(engine.depth(talea_core::engine::TaskId(1)), 3, "cpu0, band, vision");
    let mut simulation = Simulation::new(engine, 1, &root.workload(system.seed));
    let mut counters = Counters::new(root.tasks.len());
    simulation.run(Time::ZERO + system.duration, &mut counters);
    let counts: Vec<(u64, u64)> =
        counters.tasks.iter().map(|count| (count.completed, count.late)).collect();
    assert_eq!(counts, [(100, 0), (25, 0), (25, 0)]);
}

#[test]
fn l8_a_refused_child_and_an_unknown_policy_are_named_with_a_remedy() {
    let registry = Registry::new().policy("llf", make);
    // A scheduler without a reservation has no cost.
    let text = SYSTEM.replace("in = \"vision\"\nperiod", "in = \"any\"\nperiod")
        + "\n[[scheduler]]\nname = \"any\"\nin = \"vision\"\npolicy = \"fifo\"\n";
    let found = system::read_with(&text, "system.toml", &(), &registry).expect_err("refused");
    assert!(
        found[0].what.contains("`any`") && found[0].why.contains("no cost is declared"),
        "{found:?}"
    );
    // A registry without the policy reports the policies that it has.
    let found = system::read(SYSTEM, "system.toml", &()).expect_err("refused");
    assert!(
        found[0].what.contains("`llf`") && found[0].remedy.contains("\"edf\", \"fp\""),
        "{found:?}"
    );
}
