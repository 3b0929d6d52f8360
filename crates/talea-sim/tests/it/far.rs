//! Times as far away as they may be: nothing overflows, and what is later than any run does not
//! happen.

use crate::lab::{cost, listed, run, span, task, watch, work, world};
use talea_core::Time;
use talea_core::machine::{LONGEST, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{Policy, Slot};
use talea_core::server::{Kind, Reservation};

const MS: u64 = 1_000_000;
const YEAR: u64 = 31_536_000_000 * MS;

#[test]
fn l5_a_soft_server_may_go_through_centuries_in_a_second() {
    // 1 ms in a year, and a job of 1 s: its deadline moves by a year a thousand times, which is
    // twice as far as time goes.
    for deadline in [YEAR, 2 * MS] {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::Edf));
        let mut spec = SchedulerSpec::new("s", Policy::Edf);
        let reservation = Reservation::new(Kind::SoftCbs, work(MS), span(YEAR));
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
fn jobs_that_have_to_keep_a_distance_of_years_may_queue_up() {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::Edf));
    let mut spec = TaskSpec::new("a", span(10 * YEAR));
    (spec.enforced, spec.backlog.capacity) = (true, 100);
    tree.task(Tree::ROOT, spec);
    let mut world = world(&tree, &[listed(&[0; 65], cost(10 * MS))]);
    // Twice as long as a run may be.
    let log = watch(&mut world, 2 * LONGEST.as_ns());
    assert!(log.refused.is_empty());
    // Each in its time; the others are later than any run, and ask for no timer.
    let ends: Vec<u64> = (0..15).map(|job| job * 10 * YEAR + 10 * MS).collect();
    assert_eq!(log.ends(0), ends);
    assert_eq!(world.next_event(), Time::NEVER);
}

#[test]
fn l1_a_frame_may_be_as_long_as_a_run() {
    let slots = vec![Slot { start: span(0), end: LONGEST, owner: 0 }];
    let policy = Policy::Partitions { frame: LONGEST, slots, lending: false };
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
    let mut spec = TaskSpec::new("a", LONGEST);
    spec.deadline = LONGEST;
    tree.task(Tree::ROOT, spec);
    let log = run(&tree, &[listed(&[0, LONGEST.as_ns() - MS], cost(MS))], LONGEST.as_ns() + 1);
    assert_eq!(log.ends(0), [MS, LONGEST.as_ns()]);
}
