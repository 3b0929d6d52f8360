//! Neither engine nor simulator allocates between start and stop (Y19), with all features of
//! YASMIN's tasks.

use crate::harness::{at, simulation, span, work};
use crate::mixtures::{Everything, changes, everything};
use allocation_counter::measure;
use talea_core::engine::{Cpu, SchedulerSpec, TaskId, TaskSpec, Tree, Version};
use talea_core::sched::{PolicySpec, TableEntry};
use talea_sim::rng::Rng;
use talea_sim::{Cost, Counters, Overheads, Simulation, Source};

/// Runs a simulation, stops its arrivals, completes the pending jobs, and returns the number of
/// allocations.
fn asked(mut simulation: Simulation, until: u64) -> u64 {
    let tasks = simulation.engine().tasks();
    let mut counters = Counters::new(tasks);
    let asked = measure(|| {
        simulation.run(at(until), &mut counters);
        simulation.stop();
        simulation.run(at(4 * until), &mut counters);
    });
    let asked = asked.count_total;
    let total = counters.total();
    assert!(total.completed > 0, "something has happened");
    asked
}

#[test]
fn y19_versions_accelerators_resources_graphs_and_servers_run_without_allocating() {
    let mut rng = Rng::new(19);
    for case in 0..400 {
        let Everything { tree, sources, .. } = everything(&mut rng);
        let mut simulation = simulation(&tree, &sources).with_condition_changes(changes());
        if rng.below(3) == 0 {
            let overheads = Overheads {
                release: span(1),
                switch: span(1),
                migration: span(1),
                ..Overheads::default()
            };
            simulation = simulation
                .with_overheads(overheads)
                .with_stalls(Cpu(0), vec![(at(5), at(9)), (at(30), at(42))]);
        }
        assert_eq!(asked(simulation, 120), 0, "case {case}: {tree:#?}");
    }
}

#[test]
fn y19_off_line_tables_run_without_allocating() {
    let entry = |(cpu, start, end, owner, version)| TableEntry {
        version,
        activates: true,
        ..TableEntry::new(cpu, span(start), span(end), owner)
    };
    let entries =
        [(0, 2, 5, 0, Some(1)), (0, 12, 15, 0, Some(0)), (1, 0, 4, 1, None)].map(entry).into();
    let table = PolicySpec::Table { hyperperiod: span(20), entries };
    let mut tree = Tree::new(2, SchedulerSpec::new("table", table));
    let versions = vec![Version::new("quick"), Version::new("slow")];
    tree.task(Tree::ROOT, TaskSpec { versions, ..TaskSpec::new("a", span(10)) });
    tree.task(Tree::ROOT, TaskSpec::new("b", span(20)));
    // The slow version overruns, which is reported each time.
    let both = Cost::Versions(vec![Cost::Constant(work(3)), Cost::Constant(work(4))]);
    let sources = [Source::activated(both), Source::activated(Cost::Constant(work(4)))];
    assert_eq!(asked(simulation(&tree, &sources), 10_000), 0);
}

#[test]
fn y19_explicitly_activated_jobs_run_without_allocating() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.task(Tree::ROOT, TaskSpec::activated("now and then", span(10)));
    let mut simulation = simulation(&tree, &[Source::activated(Cost::Constant(work(3)))]);
    let mut counters = Counters::new(1);
    let asked = measure(|| {
        for time in (5..5_000).step_by(7) {
            simulation.run(at(time), &mut counters);
            simulation.activate(TaskId(0));
        }
    });
    assert_eq!((asked.count_total, counters.total().completed), (0, 713));
}
