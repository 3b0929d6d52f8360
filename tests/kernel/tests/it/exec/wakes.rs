//! Wake-ups at releases and completions: of a dispatcher, or of the workers themselves.

use super::scene::{Agreed, Scene};
use super::{alone, every_2_ms, small, two_cpus};
use std::sync::Mutex;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Monotonic, Span, Time, Work};
use talea_exec::{Arrival, Job, Load, Options, RootPlan, TaskPlan, execute};
use talea_kernel_tests::{Bench, kernel, needs, needs_root};
use talea_os::clock;

/// Largest cost of a dispatcher's step in tenths of an empty wake-up, in a build without
/// optimization. It is 15 tenths; a step that costs three times as much makes it 40.
const MAX_STEP: u64 = 24;

/// Runs a task with forty jobs, one every 2 ms, in this tree. Returns the number of steps of its
/// dispatcher, of its worker at completions, and of its worker at releases. Checks that a fresh
/// engine repeats the record, whichever thread executed a step.
fn steps_of_forty(tree: &Tree) -> [u64; 3] {
    let load = every_2_ms(40, vec![Work::from_ns(200_000)]);
    let plan = alone(tree, load, talea_exec::work::spender());
    let report = execute(plan, &Options::new(Span::from_ns(500_000_000))).expect("it runs");
    let mut fresh = tree.build().expect("a sound tree");
    assert!(
        talea_exec::replay::replay(&mut fresh, &report.roots[0].record).expect("the same orders")
            > 0
    );
    assert_eq!(report.roots[0].job_stats[0].jobs, 40);
    let effort = report.roots[0].dispatchers[0];
    [effort.steps, effort.worker_completions, effort.worker_releases]
}

#[test]
fn s8_a_job_costs_one_wake_of_its_dispatcher() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_one_wake");
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Fifo));
    let task = TaskSpec::new("task", Span::from_ns(2_000_000));
    // The engine decides when its jobs may begin: no worker wakes by itself.
    let _ = tree.task(Tree::ROOT, TaskSpec { enforced: true, ..task });
    let [steps, by_workers, by_themselves] = steps_of_forty(&tree);
    // Each end is the worker's own step. Where the machine stood still several jobs have come at
    // once, so never more.
    assert_eq!((by_workers, by_themselves), (40, 0));
    assert!(steps <= 41, "{steps}");
}

/// CPU time of one wake-up of a thread that only sleeps, in nanoseconds.
fn empty_wakeup() -> u64 {
    const WAKEUPS: u64 = 40;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let tid = talea_os::Tid::current();
            let cpu = talea_core::CpuSet::single(two_cpus()[0]);
            talea_os::sched::set_affinity(tid, &cpu).expect("an affinity");
            let fifo = talea_os::sched::Policy::Fifo(50);
            talea_os::sched::set(tid, &talea_os::sched::Attr::grant(fifo)).expect("a policy");
            let (zero, begin) = (clock::now(), clock::thread_cpu_time().as_ns());
            (1..=WAKEUPS).for_each(|k| clock::sleep_until(zero + Span::from_ns(k * 2_000_000)));
            (clock::thread_cpu_time().as_ns() - begin) / WAKEUPS
        });
        thread.join().expect("no panic")
    })
}

#[test]
fn s8_a_step_of_a_dispatcher_costs_few_empty_wakeups() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_step_cost");
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Fifo));
    let task = TaskSpec::new("task", Span::from_ns(2_000_000));
    // Each release is a step of the dispatcher.
    let _ = tree.task(Tree::ROOT, TaskSpec { enforced: true, ..task });
    let step = || {
        let load = every_2_ms(40, vec![Work::from_ns(200_000)]);
        let plan = alone(&tree, load, talea_exec::work::spender());
        let report = execute(plan, &Options::new(Span::from_ns(100_000_000))).expect("it runs");
        let effort = report.roots[0].dispatchers[0];
        effort.cpu_time.as_ns() / effort.steps.max(1)
    };
    // Other load lengthens both. The smallest values are those without it.
    let (mut ours, mut empty) = (u64::MAX, u64::MAX);
    for _ in 0..6 {
        empty = empty.min(empty_wakeup());
        ours = ours.min(step());
    }
    println!("a step costs {ours} ns, an empty wake-up {empty} ns");
    assert!(ours * 10 < MAX_STEP * empty, "{ours} ns, an empty wake-up {empty} ns");
}

#[test]
fn s8_a_light_task_wakes_by_its_own_timer_and_costs_its_dispatcher_nothing() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_no_wake");
    let [steps, by_workers, by_themselves] = steps_of_forty(&small());
    assert_eq!(by_workers, 40);
    // Where the machine stood still several jobs have come at once.
    assert!((1..40).contains(&by_themselves), "{by_themselves}");
    assert!(steps <= 2, "{steps}");
}

#[test]
fn s8_a_preempting_worker_wakes_by_its_own_timer_while_another_one_computes() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_levels");
    const LONG: u64 = 60_000_000;
    const SHORT: u64 = 20_000_000;
    const ROUNDS: u64 = 16;
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
    for period in [LONG, SHORT] {
        let _ = tree.task(Tree::ROOT, TaskSpec::new("task", Span::from_ns(period)));
    }
    let load = |period: u64, cost: u64| {
        let arrivals = (0..ROUNDS * LONG / period).map(|k| Time::from_ns(k * period));
        let arrivals = arrivals.map(|at| Arrival { observed: at, nominal: at }).collect();
        Load::new(arrivals, vec![Work::from_ns(cost)])
    };
    let begun: Mutex<Vec<(u64, Monotonic)>> = Mutex::new(Vec::with_capacity(64));
    let level = || match talea_os::sched::get(talea_os::Tid::current()).expect("it is there").policy
    {
        talea_os::sched::Policy::Fifo(level) => level,
        other => panic!("{other:?}"),
    };
    // Those of the first one and of the other, of each job.
    let levels: [Mutex<Vec<u8>>; 2] = [(); 2].map(|()| Mutex::new(Vec::with_capacity(64)));
    let note = |job: &Job, _: &_| {
        begun.lock().expect("no panic").push((job.number, clock::now()));
        levels[1].lock().expect("no panic").push(level());
    };
    let mut spend = talea_exec::work::spender();
    let compute = |job: &Job, over: &_| {
        spend(job, over);
        levels[0].lock().expect("no panic").push(level());
    };
    // The first one computes from the first job of the other to behind the begin of the third.
    let tasks = vec![
        TaskPlan { load: load(LONG, 42_000_000), body: Box::new(compute) },
        TaskPlan { load: load(SHORT, 1_000), body: Box::new(note) },
    ];
    let cpus = vec![two_cpus()[0]];
    let plan = RootPlan { tree: &tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus };
    let report = execute(vec![plan], &Options::new(Span::from_ns(ROUNDS * LONG))).expect("it runs");
    let root = &report.roots[0];
    let mut fresh = tree.build().expect("a sound tree");
    assert!(talea_exec::replay::replay(&mut fresh, &root.record).is_ok());
    let effort = root.dispatchers[0];
    assert!(effort.steps <= 4, "the dispatcher's own: {}", effort.steps);
    // Where the machine stood still several jobs have come at once.
    assert!(effort.worker_releases > ROUNDS, "{}", effort.worker_releases);
    // The second of three interrupts; one that could not would begin 22 ms late: when the first one
    // has ended.
    let late =
        |&(number, at): &(u64, Monotonic)| at.since(report.zero + Span::from_ns(number * SHORT));
    let begun = begun.lock().expect("no panic");
    let mut between: Vec<Span> =
        begun.iter().filter(|(number, _)| number % 3 == 1).map(late).collect();
    between.sort_unstable();
    let middle = between[between.len() / 2];
    assert!(middle < Span::from_ns(10_000_000), "half of them later than {middle}");
    // No worker changes its level, and a preempting worker has the higher one.
    let [mut of_long, mut of_short] = levels.map(|levels| levels.into_inner().expect("no panic"));
    of_long.dedup();
    of_short.dedup();
    assert_eq!((of_long.len(), of_short.len()), (1, 1));
    assert!(of_short > of_long, "{of_short:?}, {of_long:?}");
}

/// Runs these tasks under EDF on one CPU and compares the run with the simulator.
fn under_edf(bench: &Bench, tasks: &str) -> Agreed {
    const ROOT: &str = "duration = \"420ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"edf\"\n";
    Scene::read(&format!("{ROOT}{tasks}")).agrees(bench).swap_remove(0)
}

#[test]
fn s8_a_job_released_with_the_most_urgent_one_runs_before_the_preempted_job() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_with");
    let agreed = under_edf(
        &bench,
        r#"
        [[task]]
        name = "long"
        period = "200ms"
        cost = "60ms"
        [[task]]
        name = "urgent"
        period = "100ms"
        deadline = "30ms"
        cost = "20ms"
        offset = "20ms"
        [[task]]
        name = "between"
        period = "100ms"
        deadline = "80ms"
        cost = "10ms"
        offset = "20ms"
        "#,
    );
    assert!(agreed.preemptions() >= 2, "{}", agreed.preemptions());
}

#[test]
fn s8_a_job_that_no_arrival_preempts_is_preempted_by_a_wake() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_woken");
    let agreed = under_edf(
        &bench,
        r#"
        [[task]]
        name = "sleeps"
        period = "200ms"
        deadline = "100ms"
        cost = "20ms"
        [[task.suspension]]
        start = "10ms"
        length = "30ms"
        [[task]]
        name = "computes"
        period = "200ms"
        deadline = "100ms"
        cost = "50ms"
        offset = "20ms"
        [[task]]
        name = "long"
        period = "200ms"
        cost = "15ms"
        "#,
    );
    assert!(agreed.preemptions() >= 4, "{}", agreed.preemptions());
}

#[test]
fn s8_a_stopped_worker_does_not_delay_an_earlier_one_that_resumes() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_way");
    // At 90 ms `back` has the earlier deadline; `stopped` has the higher level, and was stopped by
    // one that is above both.
    let agreed = under_edf(
        &bench,
        r#"
        [[task]]
        name = "back"
        period = "200ms"
        deadline = "180ms"
        cost = "40ms"
        [[task.suspension]]
        start = "10ms"
        length = "70ms"
        [[task]]
        name = "stopped"
        period = "200ms"
        deadline = "150ms"
        cost = "50ms"
        offset = "40ms"
        [[task]]
        name = "above"
        period = "200ms"
        deadline = "60ms"
        cost = "30ms"
        offset = "60ms"
        "#,
    );
    assert!(agreed.preemptions() >= 2, "{}", agreed.preemptions());
    // The worker that resumes the stopped one is not preempted by it in the middle of that step:
    // each end is its worker's own step.
    assert_eq!(agreed.by_workers(), 9, "ends of jobs, and of pieces before a suspension");
}
