//! Maximal times: nothing overflows, and an event later than any run does not occur.

use crate::harness::{cost, listed, run, run_audited, simulation, span, task, work};
use talea_core::Time;
use talea_core::engine::{MAX_RUN, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};

const MS: u64 = 1_000_000;
const YEAR: u64 = 31_536_000_000 * MS;

#[test]
fn l5_a_soft_server_may_advance_by_centuries_in_a_second() {
    // 1 ms in a year, and a job of 1 s: its deadline moves by a year a thousand times, twice the
    // range of time.
    for deadline in [YEAR, 2 * MS] {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
        let mut spec = SchedulerSpec::new("s", PolicySpec::Edf);
        let reservation = Reservation::new(ServerKind::SoftCbs, work(MS), span(YEAR));
        spec.reservation = Some(Reservation { deadline: Some(span(deadline)), ..reservation });
        let server = tree.scheduler(Tree::ROOT, spec);
        tree.task(server, task("a", 2_000 * MS));
        tree.task(Tree::ROOT, task("b", 2_000 * MS));
        let sources =
            [listed(&[0, 1_500 * MS], cost(1_000 * MS)), listed(&[500 * MS], cost(10 * MS))];
        let log = run(&tree, &sources, 4_000 * MS);
        assert_eq!((log.ends(0), log.ends(1)), (vec![1_010 * MS, 2_500 * MS], vec![510 * MS]));
    }
}

#[test]
fn jobs_with_a_separation_of_years_may_queue_up() {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
    let mut spec = TaskSpec::new("a", span(10 * YEAR));
    (spec.enforced, spec.backlog.capacity) = (true, 100);
    tree.task(Tree::ROOT, spec);
    let mut simulation = simulation(&tree, &[listed(&[0; 65], cost(10 * MS))]);
    // Twice the maximum length of a run.
    let log = run_audited(&mut simulation, 2 * MAX_RUN.as_ns());
    assert!(log.refused.is_empty());
    // Each job at its time; the others are later than any run, and set no timer.
    let ends: Vec<u64> = (0..15).map(|job| job * 10 * YEAR + 10 * MS).collect();
    assert_eq!(log.ends(0), ends);
    assert_eq!(simulation.next_event(), Time::NEVER);
}

#[test]
fn l1_a_frame_may_be_as_long_as_a_run() {
    let slots = vec![Slot { start: span(0), end: MAX_RUN, owner: 0 }];
    let policy = PolicySpec::Partitions { frame: MAX_RUN, slots, lending: false };
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
    let mut spec = TaskSpec::new("a", MAX_RUN);
    spec.deadline = MAX_RUN;
    tree.task(Tree::ROOT, spec);
    let log = run(&tree, &[listed(&[0, MAX_RUN.as_ns() - MS], cost(MS))], MAX_RUN.as_ns() + 1);
    assert_eq!(log.ends(0), [MS, MAX_RUN.as_ns()]);
}
