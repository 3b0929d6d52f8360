//! One description, two drivers: the simulator and real threads get the same orders in the same
//! sequence.
//!
//! Each test repeats the run of its system until the run is conclusive. The sequence of dispatches
//! and completions must then be the simulator's, unless the run's own monitors have detected a
//! stall. The tests assert nothing about absolute times. They also bound the consumed CPU time by
//! the costs of the jobs and the budgets of the servers.

mod isolation;
mod kills;
mod leaving;
mod native;
mod nodes;
mod outside;
pub(crate) mod programs;
mod reservations;
mod scene;
mod servers;
mod strays;
mod wakes;

use scene::{Scene, left_behind, two_cpus};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use talea_core::engine::{Cpu, Engine, Order, SchedulerSpec, TaskId, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Time, Work};
use talea_exec::replay::replay_to_sink;
use talea_exec::{
    Arrival, Failure, Job, Load, Options, RecordKind, RootPlan, ScheduleEvent, TaskPlan, execute,
};
use talea_kernel_tests::{Bench, kernel, needs, needs_root};

#[test]
fn slice_edf() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("slice_edf");
    let scene = Scene::read(
        r#"
        duration = "150ms"
        [[scheduler]]
        name = "cpu"
        policy = "edf"
        [[task]]
        name = "a"
        period = "28ms"
        cost = "3ms"
        [[task]]
        name = "b"
        period = "50ms"
        cost = "8ms"
        offset = "6ms"
        [[task]]
        name = "c"
        period = "83ms"
        cost = "22ms"
        offset = "2ms"
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    assert!(agreed.preemptions() >= 3, "EDF interrupts: {}", agreed.preemptions());
}

#[test]
fn slice_fp() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("slice_fp");
    let scene = Scene::read(
        r#"
        duration = "150ms"
        [[scheduler]]
        name = "cpu"
        policy = "fp"
        [[task]]
        name = "high"
        priority = 30
        period = "29ms"
        offset = "6ms"
        cost = "5ms"
        [[task]]
        name = "middle"
        priority = 20
        period = "67ms"
        offset = "5ms"
        cost = "11ms"
        [[task]]
        name = "low"
        priority = 10
        period = "78ms"
        cost = "20ms"
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    // `low` is interrupted by `middle`, and `middle` by `high`.
    assert!(agreed.preemptions() >= 4, "{}", agreed.preemptions());
}

#[test]
fn slice_deferrable() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("slice_deferrable");
    let scene = Scene::read(
        r#"
        duration = "150ms"
        [[scheduler]]
        name = "cpu"
        policy = "fp"
        [[scheduler]]
        name = "server"
        in = "cpu"
        policy = "fifo"
        server = "deferrable"
        priority = 20
        budget = "6ms"
        period = "25ms"
        [[task]]
        name = "client"
        in = "server"
        period = "75ms"
        offset = "3ms"
        cost = "15ms"
        [[task]]
        name = "background"
        in = "cpu"
        priority = 10
        period = "54ms"
        offset = "14ms"
        cost = "12ms"
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    // The client's job takes three budgets, and while it has none and no other task runs, the CPU
    // is idle.
    assert!(agreed.rests_within_jobs() >= 2, "{}", agreed.rests_within_jobs());
    // A late look lets a job run over by the lateness, not by a budget: it consumes the six
    // milliseconds and a part of another.
    let (worst, slack) = agreed.worst_grant("client");
    let (budget, part) = (Work::from_ns(6_000_000), Work::from_ns(1_000_000));
    assert!(worst >= budget && worst < budget + part + slack, "{worst} of {budget}, {slack}");
}

#[test]
fn slice_partitions() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("slice_partitions");
    let scene = Scene::read(
        r#"
        duration = "150ms"
        [[scheduler]]
        name = "cpu"
        policy = "partitions"
        frame = "40ms"
        [[scheduler.slot]]
        owner = "one"
        length = "14ms"
        [[scheduler.slot]]
        owner = "two"
        start = "18ms"
        length = "17ms"
        [[scheduler]]
        name = "one"
        in = "cpu"
        policy = "edf"
        [[scheduler]]
        name = "two"
        in = "cpu"
        policy = "fp"
        [[task]]
        name = "a"
        in = "one"
        period = "40ms"
        cost = "7ms"
        [[task]]
        name = "b"
        in = "one"
        period = "160ms"
        cost = "29ms"
        [[task]]
        name = "c"
        in = "two"
        priority = 2
        period = "80ms"
        offset = "28ms"
        cost = "4ms"
        [[task]]
        name = "d"
        in = "two"
        priority = 1
        period = "160ms"
        cost = "20ms"
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    // Both long jobs go over several of their slots, and no task runs in between.
    assert!(agreed.rests_within_jobs() >= 3, "{}", agreed.rests_within_jobs());
}

#[test]
fn slice_global() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("slice_global");
    let scene = Scene::read(
        r#"
        duration = "150ms"
        [[scheduler]]
        name = "both"
        policy = "edf"
        cpus = 2
        [[task]]
        name = "a"
        period = "36ms"
        cost = "8ms"
        [[task]]
        name = "b"
        period = "44ms"
        offset = "7ms"
        cost = "16ms"
        [[task]]
        name = "c"
        period = "62ms"
        offset = "3ms"
        cost = "21ms"
        [[task]]
        name = "d"
        period = "100ms"
        offset = "8ms"
        cost = "31ms"
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    assert!(agreed.preemptions() >= 2, "{}", agreed.preemptions());
    assert!(agreed.migrations() >= 1, "a job goes on on the other CPU: {}", agreed.migrations());
}

#[test]
fn budgets_are_kept_on_a_root_with_two_cpus() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_two_cpus");
    let scene = Scene::read(
        r#"
        duration = "150ms"
        [[scheduler]]
        name = "both"
        policy = "fp"
        cpus = 2
        [[scheduler]]
        name = "one"
        in = "both"
        server = "deferrable"
        priority = 20
        budget = "8ms"
        period = "26ms"
        [[scheduler]]
        name = "two"
        in = "both"
        server = "deferrable"
        priority = 15
        budget = "7ms"
        period = "44ms"
        [[task]]
        name = "a"
        in = "one"
        period = "75ms"
        offset = "7ms"
        cost = "14ms"
        [[task]]
        name = "b"
        in = "two"
        period = "80ms"
        offset = "7ms"
        cost = "19ms"
        [[task]]
        name = "c"
        in = "both"
        priority = 10
        period = "58ms"
        offset = "4ms"
        cost = "8ms"
        [[task]]
        name = "d"
        in = "both"
        priority = 5
        period = "69ms"
        offset = "5ms"
        cost = "20ms"
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    assert!(
        agreed.preemptions() >= 2 && agreed.rests_within_jobs() >= 2 && agreed.migrations() >= 1
    );
}

#[test]
fn s12_a_job_of_a_lower_set_is_preempted_and_goes_on_as_in_figure_4() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_figure_4");
    let scene = Scene::read(
        r#"
        duration = "60ms"
        [[scheduler]]
        name = "top"
        policy = "fp"
        [[scheduler]]
        name = "set1"
        in = "top"
        policy = "edf"
        priority = 20
        [[scheduler]]
        name = "set2"
        in = "top"
        policy = "fifo"
        priority = 10
        [[task]]
        name = "first"
        in = "set1"
        period = "200ms"
        offset = "15ms"
        cost = "8ms"
        [[task]]
        name = "second"
        in = "set2"
        period = "200ms"
        offset = "5ms"
        cost = "20ms"
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    // Arrival, update, activate; preempt; finished, reactivate; finished.
    let (first, second) = (TaskId(0), TaskId(1));
    let runs = |task| ScheduleEvent::Dispatched { cpu: Cpu(0), task, job: 0 };
    let ended = |task| ScheduleEvent::Completed { task, job: 0 };
    let rests = ScheduleEvent::Idle { cpu: Cpu(0) };
    let drawn = [runs(second), runs(first), ended(first), runs(second), ended(second), rests];
    assert_eq!(agreed.turns(), drawn);
}

#[test]
fn two_roots_do_not_interfere() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_two_roots");
    let scene = Scene::read(
        r#"
        duration = "150ms"
        [[scheduler]]
        name = "left"
        policy = "edf"
        [[scheduler]]
        name = "right"
        policy = "fp"
        [[task]]
        name = "a"
        in = "left"
        period = "28ms"
        cost = "3ms"
        [[task]]
        name = "b"
        in = "left"
        period = "50ms"
        cost = "8ms"
        offset = "6ms"
        [[task]]
        name = "c"
        in = "left"
        period = "83ms"
        cost = "22ms"
        offset = "2ms"
        [[task]]
        name = "high"
        in = "right"
        priority = 30
        period = "29ms"
        offset = "6ms"
        cost = "5ms"
        [[task]]
        name = "low"
        in = "right"
        priority = 10
        period = "78ms"
        cost = "20ms"
        "#,
    );
    let agreed = scene.agrees(&bench);
    assert!(agreed.iter().all(|root| root.preemptions() >= 2));
}

/// Returns the plan of one task on one CPU.
fn alone<'a>(tree: &'a Tree, load: Load, body: talea_exec::JobBody<'a>) -> Vec<RootPlan<'a>> {
    let tasks = vec![TaskPlan { load, body }];
    vec![RootPlan {
        tree,
        tasks,
        changes: Vec::new(),
        flows: Vec::new(),
        cpus: vec![two_cpus()[0]],
    }]
}

/// Returns the load of this many jobs, 2 ms apart, with these costs.
fn every_2_ms(jobs: u64, costs: Vec<Work>) -> Load {
    let at = |k: u64| Time::from_ns(k * 2_000_000);
    Load::new((0..jobs).map(|k| Arrival { observed: at(k), nominal: at(k) }).collect(), costs)
}

/// Returns the plan of one task with one job at time zero, which executes `body`.
fn single<'a>(tree: &'a Tree, body: talea_exec::JobBody<'a>) -> Vec<RootPlan<'a>> {
    let arrivals = vec![Arrival { observed: Time::ZERO, nominal: Time::ZERO }];
    alone(tree, Load::new(arrivals, vec![Work::from_ns(1_000_000)]), body)
}

fn small() -> Tree {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Fifo));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("task", Span::from_ns(50_000_000)));
    tree
}

#[test]
fn a_job_that_panics_ends_the_run_and_leaves_nothing_behind() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_panic");
    let tree = small();
    let mut plan = single(&tree, Box::new(|_, _| panic!("on purpose")));
    // Another root that has nothing to do with it, and would sleep until the end.
    let idle = TaskPlan { load: Load::default(), body: talea_exec::work::spender() };
    plan.push(RootPlan {
        tree: &tree,
        tasks: vec![idle],
        changes: Vec::new(),
        flows: Vec::new(),
        cpus: vec![two_cpus()[1]],
    });
    let length = Duration::from_secs(30);
    let options = Options::new(Span::from_ns(length.as_nanos() as u64));
    let begun = std::time::Instant::now();
    let fallen = catch_unwind(AssertUnwindSafe(|| execute(plan, &options)));
    assert!(fallen.is_err(), "the panic is passed on");
    assert!(begun.elapsed() < length / 2, "and no thread waits for the end of the run");
    assert_eq!(left_behind(), [""; 0]);
}

#[test]
fn a_hung_run_is_ended_by_its_watchdog() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_hung");
    let tree = small();
    // Sleeps within its job for longer than the watchdog waits.
    let plan = single(&tree, Box::new(|_, _| std::thread::sleep(Duration::from_millis(2_600))));
    let ended = execute(plan, &Options::new(Span::from_ns(20_000_000)));
    assert!(matches!(ended, Err(Failure::Hung)), "{ended:?}");
    assert_eq!(left_behind(), [""; 0]);
}

#[test]
fn custom_jobs_are_done_in_order_and_their_ends_are_reported() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_closure");
    let tree = small();
    let done = AtomicU64::new(0);
    let body = |job: &Job, _: &_| {
        assert_eq!(done.fetch_add(1, Ordering::Relaxed), job.number);
    };
    let plan = alone(&tree, every_2_ms(20, Vec::new()), Box::new(body));
    let report = execute(plan, &Options::new(Span::from_ns(500_000_000))).expect("it runs");
    assert_eq!(done.load(Ordering::Relaxed), 20);
    let course = talea_exec::ScheduleLog::from_record(1, &report.roots[0].record);
    let ends =
        course.events().filter(|turn| matches!(turn, ScheduleEvent::Completed { .. })).count();
    assert_eq!(ends, 20);
}

#[test]
fn s3_s18_a_hundred_thousand_recorded_events_replay_to_the_same_orders() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_many_events");
    const TASKS: u64 = 40;
    const PERIOD: u64 = 2_000_000;
    const SECONDS: u64 = 4;
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
    let groups: Vec<_> =
        [PolicySpec::Edf, PolicySpec::FixedPriority, PolicySpec::Fifo, PolicySpec::RateMonotonic]
            .into_iter()
            .map(|policy| tree.scheduler(Tree::ROOT, SchedulerSpec::new("group", policy)))
            .collect();
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        // Some come together, some apart.
        let offset = task % 4 * PERIOD / 4;
        let _ = tree.task(
            groups[task as usize % groups.len()],
            TaskSpec::new("task", Span::from_ns(PERIOD)),
        );
        let at = |k: u64| Time::from_ns(offset + k * PERIOD);
        let arrivals = (0..SECONDS * 1_000_000_000 / PERIOD)
            .map(|k| Arrival { observed: at(k), nominal: at(k) });
        let load = Load::new(arrivals.collect(), vec![Work::from_ns(5_000)]);
        tasks.push(TaskPlan { load, body: talea_exec::work::spender() });
    }
    let (changes, cpus) = (Vec::new(), vec![two_cpus()[0]]);
    let plan = vec![RootPlan { tree: &tree, tasks, changes, flows: Vec::new(), cpus }];
    let options = Options {
        record_capacity: 1 << 21,
        ..Options::new(Span::from_ns(SECONDS * 1_000_000_000))
    };
    let root = execute(plan, &options).expect("it runs").roots.swap_remove(0);
    assert_eq!(root.lost, 0);
    let events =
        root.record.iter().filter(|entry| matches!(entry.kind, RecordKind::Event(_))).count();
    assert!(events >= 100_000, "{events} events");
    let mut fresh = tree.build().expect("a sound tree");
    let mut audits = 0;
    let audit = |(): &mut (), machine: &Engine, now: Time| {
        machine.audit(now).unwrap_or_else(|why| panic!("at {now:?}: {why}"));
        audits += 1;
    };
    let orders = replay_to_sink(&mut fresh, &root.record, &mut (), audit).expect("the same orders");
    println!("{events} events, {orders} orders, SF3P's four invariants held {audits} times");
    assert!(audits > 10_000, "{audits} times");
    // One order that changes places with the next one, and it is no record of this machine any
    // more.
    let ordered: Vec<usize> = (0..root.record.len())
        .filter(|&at| matches!(root.record[at].kind, RecordKind::Order(Order::Run { .. })))
        .collect();
    let (a, b) = (ordered[ordered.len() / 2], ordered[ordered.len() / 2 + 1]);
    let mut swapped = root.record;
    (swapped[a].kind, swapped[b].kind) = (swapped[b].kind, swapped[a].kind);
    let mut fresh = tree.build().expect("a sound tree");
    let differs = talea_exec::replay::replay(&mut fresh, &swapped).expect_err("swapped");
    assert_eq!(differs.at, a);
}

#[test]
fn plans_that_threads_cannot_execute_are_refused() {
    let refused = |tree: &Tree, cpu: u32, change: &dyn Fn(&mut Options)| {
        let mut plan = single(tree, talea_exec::work::spender());
        plan[0].cpus = vec![cpu];
        let mut options = Options::new(Span::from_ns(1_000_000));
        change(&mut options);
        match execute(plan, &options) {
            Err(Failure::Plan(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let as_it_is = |_: &mut Options| {};
    let says = |tree: &Tree, word: &str| {
        let why = refused(tree, 0, &as_it_is);
        assert!(why.contains(word), "{why}");
    };
    let mut tree = small();
    let quantum = Work::from_ns(3_999);
    let _ =
        tree.scheduler(Tree::ROOT, SchedulerSpec::new("turns", PolicySpec::RoundRobin { quantum }));
    says(&tree, "quantum");
    let mut tree = small();
    let mut soft = SchedulerSpec::new("soft", PolicySpec::Fifo);
    soft.reservation =
        Some(Reservation::new(ServerKind::SoftCbs, Work::from_ns(1_000), Span::from_ns(1_000_000)));
    let _ = tree.scheduler(Tree::ROOT, soft);
    says(&tree, "budget");
    let tree = small();
    assert!(refused(&tree, 1_024, &as_it_is).contains("1024"));
    assert!(refused(&tree, 0, &|options| options.record_capacity = usize::MAX).contains("entries"));
    assert!(
        refused(&tree, 0, &|options| options.duration = Span::from_ns(u64::MAX)).contains("longer")
    );
}

#[test]
fn a_program_on_a_root_with_several_cpus_is_refused_by_the_names_of_both() {
    let mut tree = Tree::new(2, SchedulerSpec::new("both", PolicySpec::FixedPriority));
    for name in ["control", "viewer"] {
        let _ = tree.task(Tree::ROOT, TaskSpec::new(name, Span::from_ns(1_000_000)));
    }
    let loads = [Load::new(Vec::new(), Vec::new()), Load::for_program(vec!["true".to_owned()])];
    let tasks = loads.map(|load| TaskPlan { load, body: talea_exec::work::spender() }).into();
    let root =
        RootPlan { tree: &tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![0, 1] };
    match execute(vec![root], &Options::new(Span::from_ns(1_000_000))) {
        Err(Failure::Plan(why)) => {
            assert!(why.starts_with("both has 2 CPUs, and its task viewer is"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}
