//! L3C's example, Fig. 4 of the paper (L-O1).

use talea_core::criteria::Overrides;
use talea_core::engine::{NodeId, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Time, Work};
use talea_sim::{Arrivals, Cost, Jobs, Simulation, Source, Workload};

/// Tenth of the paper's time unit, in nanoseconds.
const TENTH: u64 = 100_000;

fn at(tenths: &[u64]) -> Arrivals {
    Arrivals::List(tenths.iter().map(|&t| Time::from_ns(t * TENTH)).collect())
}

fn span(tenths: u64) -> Span {
    Span::from_ns(tenths * TENTH)
}

fn work(tenths: u64) -> Work {
    Work::from_ns(tenths * TENTH)
}

/// Returns the completion times of A, B and C, in tenths.
fn ends(tree: &Tree, order: [usize; 3]) -> [Vec<u64>; 3] {
    let sources = [
        Source { arrivals: at(&[5, 105]), cost: Cost::Constant(work(10)) },
        Source { arrivals: at(&[0, 80, 160]), cost: Cost::Constant(work(50)) },
        Source { arrivals: at(&[30, 80, 90, 100, 110, 120]), cost: Cost::Constant(work(10)) },
    ];
    let workload =
        Workload { sources: order.iter().map(|&child| sources[child].clone()).collect(), seed: 0 };
    let mut simulation = Simulation::new(tree.build().expect("a tree"), 1, &workload);
    let mut jobs = Jobs::default();
    simulation.run(Time::from_ns(300 * TENTH), &mut jobs);
    let mut all = [vec![], vec![], vec![]];
    for job in jobs.ended {
        all[order[job.task.0 as usize]].push(job.end.as_ns() / TENTH);
    }
    all
}

fn task(name: &str, deadline: u64, priority: u8) -> TaskSpec {
    let mut spec = TaskSpec::new(name, span(deadline));
    spec.priority = priority;
    spec
}

#[test]
fn l7_figure_4a_a_burst_of_low_criticality_starves_the_others() {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let slots = vec![Slot { start: Span::ZERO, end: span(10), owner: 0 }];
    let table = PolicySpec::Partitions { frame: span(10), slots, lending: false };
    let table = tree.scheduler(Tree::ROOT, SchedulerSpec::new("TP_X", table));
    let tp1 = tree.scheduler(table, SchedulerSpec::new("TP_1", PolicySpec::FixedPriority));
    tree.task(Tree::ROOT, task("A", 50, 10));
    tree.task(tp1, task("B", 80, 20));
    tree.task(Tree::ROOT, task("C", 100, 30));
    let [a, b, c] = ends(&tree, [0, 1, 2]);
    assert_eq!(c[0], 40);
    assert_eq!(b[..2], [60, 180]);
    assert_eq!(a[0], 70);
}

fn served(tree: &mut Tree, name: &str, priority: u8, budget: u64) -> NodeId {
    let mut spec = SchedulerSpec::new(name, PolicySpec::Fifo);
    spec.reservation = Some(Reservation::new(ServerKind::Sporadic, work(budget), span(100)));
    let _ = priority;
    tree.scheduler(NodeId(1), spec)
}

#[test]
fn l7_figure_4b_reservations_in_an_edf_band_bound_the_burst() {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let mut band = SchedulerSpec::new("band", PolicySpec::Edf);
    band.overrides = Overrides { priority: Some(30), ..Overrides::default() };
    let band = tree.scheduler(Tree::ROOT, band);
    assert_eq!(band, NodeId(1));
    let slots = vec![Slot { start: Span::ZERO, end: span(10), owner: 0 }];
    let table = PolicySpec::Partitions { frame: span(10), slots, lending: false };
    let table = tree.scheduler(Tree::ROOT, SchedulerSpec::new("TP_X", table));
    let tp1 = tree.scheduler(table, SchedulerSpec::new("TP_1", PolicySpec::FixedPriority));
    let (a, c) = (served(&mut tree, "A", 30, 20), served(&mut tree, "C", 30, 10));
    tree.task(a, task("A", 50, 0));
    tree.task(tp1, task("B", 80, 20));
    tree.task(c, task("C", 100, 0));
    let [a, b, c] = ends(&tree, [0, 1, 2]);
    assert_eq!(a[0], 15);
    assert_eq!(c[..3], [40, 140, 240]);
    assert_eq!(b[..2], [70, 150]);
}
