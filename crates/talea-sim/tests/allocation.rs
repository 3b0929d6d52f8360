//! Neither engine nor simulation allocates after the build, with any combination of features.
//!
//! The test is a separate binary, because the counting allocator serves the whole program. The
//! allocator counts per thread.

use allocation_counter::measure;
use talea_core::engine::{
    AcceleratorId, Affinity, Cpu, Event, Migration, Order, Protocol, SchedulerSpec, TaskId,
    TaskSpec, Tree, Version,
};
use talea_core::sched::{PolicySpec, Slot, TableEntry};
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Time, Work};
use talea_sim::{Cost, Counters, Simulation, Source, Workload};

const US: u64 = 1_000;

fn span(us: u64) -> Span {
    Span::from_ns(us * US)
}

fn work(us: u64) -> Work {
    Work::from_ns(us * US)
}

fn periodic(period: u64, most: u64) -> Source {
    let cost = Cost::Uniform { min: Work::from_ns(1), max: work(most) };
    Source { cost, ..Source::periodic(span(period), work(most)) }
}

/// Adds `count` tasks below `parent`, with a demand of about `percent` of a CPU.
fn tasks(
    tree: &mut Tree,
    sources: &mut Vec<Source>,
    parent: talea_core::engine::NodeId,
    count: u64,
    percent: u64,
) {
    for number in 0..count {
        let period = 70 + 13 * number;
        let priority = number as u8;
        let criticality = (number % 3) as u8;
        let spec = TaskSpec { priority, criticality, ..TaskSpec::new("task", span(period)) };
        tree.task(parent, TaskSpec { enforced: number % 2 == 0, ..spec });
        // Half of the maximum, on average.
        sources.push(periodic(period, (2 * period * percent / 100 / count).max(1)));
    }
}

/// Runs a simulation, counts its allocations, and checks that jobs completed.
fn allocated(name: &str, tree: &Tree, sources: Vec<Source>) -> u64 {
    let engine = tree.build().unwrap_or_else(|wrong| panic!("{name}: {wrong:?}"));
    let mut counters = Counters::new(sources.len());
    let mut simulation = Simulation::new(engine, tree.cpus, &Workload { sources, seed: 3 });
    let info = measure(|| _ = simulation.run(Time::from_ns(100_000 * US), &mut counters));
    assert!(counters.total().completed > 1_000, "{name}: {:?}", counters.total());
    info.count_total
}

#[test]
fn the_counter_counts() {
    assert_eq!(measure(|| drop(std::hint::black_box(vec![0u8; 9]))).count_total, 1);
}

#[test]
fn no_policy_allocates_on_one_cpu_or_on_several_preempting_or_not() {
    let policies = [
        PolicySpec::Edf,
        PolicySpec::FixedPriority,
        PolicySpec::RateMonotonic,
        PolicySpec::DeadlineMonotonic,
        PolicySpec::CriticalityMonotonic,
        PolicySpec::Fifo,
        PolicySpec::RoundRobin { quantum: work(3) },
    ];
    for policy in policies {
        for (cpus, preemptive, migration) in [
            (1, true, Migration::Anytime),
            (1, false, Migration::Anytime),
            (2, true, Migration::Anytime),
            (3, true, Migration::JobBoundaries),
            (3, false, Migration::JobBoundaries),
        ] {
            let is_metered = matches!(policy, PolicySpec::RoundRobin { .. });
            if cpus > 1 && is_metered {
                continue;
            }
            // The tree is overbooked, so that backlogs fill and jobs are refused.
            for percent in [80, 150] {
                let root =
                    SchedulerSpec { preemptive, ..SchedulerSpec::new("root", policy.clone()) };
                let mut tree = Tree::new(cpus, root);
                tree.migration = migration;
                let mut sources = Vec::new();
                tasks(&mut tree, &mut sources, Tree::ROOT, 12, percent * u64::from(cpus));
                let name = format!("{} on {cpus} at {percent} %", policy.name());
                assert_eq!(allocated(&name, &tree, sources), 0, "{name}");
            }
        }
    }
}

#[test]
fn no_server_partition_or_table_allocates() {
    for kind in [
        ServerKind::Polling,
        ServerKind::Deferrable,
        ServerKind::Sporadic,
        ServerKind::HardCbs,
        ServerKind::SoftCbs,
    ] {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut sources = Vec::new();
        for (budget, period) in [(20, 100), (30, 90), (10, 40)] {
            let reservation = Some(Reservation::new(kind, work(budget), span(period)));
            let inner = SchedulerSpec {
                reservation,
                ..SchedulerSpec::new("server", PolicySpec::FixedPriority)
            };
            let server = tree.scheduler(Tree::ROOT, inner);
            tasks(&mut tree, &mut sources, server, 4, 30);
        }
        assert_eq!(allocated("servers", &tree, sources), 0, "{kind:?}");
    }
    for lending in [false, true] {
        let slot = |start, end, owner| Slot { start: span(start), end: span(end), owner };
        let slots = vec![slot(0, 20, 0), slot(20, 50, 1), slot(60, 70, 0)];
        let partitions = PolicySpec::Partitions { frame: span(80), slots, lending };
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
        let table = tree.scheduler(Tree::ROOT, SchedulerSpec::new("partitions", partitions));
        let mut sources = Vec::new();
        for policy in [PolicySpec::Edf, PolicySpec::FixedPriority] {
            let partition = tree.scheduler(table, SchedulerSpec::new("partition", policy));
            tasks(&mut tree, &mut sources, partition, 4, 20);
        }
        assert_eq!(allocated("partitions", &tree, sources), 0);
    }
    let entries = vec![
        TableEntry { activates: true, ..TableEntry::new(0, span(0), span(20), 0) },
        TableEntry { activates: true, ..TableEntry::new(1, span(5), span(30), 1) },
    ];
    let mut tree = Tree::new(
        2,
        SchedulerSpec::new("root", PolicySpec::Table { hyperperiod: span(50), entries }),
    );
    let mut sources = Vec::new();
    for most in [18, 30] {
        tree.task(Tree::ROOT, TaskSpec::activated("entry", span(50)));
        sources.push(Source::activated(Cost::Uniform { min: work(1), max: work(most) }));
    }
    assert_eq!(allocated("table", &tree, sources), 0);
}

fn on(gpu: AcceleratorId) -> Version {
    Version { accelerators: vec![gpu], ..Version::new("gpu") }
}

#[test]
fn no_accelerator_resource_or_graph_allocates() {
    for (cpus, protocol) in
        [(1, Protocol::Inheritance), (1, Protocol::Ceiling), (2, Protocol::Inheritance)]
    {
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
        let gpu = tree.accelerator("gpu");
        let lock = tree.resource("lock", protocol);
        let mut sources = Vec::new();
        for number in 0..4 {
            let period = 60 + 17 * number;
            let versions = if number < 2 { vec![on(gpu), Version::new("cpu")] } else { Vec::new() };
            let uses = if number >= 2 { vec![lock] } else { Vec::new() };
            tree.task(
                Tree::ROOT,
                TaskSpec { versions, uses, ..TaskSpec::new("task", span(period)) },
            );
            let cost = Cost::Uniform { min: work(8), max: work(14) };
            let cost = if number >= 2 { cost.locking(lock, work(2), work(6)) } else { cost };
            sources.push(Source { cost, ..Source::periodic(span(period), work(1)) });
        }
        let first = tree.task(Tree::ROOT, TaskSpec::new("first", span(90)));
        let second = tree.task(Tree::ROOT, TaskSpec::node("second"));
        tree.channel(first, second, 3);
        sources.push(periodic(90, 8));
        sources.push(Source::activated(Cost::Uniform { min: work(1), max: work(9) }));
        assert_eq!(allocated("sharing", &tree, sources), 0, "{cpus} {protocol:?}");
    }
}

/// The public path alone, like the benchmark of one decision: the head finishes and returns with
/// another deadline.
#[test]
fn a_decision_allocates_nothing() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    let below = tree.scheduler(Tree::ROOT, SchedulerSpec::new("below", PolicySpec::Edf));
    for number in 0..200 {
        let parent = if number % 2 == 0 { Tree::ROOT } else { below };
        let spec = TaskSpec::new("task", span(1_000 + number));
        tree.task(parent, TaskSpec { affinity: Affinity::ANY, ..spec });
    }
    let mut engine = tree.build().expect("two levels");
    let now = Time::from_ns(1 << 40);
    let info = measure(|| {
        for task in 0..200 {
            let arrival = Time::from_ns(u64::from(task) * 7919 % 1_000 * US);
            let _ = engine.handle(now, Event::Arrived { task: TaskId(task), arrival });
        }
        let mut runs = [TaskId(0); 2];
        for step in 0..10_000u64 {
            while let Some(order) = engine.poll(now) {
                if let Order::Run { cpu: Cpu(cpu), task, .. } = order {
                    runs[cpu as usize] = task;
                }
            }
            let task = runs[(step % 2) as usize];
            let _ = engine.handle(now, Event::Completed { task });
            let arrival = Time::from_ns(step * 7919 % 1_000 * US);
            let _ = engine.handle(now, Event::Arrived { task, arrival });
        }
    });
    assert_eq!(info.count_total, 0);
}
