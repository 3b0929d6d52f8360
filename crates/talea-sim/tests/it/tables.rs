//! Off-line tables (Y11, Y12).

use crate::harness::{cost, listed, run, span, work};
use talea_core::engine::{
    Cpu, Notification, SchedulerSpec, TaskId, TaskSpec, Tree, TreeErrorKind, Version,
};
use talea_core::sched::{PolicySpec, TableEntry};
use talea_sim::{Cost, Source};

/// Returns a table for two CPUs with hyperperiod 20 and delay slots between its entries: A (period
/// 10), B and C (period 20).
fn entries() -> Vec<TableEntry> {
    [(0, 2, 5, 0), (0, 12, 15, 0), (0, 6, 11, 1), (1, 0, 4, 2), (1, 15, 16, 1)]
        .map(|(cpu, start, end, owner)| TableEntry::new(cpu, span(start), span(end), owner))
        .into()
}

fn tree(entries: Vec<TableEntry>) -> Tree {
    let table = PolicySpec::Table { hyperperiod: span(20), entries };
    let mut tree = Tree::new(2, SchedulerSpec::new("table", table));
    for (name, period) in [("A", 10), ("B", 20), ("C", 20)] {
        tree.task(Tree::ROOT, TaskSpec::new(name, span(period)));
    }
    tree
}

#[test]
fn y11_jobs_start_exactly_when_the_table_says() {
    let mut plan = entries();
    // B is split: five on CPU 0, one on CPU 1.
    plan[2].continues = true;
    let sources = [
        Source::periodic(span(10), work(3)),
        Source::periodic(span(20), work(6)),
        Source::periodic(span(20), work(4)),
    ];
    let log = run(&tree(plan), &sources, 20_000);
    for k in 0..1_000u64 {
        let zero = 20 * k;
        assert_eq!(log.starts(0)[2 * k as usize..][..2], [zero + 2, zero + 12]);
        assert_eq!(log.ends(0)[2 * k as usize..][..2], [zero + 5, zero + 15]);
        assert_eq!((log.starts(1)[k as usize], log.ends(1)[k as usize]), (zero + 6, zero + 16));
        assert_eq!((log.starts(2)[k as usize], log.ends(2)[k as usize]), (zero, zero + 4));
    }
    assert!(log.notifications.is_empty(), "no overruns");
    let place = |task: u32| {
        log.runs.iter().filter(|run| run.2 == task).map(|run| run.1).collect::<Vec<_>>()
    };
    assert!(place(0).iter().all(|&cpu| cpu == 0) && place(2).iter().all(|&cpu| cpu == 1));
    assert_eq!(place(1)[..4], [0, 1, 0, 1]);
}

#[test]
fn y11_a_table_may_release_the_jobs_that_it_runs() {
    let mut plan = entries();
    for entry in &mut plan {
        entry.activates = true;
    }
    let sources = [3, 1, 4].map(|ns| Source::activated(cost(ns)));
    let log = run(&tree(plan), &sources, 40);
    assert_eq!(
        [log.starts(0), log.starts(1), log.starts(2)],
        [vec![2, 12, 22, 32], vec![6, 15, 26, 35], vec![0, 20]]
    );
    // Deadlines count from the entry.
    assert!(log.ended.iter().all(|job| !job.is_late()
        && job.release.as_ns() == job.end.as_ns() - [3, 1, 4][job.task.0 as usize]));
}

#[test]
fn y11_a_job_that_arrives_within_its_entry_runs_at_once_although_others_wait_for_theirs() {
    // A is always pending, and comes first by arrival and by number.
    let sources = [listed(&[0], cost(40)), listed(&[7, 28], cost(2)), listed(&[1, 23], cost(2))];
    let log = run(&tree(entries()), &sources, 40);
    assert_eq!([log.starts(1), log.starts(2)], [vec![7, 28], vec![1, 23]]);
    // The rest of an entry that ends at 24 is too short by one.
    assert_eq!([log.ends(1), log.ends(2)], [vec![9, 30], vec![3]]);
}

#[test]
fn y11_an_overrun_is_stopped_at_the_end_of_its_entry_reported_and_continues_in_the_next() {
    let sources = [
        Source {
            cost: Cost::List(vec![work(5), work(1), work(3), work(3)]),
            ..Source::periodic(span(10), work(1))
        },
        listed(&[], cost(1)),
        listed(&[], cost(1)),
    ];
    let log = run(&tree(entries()), &sources, 40);
    // Job 0 runs 2-5 and 12-14; job 1 has 14-15; job 2 is in time again.
    assert_eq!(log.ends(0), [14, 15, 25, 35]);
    let overrun = Notification::Overrun { cpu: Cpu(0), task: TaskId(0), job: 0 };
    assert_eq!(log.notifications, [(5, overrun)]);
    assert_eq!(log.runs, [(2, 0, 0), (12, 0, 0), (14, 0, 0), (22, 0, 0), (32, 0, 0)]);
}

#[test]
fn y11_a_late_job_has_the_rest_of_its_entry() {
    let sources = [listed(&[4], cost(2)), listed(&[], cost(1)), listed(&[], cost(1))];
    let log = run(&tree(entries()), &sources, 40);
    assert_eq!((log.starts(0), log.ends(0)), (vec![4], vec![13]));
}

#[test]
fn y12_only_the_preselected_version_runs() {
    let mut plan = entries();
    plan[0].version = Some(1);
    plan[1].version = Some(0);
    plan.truncate(2);
    let mut tree = tree(plan);
    // The table is responsible for accelerators: their availability is not checked.
    let gpu = tree.accelerator("gpu");
    let (_, node) =
        tree.children(Tree::ROOT).next().map(|(id, node)| (id, node.clone())).expect("A");
    let talea_core::engine::NodeSpec::Task(mut spec) = node.spec else { panic!("a task") };
    spec.versions =
        vec![Version::new("cpu"), Version { accelerators: vec![gpu], ..Version::new("gpu") }];
    let a = tree.children(Tree::ROOT).next().expect("A").0;
    tree.get_mut(a).expect("A").spec = talea_core::engine::NodeSpec::Task(spec);
    tree.selection = talea_core::engine::Selection::User(|_| panic!("availability is not checked"));
    let costs = Cost::Versions(vec![cost(3), cost(1)]);
    let sources = [
        Source { cost: costs, ..Source::periodic(span(10), work(1)) },
        listed(&[], cost(1)),
        listed(&[], cost(1)),
    ];
    let log = run(&tree, &sources, 40);
    assert_eq!(log.versions(0), [1, 0, 1, 0]);
    assert_eq!(log.ends(0), [3, 15, 23, 35]);
}

#[test]
fn y11_invalid_tables_are_refused() {
    let refused = |change: &dyn Fn(&mut Vec<TableEntry>)| {
        let mut plan = entries();
        change(&mut plan);
        tree(plan).check().expect_err("refused").kind
    };
    let entry = |cpu, start, end, owner| TableEntry::new(cpu, span(start), span(end), owner);
    assert!(
        matches!(
            refused(&|plan| plan.push(entry(0, 4, 6, 2))),
            TreeErrorKind::TableEntry { index: 5, .. }
        ),
        "overlap on a CPU"
    );
    assert!(
        matches!(
            refused(&|plan| plan.push(entry(1, 4, 6, 0))),
            TreeErrorKind::TableEntry { index: 5, .. }
        ),
        "A twice at once"
    );
    assert!(
        matches!(refused(&|plan| plan.push(entry(2, 0, 1, 0))), TreeErrorKind::TableEntry { .. }),
        "no such CPU"
    );
    assert!(
        matches!(refused(&|plan| plan.push(entry(1, 19, 21, 0))), TreeErrorKind::TableEntry { .. }),
        "beyond the end"
    );
    assert!(
        matches!(refused(&|plan| plan.push(entry(1, 18, 18, 0))), TreeErrorKind::TableEntry { .. }),
        "empty"
    );
    assert!(
        matches!(refused(&|plan| plan.push(entry(1, 18, 19, 7))), TreeErrorKind::SlotOwner { .. }),
        "no owner"
    );
    assert!(
        matches!(refused(&|plan| plan[0].version = Some(0)), TreeErrorKind::TableEntry { .. }),
        "no such version"
    );
    assert!(matches!(refused(&|plan| plan.clear()), TreeErrorKind::ZeroLength(_)));
    let mut below = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let table = PolicySpec::Table { hyperperiod: span(20), entries: vec![entry(0, 0, 1, 0)] };
    let table = below.scheduler(Tree::ROOT, SchedulerSpec::new("table", table));
    below.task(table, TaskSpec::new("t", span(20)));
    assert_eq!(below.check().expect_err("refused").kind, TreeErrorKind::TableNotAtRoot);
}
