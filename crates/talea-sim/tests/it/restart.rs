//! Stopping, editing and starting again (Y1, Y14, L23).

use crate::lab::{at, cost, listed, span, task, watch, work, world};
use talea_core::machine::{Body, NodeId, SchedulerSpec, TaskSpec, Tree, Version};
use talea_core::sched::Policy;
use talea_sim::{Counters, Jobs, Source};

#[test]
fn y14_pending_jobs_finish_after_a_stop_and_a_second_start_has_a_new_zero() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
    let gpu = tree.accelerator("gpu");
    let versions = vec![Version { accelerators: vec![gpu], ..Version::new("gpu") }];
    tree.task(Tree::ROOT, TaskSpec { versions, ..TaskSpec::new("a", span(10)) });
    let mut backlogged = TaskSpec::new("b", span(20));
    backlogged.deadline = span(100);
    tree.task(Tree::ROOT, backlogged);
    let sources = [Source::periodic(span(10), work(5)), Source::periodic(span(20), work(15))];
    let mut world = world(&tree, &sources);
    let mut jobs = Jobs::default();
    world.run(at(42), &mut jobs);
    world.stop();
    assert!(!world.machine().is_drained());
    let mut steps = 0;
    while !world.machine().is_drained() && world.advance(&mut jobs) {
        steps += 1;
        assert!(steps < 100, "it ends");
    }
    // All of a's five and b's three jobs that had come by 42, and no other.
    let count = |task: u32| jobs.ended.iter().filter(|job| job.task.0 == task).count();
    assert_eq!((count(0), count(1)), (5, 3));
    assert_eq!(world.machine().accelerator_of(gpu), None);
    assert_eq!(world.next_event(), at(u64::MAX), "nothing is left");

    let mut first = Jobs::default();
    crate::lab::world(&tree, &sources).run(at(42), &mut first);
    let mut again = Jobs::default();
    crate::lab::world(&tree, &sources).run(at(42), &mut again);
    assert_eq!(first, again, "time counts from zero again");
}

#[test]
fn y14_a_hundred_starts_and_stops_are_all_alike() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", Policy::Edf));
    for period in [7, 11, 13] {
        tree.task(Tree::ROOT, TaskSpec::new("t", span(period)));
    }
    let sources = [7, 11, 13].map(|period| Source::periodic(span(period), work(5)));
    let cycle = || {
        let mut world = world(&tree, &sources);
        let mut counters = Counters::new(3);
        world.run(at(100), &mut counters);
        world.stop();
        while !world.machine().is_drained() {
            assert!(world.advance(&mut counters));
        }
        counters
    };
    let first = cycle();
    assert_eq!(first.total().arrived, first.total().completed);
    assert!((1..100).all(|_| cycle() == first));
}

#[test]
fn y14_a_graph_that_was_begun_is_brought_to_its_end() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
    let first = tree.task(Tree::ROOT, TaskSpec::new("first", span(100)));
    let second = tree.task(Tree::ROOT, TaskSpec::node("second"));
    tree.channel(first, second, 0);
    let mut world =
        world(&tree, &[Source::periodic(span(100), work(10)), Source::activated(cost(10))]);
    let mut jobs = Jobs::default();
    world.run(at(105), &mut jobs);
    world.stop();
    while !world.machine().is_drained() && world.advance(&mut jobs) {}
    let ends: Vec<(u32, u64)> =
        jobs.ended.iter().map(|job| (job.task.0, job.end.as_ns())).collect();
    assert_eq!(ends, [(0, 10), (1, 20), (0, 110), (1, 120)]);
}

#[test]
fn y14_channels_are_kept_or_cleared() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", span(100)));
    let sink = tree.task(Tree::ROOT, TaskSpec::node("sink"));
    let channel = tree.channel(source, sink, 3);
    tree.channels[0].tokens = 3;
    let sources = [Source::periodic(span(100), work(10)), Source::activated(cost(10))];
    let mut before = world(&tree, &sources);
    before.run(at(150), &mut ());
    before.stop();
    assert_eq!(before.machine().stored(channel), 2);
    // Cleared: three more jobs of the source until the sink is activated.
    let mut cleared = world(&tree, &sources);
    assert_eq!(watch(&mut cleared, 400).starts(1), [210]);
    // Kept: one more.
    let mut kept = world(&tree, &sources);
    kept.machine_mut().keep_channels(before.machine());
    let log = watch(&mut kept, 400);
    assert_eq!(log.starts(1), [10, 310]);
    // The activation of now, not of then.
    assert_eq!(log.ended.iter().find(|job| job.task.0 == 1).expect("a job").deadline, at(100));
    assert_eq!(kept.machine().traffic(channel).pushed, 4);
}

#[test]
fn y14_what_has_activated_somebody_before_a_stop_activates_nobody_after_it() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", span(100)));
    let sink = tree.task(Tree::ROOT, TaskSpec::node("sink"));
    let channel = tree.channel(source, sink, 3);
    // The sink's jobs take nothing out: data stays in the channel, claimed.
    let sources =
        [Source::periodic(span(100), work(10)), Source::activated(cost(10).popping(channel, &[0]))];
    let mut before = world(&tree, &sources);
    before.run(at(50), &mut ());
    before.stop();
    assert!(before.machine().is_drained());
    assert_eq!(before.machine().stored(channel), 1);
    let mut kept = world(&tree, &sources);
    kept.machine_mut().keep_channels(before.machine());
    assert_eq!(kept.machine().stored(channel), 0);
    assert_eq!(watch(&mut kept, 100).starts(1), [10]);
}

#[test]
fn y1_l23_tasks_and_servers_are_added_removed_and_changed_while_stopped() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::FixedPriority));
    let band = tree.scheduler(Tree::ROOT, SchedulerSpec::new("band", Policy::Edf));
    let a = tree.task(band, TaskSpec { priority: 3, ..task("a", 50) });
    let b = tree.task(Tree::ROOT, TaskSpec { priority: 5, ..task("b", 50) });
    let ends = |tree: &Tree, sources: &[Source]| {
        let mut jobs = Jobs::default();
        world(tree, sources).run(at(1_000), &mut jobs);
        jobs.ended.iter().map(|job| (job.task.0, job.end.as_ns())).collect::<Vec<_>>()
    };
    let one = || listed(&[0], cost(10));
    assert_eq!(ends(&tree, &[one(), one()]), [(1, 10), (0, 20)]);
    // A task more, in the same place; the others keep their nodes.
    let c = tree.task(band, TaskSpec { priority: 9, ..task("c", 20) });
    assert_eq!((a, b, c), (NodeId(2), NodeId(3), NodeId(4)));
    // Tasks are numbered by their nodes: a, b, c.
    assert_eq!(ends(&tree, &[one(), one(), one()]), [(2, 10), (1, 20), (0, 30)]);
    // Another priority.
    if let Some(Body::Task(spec)) = tree.get_mut(b).map(|node| &mut node.body) {
        spec.priority = 1;
    }
    assert_eq!(ends(&tree, &[one(), one(), one()]), [(2, 10), (0, 20), (1, 30)]);
    // A server that is resized, and one that no longer fits.
    if let Some(Body::Scheduler(spec)) = tree.get_mut(band).map(|node| &mut node.body) {
        use talea_core::server::{Kind, Reservation};
        spec.reservation = Some(Reservation::new(Kind::Deferrable, work(5), span(100)));
    }
    assert_eq!(ends(&tree, &[one(), one(), one()]), [(1, 15), (2, 105), (0, 305)]);
    if let Some(Body::Scheduler(spec)) = tree.get_mut(band).map(|node| &mut node.body)
        && let Some(reservation) = &mut spec.reservation
    {
        reservation.budget = work(101);
    }
    assert_eq!(tree.check().expect_err("refused").node, band);
    // The band goes, with everything in it.
    tree.remove(band);
    assert_eq!(tree.nodes().map(|(id, _)| id).collect::<Vec<_>>(), [Tree::ROOT, b]);
    assert_eq!(ends(&tree, &[one()]), [(0, 10)]);
}
