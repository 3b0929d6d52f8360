//! CPU assignment when a job blocks before its start or suspends itself (docs/model.md, sections 1
//! and 4).

use crate::harness::{cost, listed, run, span, task, work};
use talea_core::engine::{AcceleratorId, Migration, SchedulerSpec, TaskSpec, Tree, Version};
use talea_core::sched::PolicySpec;
use talea_sim::Source;

fn needs(gpu: AcceleratorId) -> Vec<Version> {
    vec![Version { accelerators: vec![gpu], ..Version::new("gpu") }]
}

fn nonpreemptive(cpus: u32) -> Tree {
    let mut root = SchedulerSpec::new("root", PolicySpec::Edf);
    root.preemptive = false;
    Tree::new(cpus, root)
}

/// Builds a nonpreemptive root.
///
/// L acquires the accelerator at 0 and is suspended from 1 to 61. At 2, a, b and X arrive. The
/// tasks a and b are below the scheduler g. Task a is the most urgent and needs the accelerator. X
/// is more urgent than b.
fn blocked_before_start(cpus: u32) -> (Tree, Vec<Source>) {
    let mut tree = nonpreemptive(cpus);
    let gpu = tree.accelerator("gpu");
    let group = tree.scheduler(Tree::ROOT, SchedulerSpec::new("g", PolicySpec::Edf));
    tree.task(Tree::ROOT, TaskSpec { versions: needs(gpu), ..task("L", 1_000) });
    tree.task(group, TaskSpec { versions: needs(gpu), ..task("a", 10) });
    tree.task(group, task("b", 100));
    tree.task(Tree::ROOT, task("X", 20));
    let sources = vec![
        listed(&[0], cost(4).suspending(work(1), span(60))),
        listed(&[2], cost(1)),
        listed(&[2], cost(30)),
        listed(&[2], cost(5)),
    ];
    (tree, sources)
}

#[test]
fn s13_a_job_blocked_before_its_start_holds_no_scheduler() {
    let (tree, sources) = blocked_before_start(1);
    let log = run(&tree, &sources, 1_000);
    assert_eq!([log.ends(3), log.ends(2), log.ends(0), log.ends(1)], [[7], [37], [64], [65]]);
}

#[test]
fn s13_on_two_cpus_a_job_blocked_before_its_start_keeps_no_cpu() {
    let (mut tree, mut sources) = blocked_before_start(2);
    tree.task(Tree::ROOT, task("F", 5));
    sources.push(listed(&[0], cost(500)));
    let log = run(&tree, &sources, 1_000);
    assert_eq!([log.ends(3), log.ends(2), log.ends(0), log.ends(1)], [[7], [37], [64], [65]]);
}

#[test]
fn s13_a_job_that_suspends_itself_holds_no_scheduler() {
    for cpus in [1, 2] {
        let mut tree = nonpreemptive(cpus);
        let group = tree.scheduler(Tree::ROOT, SchedulerSpec::new("g", PolicySpec::Edf));
        tree.task(group, task("a", 10));
        tree.task(group, task("b", 100));
        tree.task(Tree::ROOT, task("X", 20));
        let mut sources = vec![
            listed(&[0], cost(2).suspending(work(1), span(5))),
            listed(&[0], cost(30)),
            listed(&[0], cost(5)),
        ];
        if cpus == 2 {
            tree.task(Tree::ROOT, task("F", 5));
            sources.push(listed(&[0], cost(500)));
        }
        // a 0-1, X 1-6, a 6-7, b 7-37: no job of b had started when a suspended itself.
        let log = run(&tree, &sources, 1_000);
        assert_eq!([log.ends(2), log.ends(0), log.ends(1)], [[6], [7], [37]], "{cpus} CPUs");
    }
}

#[test]
fn y5_a_job_that_lost_its_cpu_before_its_start_may_start_on_another() {
    // H has the accelerator, L the other CPU. At 2 arrive M, the most urgent, which needs the
    // accelerator, and C. M is assigned one CPU and C the other. Then M blocks, and H, with M's
    // key, returns to the CPU that it is bound to.
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.migration = Migration::JobBoundaries;
    let gpu = tree.accelerator("gpu");
    tree.task(Tree::ROOT, task("L", 90));
    tree.task(Tree::ROOT, TaskSpec { versions: needs(gpu), ..task("H", 80) });
    tree.task(Tree::ROOT, task("C", 40));
    tree.task(Tree::ROOT, TaskSpec { versions: needs(gpu), ..task("M", 30) });
    let sources = [
        listed(&[0], cost(20)),
        listed(&[0], cost(20)),
        listed(&[2], cost(5)),
        listed(&[2], cost(3)),
    ];
    let log = run(&tree, &sources, 1_000);
    assert_eq!([log.ends(2), log.ends(1), log.ends(3), log.ends(0)], [[7], [20], [23], [25]]);
}
