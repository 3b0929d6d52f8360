//! What is known of the policy.

use policy_llf::make;
use talea_core::criteria::Criteria;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{ChildInfo, PolicySpec, ReadyChild, contract};
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Counters, Jobs, Simulation, Source, Workload};
use talea_system::system::{self, Registry};

const POLICY: PolicySpec = PolicySpec::Custom { name: "llf", make };
const MS: u64 = 1_000_000;

/// Periods, costs and deadlines in milliseconds.
fn world(policy: PolicySpec, tasks: &[(u64, u64, u64)]) -> Simulation {
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

/// When each job ends, in milliseconds, by task.
fn ends(policy: PolicySpec, tasks: &[(u64, u64, u64)], until: u64) -> Vec<Vec<u64>> {
    let mut jobs = Jobs::default();
    // Ends at that very moment are in.
    world(policy, tasks).run(Time::from_ns(until * MS + 1), &mut jobs);
    let mut ends = vec![vec![]; tasks.len()];
    jobs.ended.iter().for_each(|job| ends[job.task.0 as usize].push(job.end.as_ns() / MS));
    ends
}

/// The same, from the definition: in each millisecond the job with the least laxity runs.
fn plainly(tasks: &[(u64, u64, u64)], until: u64) -> Vec<Vec<u64>> {
    let mut ends = vec![vec![]; tasks.len()];
    // (task, absolute deadline, what is left)
    let mut jobs: Vec<(usize, u64, u64)> = vec![];
    for now in 0..until {
        for (task, &(_, cost, deadline)) in
            tasks.iter().enumerate().filter(|(_, of)| now % of.0 == 0)
        {
            jobs.push((task, now + deadline, cost));
        }
        let first = |of: &(usize, u64, u64)| !jobs.iter().any(|job| job.0 == of.0 && job.1 < of.1);
        let Some(at) = (0..jobs.len())
            .filter(|&at| first(&jobs[at]))
            .min_by_key(|&at| (jobs[at].1 as i64 - jobs[at].2 as i64, jobs[at].0))
        else {
            continue;
        };
        jobs[at].2 -= 1;
        if jobs[at].2 == 0 {
            ends[jobs.remove(at).0].push(now + 1);
        }
    }
    ends
}

/// Sets with so many thousandths of load at most.
fn random(dice: &mut Rng, most: u64) -> Vec<(u64, u64, u64)> {
    let (mut tasks, mut load) = (vec![], 0);
    for _ in 0..dice.between(2, 5) {
        let period = [4, 5, 8, 10, 20, 40][dice.below(6) as usize];
        let cost = dice.between(1, period / 2);
        load += cost * 1_000 / period;
        if load <= most {
            tasks.push((period, cost, period));
        }
    }
    tasks
}

#[test]
fn l8_it_keeps_the_contract_of_all_policies() {
    assert_eq!(contract::check(&POLICY), Ok(()));
}

#[test]
fn s19_equals_take_turns_of_a_grain_and_the_tightest_goes_first() {
    // Latest begins: 7 and 7, then 8 and 7, ...: they change places every millisecond.
    assert_eq!(ends(POLICY, &[(20, 3, 10), (20, 3, 10)], 20), [[5], [6]]);
    // EDF runs the earlier deadline; the other one has less time to spare, 3 ms to 8, until 5 ms of
    // it are done.
    let tasks = [(20, 2, 10), (20, 8, 11)];
    assert_eq!(ends(PolicySpec::Edf, &tasks, 20), [[2], [10]]);
    assert_eq!(ends(POLICY, &tasks, 20), [[8], [10]]);
}

#[test]
fn l8_s19_y21_a_policy_from_outside_does_what_its_definition_says() {
    let mut dice = Rng::new(1);
    for case in 0..300 {
        let tasks = random(&mut dice, 1_200);
        assert_eq!(ends(POLICY, &tasks, 160), plainly(&tasks, 160), "case {case}: {tasks:?}");
    }
}

#[test]
fn s19_on_one_cpu_it_is_optimal() {
    let mut dice = Rng::new(2);
    for case in 0..300 {
        let tasks = random(&mut dice, 1_000);
        let mut counters = Counters::new(tasks.len());
        world(POLICY, &tasks).run(Time::from_ns(200 * MS), &mut counters);
        assert!(counters.tasks.iter().all(|count| count.late == 0), "case {case}: {tasks:?}");
    }
}

#[test]
fn s19_a_job_is_one_by_its_number_and_not_by_its_deadline() {
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
    let mut tell = |told: ReadyChild, used: u64| {
        let _ = policy.update(Time::ZERO, &told);
        let _ = policy.charge(Time::ZERO, told.child, Work::from_ns(used * MS));
        policy.head(Time::ZERO)
    };
    // Latest begins: of 0 at 12 and then, with 3 ms of it done, at 15; of 1 at 14.
    assert_eq!(tell(entry(0, 0, 20), 3), Some(0));
    assert_eq!(tell(entry(1, 0, 22), 0), Some(1));
    // It is lent an earlier deadline and has the same 5 ms left: 14, not 11.
    assert_eq!(tell(entry(0, 0, 19), 0), Some(0));
    assert_eq!(tell(entry(1, 0, 21), 0), Some(1), "13 is before 14");
    // The next job is due at that very time, and has all before it: 11.
    assert_eq!(tell(entry(0, 1, 19), 0), Some(0));
    // What is asked about counts, and not what was told: 14 or 2 of the same child.
    assert!(policy.before(Time::ZERO, &entry(1, 0, 10), &entry(1, 0, 22)));
}

const LENDING: &str = r#"
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
fn s19_what_a_holder_is_lent_does_not_make_it_begin_anew() {
    let registry = Registry::new().policy("llf", make);
    let system = system::read_with(LENDING, "system.toml", &(), &registry).expect("a system");
    let root = &system.roots[0];
    let mut world =
        Simulation::new(root.tree.build().expect("a tree"), 1, &root.workload(system.seed));
    let mut jobs = Jobs::default();
    world.run(Time::from_ns(50 * MS), &mut jobs);
    let mut ends = [0; 3];
    jobs.ended.iter().for_each(|job| ends[job.task.0 as usize] = job.end.as_ns() / MS);
    // From 7 on the holder has a deadline of 40, and 9 ms left. At 8 it must begin at 32, the third
    // at 28 and, done, at 31; with all of its 15 ms it would have to at 26. The section ends at 17,
    // and who waited comes first again.
    assert_eq!(ends, [22, 20, 11]);
}

const SYSTEM: &str = include_str!("../system.toml");

#[test]
fn s19_l8_in_a_tree_of_three_levels_that_a_system_file_describes() {
    let registry = Registry::new().policy("llf", make);
    let system = system::read_with(SYSTEM, "system.toml", &(), &registry).expect("a system");
    let root = &system.roots[0];
    let machine = root.tree.build().expect("a tree");
    assert_eq!(machine.depth(talea_core::engine::TaskId(1)), 3, "cpu0, band, vision");
    let mut world = Simulation::new(machine, 1, &root.workload(system.seed));
    let mut counters = Counters::new(root.tasks.len());
    world.run(Time::ZERO + system.duration, &mut counters);
    let done: Vec<(u64, u64)> =
        counters.tasks.iter().map(|count| (count.completed, count.late)).collect();
    assert_eq!(done, [(100, 0), (25, 0), (25, 0)]);
}

#[test]
fn l8_whom_it_does_not_take_is_refused_where_it_stands() {
    let registry = Registry::new().policy("llf", make);
    // A scheduler without a reservation has no cost.
    let text = SYSTEM.replace("in = \"vision\"\nperiod", "in = \"any\"\nperiod")
        + "\n[[scheduler]]\nname = \"any\"\nin = \"vision\"\npolicy = \"fifo\"\n";
    let found = system::read_with(&text, "system.toml", &(), &registry).expect_err("refused");
    assert!(
        found[0].what.contains("`any`") && found[0].why.contains("no cost is declared"),
        "{found:?}"
    );
    // Whoever does not know the policy says what it knows.
    let found = system::read(SYSTEM, "system.toml", &()).expect_err("refused");
    assert!(
        found[0].what.contains("`llf`") && found[0].remedy.contains("\"edf\", \"fp\""),
        "{found:?}"
    );
}
