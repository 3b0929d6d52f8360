//! Stop, edit and restart (Y1, Y14, L23).

use crate::harness::{at, cost, listed, run_audited, simulation, span, task, work};
use talea_core::engine::{NodeId, NodeSpec, SchedulerSpec, TaskSpec, Tree, Version};
use talea_core::sched::PolicySpec;
use talea_sim::{Counters, Jobs, Source};

#[test]
fn y14_pending_jobs_complete_after_a_stop_and_a_second_start_has_a_new_zero() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let gpu = tree.accelerator("gpu");
    let versions = vec![Version { accelerators: vec![gpu], ..Version::new("gpu") }];
    tree.task(Tree::ROOT, TaskSpec { versions, ..TaskSpec::new("a", span(10)) });
    let mut backlogged = TaskSpec::new("b", span(20));
    backlogged.deadline = span(100);
    tree.task(Tree::ROOT, backlogged);
    let sources = [Source::periodic(span(10), work(5)), Source::periodic(span(20), work(15))];
    let mut simulation = simulation(&tree, &sources);
    let mut jobs = Jobs::default();
    simulation.run(at(42), &mut jobs);
    simulation.stop();
    assert!(!simulation.engine().is_drained());
    let mut steps = 0;
    while !simulation.engine().is_drained() && simulation.advance(&mut jobs) {
        steps += 1;
        assert!(steps < 100, "it ends");
    }
    // All five of a's and three of b's jobs that had arrived by 42, and no other.
    let count = |task: u32| jobs.ended.iter().filter(|job| job.task.0 == task).count();
    assert_eq!((count(0), count(1)), (5, 3));
    assert_eq!(simulation.engine().accelerator_holder(gpu), None);
    assert_eq!(simulation.next_event(), at(u64::MAX), "nothing is left");

    let mut first = Jobs::default();
    crate::harness::simulation(&tree, &sources).run(at(42), &mut first);
    let mut again = Jobs::default();
    crate::harness::simulation(&tree, &sources).run(at(42), &mut again);
    assert_eq!(first, again, "time counts from zero again");
}

#[test]
fn y14_a_hundred_starts_and_stops_are_all_alike() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    for period in [7, 11, 13] {
        tree.task(Tree::ROOT, TaskSpec::new("t", span(period)));
    }
    let sources = [7, 11, 13].map(|period| Source::periodic(span(period), work(5)));
    let cycle = || {
        let mut simulation = simulation(&tree, &sources);
        let mut counters = Counters::new(3);
        simulation.run(at(100), &mut counters);
        simulation.stop();
        while !simulation.engine().is_drained() {
            assert!(simulation.advance(&mut counters));
        }
        counters
    };
    let first = cycle();
    assert_eq!(first.total().arrived, first.total().completed);
    assert!((1..100).all(|_| cycle() == first));
}

#[test]
fn y14_a_started_graph_activation_is_completed() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let first = tree.task(Tree::ROOT, TaskSpec::new("first", span(100)));
    let second = tree.task(Tree::ROOT, TaskSpec::node("second"));
    tree.channel(first, second, 0);
    let mut simulation =
        simulation(&tree, &[Source::periodic(span(100), work(10)), Source::activated(cost(10))]);
    let mut jobs = Jobs::default();
    simulation.run(at(105), &mut jobs);
    simulation.stop();
    while !simulation.engine().is_drained() && simulation.advance(&mut jobs) {}
    let ends: Vec<(u32, u64)> =
        jobs.ended.iter().map(|job| (job.task.0, job.end.as_ns())).collect();
    assert_eq!(ends, [(0, 10), (1, 20), (0, 110), (1, 120)]);
}

#[test]
fn y14_channels_are_kept_or_cleared() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", span(100)));
    let sink = tree.task(Tree::ROOT, TaskSpec::node("sink"));
    let channel = tree.channel(source, sink, 3);
    tree.channels[0].tokens = 3;
    let sources = [Source::periodic(span(100), work(10)), Source::activated(cost(10))];
    let mut before = simulation(&tree, &sources);
    before.run(at(150), &mut ());
    before.stop();
    assert_eq!(before.engine().stored(channel), 2);
    // Cleared: three more jobs of the source until the sink is activated.
    let mut cleared = simulation(&tree, &sources);
    assert_eq!(run_audited(&mut cleared, 400).starts(1), [210]);
    // Kept: one more job.
    let mut kept = simulation(&tree, &sources);
    kept.engine_mut().keep_tokens(&[before.engine().unclaimed(channel)]);
    let log = run_audited(&mut kept, 400);
    assert_eq!(log.starts(1), [10, 310]);
    // The activation of this run, not of the previous one.
    assert_eq!(log.ended.iter().find(|job| job.task.0 == 1).expect("a job").deadline, at(100));
    assert_eq!(kept.engine().traffic(channel).pushed, 4);
}

#[test]
fn y14_a_token_that_activated_a_job_before_a_stop_activates_none_after_it() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", span(100)));
    let sink = tree.task(Tree::ROOT, TaskSpec::node("sink"));
    let channel = tree.channel(source, sink, 3);
    // The sink's jobs pop nothing: data stays in the channel, claimed.
    let sources =
        [Source::periodic(span(100), work(10)), Source::activated(cost(10).popping(channel, &[0]))];
    let mut before = simulation(&tree, &sources);
    before.run(at(50), &mut ());
    before.stop();
    assert!(before.engine().is_drained());
    assert_eq!(before.engine().stored(channel), 1);
    let mut kept = simulation(&tree, &sources);
    kept.engine_mut().keep_tokens(&[before.engine().unclaimed(channel)]);
    assert_eq!(kept.engine().stored(channel), 0);
    assert_eq!(run_audited(&mut kept, 100).starts(1), [10]);
}

#[test]
fn y1_l23_tasks_and_servers_are_added_removed_and_changed_while_stopped() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let band = tree.scheduler(Tree::ROOT, SchedulerSpec::new("band", PolicySpec::Edf));
    let a = tree.task(band, TaskSpec { priority: 3, ..task("a", 50) });
    let b = tree.task(Tree::ROOT, TaskSpec { priority: 5, ..task("b", 50) });
    let ends = |tree: &Tree, sources: &[Source]| {
        let mut jobs = Jobs::default();
        simulation(tree, sources).run(at(1_000), &mut jobs);
        jobs.ended.iter().map(|job| (job.task.0, job.end.as_ns())).collect::<Vec<_>>()
    };
    let one = || listed(&[0], cost(10));
    assert_eq!(ends(&tree, &[one(), one()]), [(1, 10), (0, 20)]);
    // One more task in the same place; the others keep their nodes.
    let c = tree.task(band, TaskSpec { priority: 9, ..task("c", 20) });
    assert_eq!((a, b, c), (NodeId(2), NodeId(3), NodeId(4)));
    // Tasks are numbered by their nodes: a, b, c.
    assert_eq!(ends(&tree, &[one(), one(), one()]), [(2, 10), (1, 20), (0, 30)]);
    // A changed priority.
    if let Some(NodeSpec::Task(spec)) = tree.get_mut(b).map(|node| &mut node.spec) {
        spec.priority = 1;
    }
    assert_eq!(ends(&tree, &[one(), one(), one()]), [(2, 10), (0, 20), (1, 30)]);
    // A resized server, and one that no longer fits.
    if let Some(NodeSpec::Scheduler(spec)) = tree.get_mut(band).map(|node| &mut node.spec) {
        use talea_core::server::{Reservation, ServerKind};
        spec.reservation = Some(Reservation::new(ServerKind::Deferrable, work(5), span(100)));
    }
    assert_eq!(ends(&tree, &[one(), one(), one()]), [(1, 15), (2, 105), (0, 305)]);
    if let Some(NodeSpec::Scheduler(spec)) = tree.get_mut(band).map(|node| &mut node.spec)
        && let Some(reservation) = &mut spec.reservation
    {
        reservation.budget = work(101);
    }
    assert_eq!(tree.check().expect_err("refused").node, band);
    // The band is removed, with everything in it.
    tree.remove(band);
    assert_eq!(tree.nodes().map(|(id, _)| id).collect::<Vec<_>>(), [Tree::ROOT, b]);
    assert_eq!(ends(&tree, &[one()]), [(0, 10)]);
}
