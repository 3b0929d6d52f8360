//! Cost of the executor on this system: root lock, CPU time of a dispatcher per job, overrun of a
//! budget.
//!
//! The results are medians of several rounds, each between two of its baseline; real-time
//! priorities are required. On a virtual machine the hypervisor takes most of a wake-up, so the
//! baseline (an empty loop that sleeps to the same times) says more than the number.
#![forbid(unsafe_code)]
#![allow(clippy::cast_precision_loss, reason = "a run is shorter than 104 days")]

use std::time::Instant;
use talea_core::engine::{Event, NodeId, Order, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{CpuSet, Span, Time, Work};
use talea_exec::{Arrival, Failure, Load, Options, RecordKind, RootPlan, TaskPlan, execute, work};
use talea_os::event_count::EventCount;
use talea_os::pi_mutex::PiMutex;
use talea_os::sched::{self, Attr, Policy as Kernel};
use talea_os::{Tid, clock};

const PERIOD: Span = Span::from_ns(1_000_000);
const JOBS: u64 = 500;
const ROUNDS: usize = 7;

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn fifo(cpu: u32, priority: u8) -> std::io::Result<()> {
    sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
    sched::set(Tid::current(), &Attr::grant(Kernel::Fifo(priority)))
}

/// CPU time of a thread that only sleeps to `JOBS` times, each in µs.
fn empty(cpu: u32) -> std::io::Result<f64> {
    let sleeper = move || {
        fifo(cpu, 93)?;
        let event_count = EventCount::new();
        let before = clock::thread_cpu_time();
        let mut due = clock::now();
        for _ in 0..JOBS {
            due += PERIOD;
            event_count.wait(event_count.key(), due);
        }
        let used = clock::thread_cpu_time().as_ns() - before.as_ns();
        Ok(used as f64 / JOBS as f64 / 1e3)
    };
    std::thread::spawn(sleeper).join().expect("it sleeps")
}

/// CPU time of dispatchers and steps per job, with `levels` schedulers on `cpus` CPUs.
fn run(levels: usize, cpus: u32) -> Result<(f64, f64), Failure> {
    let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
    let mut node = NodeId(0);
    for _ in 1..levels {
        node = tree.scheduler(node, SchedulerSpec::new("level", PolicySpec::Edf));
    }
    let _ = tree.task(node, TaskSpec::new("task", PERIOD));
    let arrivals = (0..JOBS).map(|k| {
        let at = Time::from_ns(k * PERIOD.as_ns());
        Arrival { observed: at, nominal: at }
    });
    let load = Load::new(arrivals.collect(), vec![Work::from_ns(20_000)]);
    let tasks = vec![TaskPlan { load, body: work::spender() }];
    let plan = RootPlan {
        tree: &tree,
        tasks,
        changes: Vec::new(),
        flows: Vec::new(),
        cpus: (0..cpus).collect(),
    };
    let duration = Span::from_ns(JOBS * PERIOD.as_ns());
    let options = Options { audit: false, monitor: false, ..Options::new(duration) };
    let report = execute(vec![plan], &options)?;
    let stats = &report.roots[0].dispatchers;
    let used: u64 = stats.iter().map(|stats| stats.cpu_time.as_ns()).sum();
    let steps: u64 = stats.iter().map(|stats| stats.steps).sum();
    Ok((used as f64 / JOBS as f64 / 1e3, steps as f64 / JOBS as f64))
}

/// Overruns of the budgets of a server with 2 ms every 10 ms by a greedy client, in µs, sorted.
fn overruns(cpu: u32) -> Result<Vec<f64>, Failure> {
    const BUDGET: u64 = 2_000_000;
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.reservation = Some(Reservation::new(
        ServerKind::Deferrable,
        Work::from_ns(BUDGET),
        Span::from_ns(5 * BUDGET),
    ));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("greedy", Span::from_ns(10_000_000_000)));
    let arrivals = vec![Arrival { observed: Time::ZERO, nominal: Time::ZERO }];
    let load = Load::new(arrivals, vec![Work::from_ns(10_000_000_000)]);
    let tasks = vec![TaskPlan { load, body: work::spender() }];
    let plan =
        RootPlan { tree: &tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![cpu] };
    let options = Options { audit: false, ..Options::new(Span::from_ns(1_000_000_000)) };
    let report = execute(vec![plan], &options)?;
    let (mut used, mut over) = (0, Vec::new());
    for entry in &report.roots[0].record {
        match entry.kind {
            RecordKind::Event(Event::Ran { work, .. }) => used += work.as_ns(),
            RecordKind::Order(Order::Idle { .. }) => {
                over.push((used as f64 - BUDGET as f64) / 1e3);
                used = 0;
            }
            _ => {}
        }
    }
    over.sort_by(f64::total_cmp);
    Ok(over)
}

/// Nanoseconds of an uncontended lock and unlock.
fn alone() -> f64 {
    const TIMES: u32 = 1_000_000;
    let lock = PiMutex::new(0u64);
    let begun = Instant::now();
    for _ in 0..TIMES {
        *lock.lock() += 1;
    }
    begun.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

/// Nanoseconds per turn. Two CPUs contend all the time and hold the lock for about a microsecond
/// per turn.
fn contended() -> f64 {
    const TIMES: u32 = 20_000;
    let lock = PiMutex::new(0u64);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let lock = &lock;
            scope.spawn(move || {
                fifo(cpu, 93).expect("a right");
                for _ in 0..TIMES {
                    let mut value = lock.lock();
                    for _ in 0..300 {
                        *value = std::hint::black_box(*value + 1);
                    }
                }
            });
        }
    });
    begun.elapsed().as_nanos() as f64 / f64::from(2 * TIMES)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("lock, alone: {:.1} ns", median((0..ROUNDS).map(|_| alone()).collect()));
    println!(
        "lock, two CPUs at it all the time: {:.0} ns a turn",
        median((0..ROUNDS).map(|_| contended()).collect())
    );
    for (levels, cpus) in [(1, 1), (2, 1), (5, 1), (1, 2)] {
        let (mut base, mut ours, mut steps) = (vec![empty(0)?], Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (used, step) = run(levels, cpus)?;
            ours.push(used);
            steps.push(step);
            base.push(empty(0)?);
        }
        let (ours, base) = (median(ours), median(base));
        println!(
            "{levels} levels, {cpus} CPUs: {ours:.2} µs a job in {:.2} steps; an empty wake-up {base:.2} µs; ratio {:.2}",
            median(steps),
            ours / base
        );
    }
    let over = overruns(0)?;
    let at = |part: f64| over[((over.len() - 1) as f64 * part) as usize];
    println!(
        "budget of 2 ms overrun by {:.1} µs (median), {:.1} (p90), {:.1} (most) in {} periods",
        at(0.5),
        at(0.9),
        at(1.0),
        over.len()
    );
    Ok(())
}
