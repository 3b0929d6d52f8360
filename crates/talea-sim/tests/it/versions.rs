//! Versions and accelerators (Y6, Y7).

use crate::harness::{at, cost, listed, run, run_audited, simulation, span, task, work};
use talea_core::engine::{
    AcceleratorId, Affinity, Condition, NodeId, NodeSpec, SchedulerSpec, Selection, TaskSpec, Tree,
    Version,
};
use talea_core::sched::PolicySpec;
use talea_sim::{Cost, Source};

fn version(name: &str, accelerators: &[AcceleratorId]) -> Version {
    Version { accelerators: accelerators.into(), ..Version::new(name) }
}

fn periodic(period: u64, costs: &[u64]) -> Source {
    Source {
        cost: Cost::Versions(costs.iter().map(|&ns| cost(ns)).collect()),
        ..Source::periodic(span(period), work(1))
    }
}

/// Builds an EDF root on one CPU with one task of period 100 and two versions, which `change`
/// modifies.
fn two_versions(selection: Selection, change: impl Fn(&mut [Version; 2])) -> Tree {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.selection = selection;
    let mut versions = [Version::new("v1"), Version::new("v2")];
    change(&mut versions);
    tree.task(Tree::ROOT, TaskSpec { versions: versions.into(), ..TaskSpec::new("a", span(100)) });
    tree
}

#[test]
fn y6_a_falling_battery_changes_the_version_of_later_jobs() {
    // Listing 2 of the paper: budgets 5 and 12.
    let tree = two_versions(Selection::Energy, |versions| {
        (versions[0].energy, versions[1].energy) = (5, 12);
    });
    let falls =
        (0..=10).map(|step| (at(100 * step), Condition::Battery(100 - 10 * step))).collect();
    let mut simulation =
        simulation(&tree, &[periodic(100, &[10, 20])]).with_condition_changes(falls);
    let log = run_audited(&mut simulation, 1_100);
    // 100, 90, .. 20 hold 12; 10 holds 5; 0 holds none of them: the smallest is chosen.
    assert_eq!(log.versions(0), [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(log.ends(0)[..2], [20, 120]);
    assert_eq!(log.ends(0)[9..], [910, 1_010]);
}

#[test]
fn y6_mode_and_mask_change_during_the_run_and_a_job_keeps_its_version() {
    let tree = two_versions(Selection::Mode, |versions| {
        (versions[0].modes, versions[1].modes) = (0b01, 0b10);
    });
    let flips = vec![(at(105), Condition::Mode(1)), (at(300), Condition::Mode(0))];
    let mut all = simulation(&tree, &[periodic(100, &[10, 20])]).with_condition_changes(flips);
    let log = run_audited(&mut all, 400);
    assert_eq!(log.versions(0), [0, 0, 1, 0]);
    assert_eq!(log.ends(0), [10, 110, 220, 310]);

    let tree = two_versions(Selection::Mask, |versions| versions[0].needs = 0b100);
    let flips = vec![(at(50), Condition::Permitted(0b011)), (at(250), Condition::Permitted(0b110))];
    let mut all = simulation(&tree, &[periodic(100, &[10, 20])]).with_condition_changes(flips);
    assert_eq!(run_audited(&mut all, 400).versions(0), [0, 1, 1, 0]);
}

#[test]
fn y6_a_trade_off_and_a_function_choose_too() {
    for (weight, expected) in [(0, 0), (1_000, 1)] {
        let tree = two_versions(Selection::TradeOff { weight }, |versions| {
            (versions[0].energy, versions[0].time) = (9, work(10));
            (versions[1].energy, versions[1].time) = (4, work(20));
        });
        assert_eq!(run(&tree, &[periodic(100, &[10, 20])], 100).versions(0), [expected]);
    }
    let tree = two_versions(Selection::User(|of| Some((of.job % 2) as u32)), |_| {});
    assert_eq!(run(&tree, &[periodic(100, &[10, 20])], 400).versions(0), [0, 1, 0, 1]);
}

#[test]
fn y6_the_version_is_chosen_at_the_first_dispatch_and_survives_preemption() {
    let mut tree = two_versions(Selection::Mode, |versions| {
        (versions[0].modes, versions[1].modes) = (0b01, 0b10);
    });
    tree.task(Tree::ROOT, task("urgent", 30));
    // Released at 0 in mode 0, dispatched at 5 in mode 1; preempted at 10, mode 0 again, resumed at
    // 15.
    let sources = [periodic(100, &[10, 20]), listed(&[0, 10], cost(5))];
    let flips = vec![(at(2), Condition::Mode(1)), (at(12), Condition::Mode(0))];
    let mut all = simulation(&tree, &sources).with_condition_changes(flips);
    let log = run_audited(&mut all, 100);
    assert_eq!(log.versions(0), [1]);
    assert_eq!(log.ends(0), [30]);
}

/// Y-O3: simulates A and B, P 100, D 55. A: CPU 70 / GPU 30; B: CPU 50 / GPU 30.
fn oracle_3(has_cpu: bool, has_gpu: bool) -> ([u64; 2], usize) {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    let gpu = tree.accelerator("gpu");
    let mut sources = Vec::new();
    for (name, on_cpu) in [("A", 70), ("B", 50)] {
        let (mut versions, mut costs) = (Vec::new(), Vec::new());
        if has_gpu {
            versions.push(version("gpu", &[gpu]));
            costs.push(30);
        }
        if has_cpu {
            versions.push(version("cpu", &[]));
            costs.push(on_cpu);
        }
        let mut spec = TaskSpec::new(name, span(100));
        (spec.deadline, spec.versions) = (span(55), versions);
        tree.task(Tree::ROOT, spec);
        sources.push(periodic(100, &costs));
    }
    let log = run(&tree, &sources, 100);
    ([log.ends(0)[0], log.ends(1)[0]], log.late())
}

#[test]
fn y7_oracle_3_with_cpu_with_gpu_and_with_both() {
    assert_eq!(oracle_3(true, false), ([70, 50], 1));
    assert_eq!(oracle_3(false, true), ([30, 60], 1));
    assert_eq!(oracle_3(true, true), ([30, 50], 0));
}

#[test]
fn y7_of_two_simultaneous_jobs_the_more_urgent_selects_first() {
    for deadlines in [[90, 40], [40, 90]] {
        let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
        let gpu = tree.accelerator("gpu");
        for deadline in deadlines {
            let versions = vec![version("gpu", &[gpu]), version("cpu", &[])];
            tree.task(Tree::ROOT, TaskSpec { versions, ..task("t", deadline) });
        }
        let source = listed(&[0], Cost::Versions(vec![cost(10), cost(30)]));
        let log = run(&tree, &[source.clone(), source.clone()], 1_000);
        let urgent = u32::from(deadlines[1] < deadlines[0]);
        assert_eq!((log.versions(urgent), log.versions(1 - urgent)), (vec![0], vec![1]));
        // Also if the more urgent job is on the later CPU.
        for (node, cpu) in [(NodeId(1), urgent == 0), (NodeId(2), urgent == 1)] {
            if let Some(NodeSpec::Task(spec)) = tree.get_mut(node).map(|node| &mut node.spec) {
                spec.affinity = Affinity::only(u32::from(cpu));
            }
        }
        let log = run(&tree, &[source.clone(), source], 1_000);
        assert_eq!(log.begins.iter().find(|begin| begin.task == urgent).expect("it begins").cpu, 1);
        assert_eq!((log.versions(urgent), log.versions(1 - urgent)), (vec![0], vec![1]));
    }
}

#[test]
fn y7_accelerators_are_taken_all_or_none_and_held_through_preemption_and_suspension() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let (gpu, dsp) = (tree.accelerator("gpu"), tree.accelerator("dsp"));
    let spec = |name: &str, deadline, accelerators: &[AcceleratorId]| TaskSpec {
        versions: vec![version("it", accelerators)],
        ..task(name, deadline)
    };
    tree.task(Tree::ROOT, spec("both", 50, &[gpu, dsp]));
    tree.task(Tree::ROOT, spec("gpu", 60, &[gpu]));
    tree.task(Tree::ROOT, spec("dsp", 100, &[dsp]));
    // dsp acquires its accelerator at 0 and suspends itself at 5 for 20; both arrives at 2 and can
    // have neither; gpu arrives at 10, when gpu is free although both waits for it.
    let sources = [
        listed(&[2], cost(10)),
        listed(&[10], cost(10)),
        listed(&[0], cost(8).suspending(work(5), span(20))),
    ];
    let mut all = simulation(&tree, &sources);
    let log = run_audited(&mut all, 1_000);
    assert_eq!(log.starts(1), [10]);
    assert_eq!(log.ends(1), [20]);
    assert_eq!(log.ends(2), [28]);
    assert_eq!((log.starts(0), log.ends(0)), (vec![28], vec![38]));
    assert_eq!(all.engine().accelerator_holder(gpu), None);
    assert_eq!(all.engine().accelerator_holder(dsp), None);
}
