//! Overhead of a run, compared with plain threads on the same machine.

use crate::scene::{load, ms, over, run, spread, us};
use std::sync::Mutex;
use talea_core::engine::{Event, Order};
use talea_core::{CpuSet, Monotonic, Span, Work};
use talea_exec::{Options, RecordKind, RootPlan, TaskPlan, execute};
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock};

/// Number of releases.
pub(crate) const PERIODS: usize = 500;
/// How long a server is watched: enough budgets that the first one, for which everything is new, is
/// not a hundredth of them.
const SECONDS: u32 = 5;
/// Budget of the server in every 20 ms.
const BUDGET: Work = Work::from_ns(1_000_000);

/// Wake-up latencies of a plain FIFO thread that sleeps to absolute times.
pub(crate) fn by_hand(period: Span) -> Vec<u64> {
    let thread = std::thread::spawn(move || {
        let tid = Tid::current();
        sched::set_affinity(tid, &CpuSet::single(0)).expect("the only CPU");
        sched::set(tid, &Attr::grant(Policy::Fifo(50))).expect("FIFO");
        let mut due = clock::now() + ms(5);
        let late = |due: Monotonic| {
            clock::sleep_until(due);
            clock::now().since(due).as_ns()
        };
        (0..PERIODS)
            .map(|_| {
                due += period;
                late(due)
            })
            .collect::<Vec<_>>()
    });
    thread.join().expect("it sleeps")
}

fn by_orders(duration: Span) -> Options {
    Options { monitor: false, audit: false, ..Options::new(duration) }
}

/// Latencies of the only task of a root, from its nominal release to the begin of its job.
pub(crate) fn of_a_task(policy: &str, period: Span, options: impl Fn(Span) -> Options) -> Vec<u64> {
    let text = format!(
        "duration = \"{}us\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"{policy}\"\n[[task]]\nname = \"a\"\nperiod = \"{}us\"\ncost = \"10us\"\n",
        period.as_ns() / 1_000 * PERIODS as u64,
        period.as_ns() / 1_000
    );
    let system = talea_system::read(&text, "the test's own", &()).expect("a sound system");
    let root = &system.roots[0];
    let begun = Mutex::new(Vec::with_capacity(PERIODS));
    let body = |_: &_, _: &_| begun.lock().expect("no panic").push(clock::now());
    let tasks = vec![TaskPlan { load: load(&system, root, 0), body: Box::new(body) }];
    let plan =
        RootPlan { tree: &root.tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![0] };
    let zero = execute(vec![plan], &options(system.duration)).expect("a run").zero;
    let begun = begun.into_inner().expect("no panic");
    assert_eq!(begun.len(), PERIODS, "{policy}");
    (0..)
        .zip(&begun)
        .map(|(k, at)| at.since(zero + Span::from_ns(period.as_ns() * k)).as_ns())
        .collect()
}

#[test]
fn a_task_wakes_little_later_than_a_plain_thread() {
    let period = ms(1);
    let (plain, plain_p99) = spread("a plain FIFO thread", by_hand(period));
    let (ours, ours_p99) =
        spread("a task in a tree of one level", of_a_task("edf", period, by_orders));
    let most = us(8).as_ns();
    assert!(ours <= plain + most && ours_p99 <= plain_p99 + most, "at most {most} ns more");
}

/// Consumption of a greedy client of a server beyond each budget.
#[test]
fn l5_budgets_are_kept_to_two_microseconds() {
    for server in ["deferrable", "polling", "sporadic", "cbs"] {
        let policy = if server == "cbs" { "edf" } else { "fp" };
        let priority = if server == "cbs" { "" } else { "priority = 9" };
        let run = run(&format!(
            r#"
            duration = "{SECONDS}s"
            [[scheduler]]
            name = "cpu"
            policy = "{policy}"
            [[scheduler]]
            name = "server"
            in = "cpu"
            policy = "fifo"
            server = "{server}"
            budget = "1ms"
            period = "20ms"
            {priority}
            [[task]]
            name = "greedy"
            in = "server"
            period = "10s"
            cost = "9s"
            "#
        ));
        let (mut used, mut running, mut overruns) = (Work::ZERO, false, Vec::new());
        for entry in &run.report.record {
            match entry.kind {
                RecordKind::Event(Event::Ran { work, .. }) if running => used += work,
                RecordKind::Order(Order::Run { .. }) => running = true,
                RecordKind::Order(Order::Idle { .. }) if running => {
                    overruns.push(over(used, BUDGET));
                    (used, running) = (Work::ZERO, false);
                }
                _ => {}
            }
        }
        assert!(
            overruns.len() >= 50 * SECONDS as usize - 5,
            "{server}: {} budgets",
            overruns.len()
        );
        let (_, p99) = spread(&format!("{server}: beyond its budget"), overruns);
        assert!(p99 <= us(2).as_ns(), "{server}: {p99} ns at the 99th percentile; at most 2000");
        // 1 ms in 20 ms, and what the worker does between its orders.
        let total = run.report.consumed[0].total.as_ns();
        let share = BUDGET.as_ns() * 50 * u64::from(SECONDS);
        println!("{server}: {total} ns of {share}");
        assert!(total.abs_diff(share) <= share / 50, "{total} of {share}");
    }
}
