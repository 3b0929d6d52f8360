//! Task graphs and channels (Y9, Y10).

use crate::harness::{at, cost, listed, run, run_audited, simulation, span, task, work};
use std::collections::BTreeMap;
use talea_core::engine::{
    Affinity, ChannelId, NodeId, Notification, SchedulerSpec, TaskId, TaskSpec, Traffic, Tree,
    TreeErrorKind, Version,
};
use talea_core::sched::PolicySpec;
use talea_sim::rng::Rng;
use talea_sim::{Cost, Jobs, Source};

/// Y-O5: builds a graph of fork 10, left 60 / 20 with an accelerator, right 40, join 10. The tokens
/// carry no data.
fn fork_join(cpus: u32) -> (Tree, [NodeId; 4]) {
    let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
    let gpu = tree.accelerator("rng");
    let fork = tree.task(Tree::ROOT, TaskSpec::new("fork", span(250)));
    let versions =
        vec![Version::new("v1"), Version { accelerators: vec![gpu], ..Version::new("v2") }];
    let left = tree.task(Tree::ROOT, TaskSpec { versions, ..TaskSpec::node("left") });
    let right = tree.task(Tree::ROOT, TaskSpec::node("right"));
    let join = tree.task(Tree::ROOT, TaskSpec::node("join"));
    for (from, to) in [(fork, left), (fork, right), (left, join), (right, join)] {
        tree.channel(from, to, 0);
    }
    (tree, [fork, left, right, join])
}

fn fork_join_sources() -> [Source; 4] {
    let left = Cost::Versions(vec![cost(60), cost(20)]);
    [
        Source::periodic(span(250), work(10)),
        Source::activated(left),
        Source::activated(cost(40)),
        Source::activated(cost(10)),
    ]
}

#[test]
fn y9_oracle_5_ends_at_80_and_with_the_accelerator_at_60() {
    use talea_core::engine::Selection;
    let (mut tree, _) = fork_join(2);
    for (selection, expected) in [(Selection::Declared, 80), (Selection::User(|_| Some(1)), 60)] {
        tree.selection = selection;
        let log = run(&tree, &fork_join_sources(), 1_000);
        assert_eq!(log.ends(3), [expected, expected + 250, expected + 500, expected + 750]);
        // The deadline is that of the activation.
        let deadlines: Vec<u64> = log
            .ended
            .iter()
            .filter(|job| job.task.0 == 3)
            .map(|job| job.deadline.as_ns())
            .collect();
        assert_eq!(deadlines, [250, 500, 750, 1_000]);
        assert_eq!(log.late(), 0);
    }
}

#[test]
fn y9_nodes_have_the_priority_of_their_root_unless_they_have_their_own() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let root = tree.task(Tree::ROOT, TaskSpec { priority: 9, ..task("root", 500) });
    let low = tree.task(Tree::ROOT, TaskSpec { priority: 3, ..task("own", 500) });
    let high = tree.task(Tree::ROOT, TaskSpec::node("inherits"));
    tree.task(Tree::ROOT, TaskSpec { priority: 5, ..task("other", 500) });
    tree.channel(root, low, 0);
    tree.channel(root, high, 0);
    let node = || Source::activated(cost(10));
    let log = run(&tree, &[listed(&[0], cost(10)), node(), node(), listed(&[0], cost(10))], 100);
    assert_eq!([log.ends(0), log.ends(2), log.ends(3), log.ends(1)], [[10], [20], [30], [40]]);
}

#[test]
fn y9_an_activation_takes_the_tokens_it_was_declared_with() {
    // right pushes two tokens per job and join takes two (the paper's rj); a slow sink takes three.
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", span(100)));
    let pairs = tree.task(Tree::ROOT, TaskSpec::node("pairs"));
    let slow = tree.task(Tree::ROOT, TaskSpec::node("slow"));
    let two = tree.channel(source, pairs, 2);
    let three = tree.channel(source, slow, 3);
    tree.channels[two.0 as usize].tokens = 2;
    tree.channels[three.0 as usize].tokens = 3;
    let sources = [
        Source { cost: cost(10).pushing(two, &[2]), ..Source::periodic(span(100), work(10)) },
        Source::activated(cost(5)),
        Source::activated(cost(5)),
    ];
    let mut simulation = simulation(&tree, &sources);
    let log = run_audited(&mut simulation, 600);
    assert_eq!(log.starts(1), [10, 110, 210, 310, 410, 510]);
    // The deadline is that of the last of the three.
    assert_eq!(log.starts(2), [215, 515]);
    assert!(
        log.ended
            .iter()
            .filter(|job| job.task.0 == 2)
            .all(|job| [300, 600].contains(&job.deadline.as_ns()))
    );
    let traffic = simulation.engine().traffic(two);
    assert_eq!(traffic, Traffic { pushed: 12, popped: 12, ..Traffic::default() });
    assert_eq!(simulation.engine().traffic(three).popped, 6);
}

#[test]
fn y9_the_latest_deadline_of_several_activations_counts() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", span(100)));
    let join = tree.task(Tree::ROOT, TaskSpec::node("join"));
    tree.channel(source, join, 4);
    let pairs = tree.channel(source, join, 4);
    tree.channels[pairs.0 as usize].tokens = 2;
    let log = run(&tree, &[Source::periodic(span(100), work(10)), Source::activated(cost(5))], 400);
    // One channel contributes its first token, the other two tokens; the second of these arrived
    // last.
    assert_eq!(log.starts(1), [110, 310]);
    let deadlines = log.ended.iter().filter(|job| job.task.0 == 1).map(|job| job.deadline.as_ns());
    assert_eq!(deadlines.collect::<Vec<_>>(), [200, 400]);
}

#[test]
fn y9_a_source_that_does_not_push_leaves_its_sink_not_activated_and_is_reported() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", span(100)));
    let sink = tree.task(Tree::ROOT, TaskSpec::node("sink"));
    let channel = tree.channel(source, sink, 1);
    let sources = [
        Source {
            cost: cost(10).pushing(channel, &[1, 0, 0]),
            ..Source::periodic(span(100), work(10))
        },
        Source::activated(cost(5)),
    ];
    let mut simulation = simulation(&tree, &sources);
    let log = run_audited(&mut simulation, 500);
    assert_eq!(log.starts(1), [10, 310]);
    let silent: Vec<u64> = log
        .notifications
        .iter()
        .filter(|(_, notification)| *notification == Notification::NotActivated { channel })
        .map(|&(now, _)| now)
        .collect();
    assert_eq!(silent, [110, 210, 410]);
    assert_eq!(simulation.engine().traffic(channel).silent, 3);
}

#[test]
fn y10_full_and_empty_are_counted_results_and_no_job_blocks() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", span(100)));
    let sink = tree.task(Tree::ROOT, TaskSpec::node("sink"));
    let channel = tree.channel(source, sink, 2);
    // Job 0 pushes three tokens into a channel of size two; the sink's jobs pop 1, 3 and 1.
    let sources = [
        Source {
            cost: cost(10).pushing(channel, &[3, 0, 1]),
            ..Source::periodic(span(100), work(10))
        },
        Source::activated(cost(5).popping(channel, &[1, 3, 1])),
    ];
    let mut simulation = simulation(&tree, &sources);
    let log = run_audited(&mut simulation, 300);
    assert_eq!(log.ends(0), [10, 110, 210]);
    assert_eq!(log.ends(1), [15, 20, 215]);
    let traffic = simulation.engine().traffic(channel);
    assert_eq!(traffic, Traffic { pushed: 3, popped: 3, overflows: 1, underflows: 2, silent: 1 });
    assert_eq!(simulation.engine().stored(channel), 0);
}

#[test]
fn y10_tokens_that_the_sink_does_not_pop_fill_the_channel() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", span(100)));
    let sink = tree.task(Tree::ROOT, TaskSpec::node("sink"));
    let channel = tree.channel(source, sink, 2);
    let sources =
        [Source::periodic(span(100), work(10)), Source::activated(cost(5).popping(channel, &[0]))];
    let mut simulation = simulation(&tree, &sources);
    let log = run_audited(&mut simulation, 500);
    assert_eq!(log.starts(1), [10, 110], "the third token has no room");
    let traffic = simulation.engine().traffic(channel);
    assert_eq!((traffic.pushed, traffic.overflows, simulation.engine().stored(channel)), (2, 3, 2));
}

#[test]
fn y9_nodes_on_different_cpus_are_released_on_their_own() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    let on = |cpu, spec: TaskSpec| TaskSpec { affinity: Affinity::only(cpu), ..spec };
    let first = tree.task(Tree::ROOT, on(0, TaskSpec::new("first", span(100))));
    let second = tree.task(Tree::ROOT, on(1, TaskSpec::node("second")));
    tree.task(Tree::ROOT, on(1, task("busy", 50)));
    tree.channel(first, second, 0);
    let sources = [
        Source::periodic(span(100), work(10)),
        Source::activated(cost(10)),
        listed(&[0], cost(30)),
    ];
    let log = run(&tree, &sources, 100);
    // CPU 0 is idle from 10 on, and second still waits for CPU 1.
    assert_eq!((log.ends(0), log.ends(1)), (vec![10], vec![40]));
    assert!(log.begins.iter().all(|begin| begin.cpu == u32::from(begin.task > 0)));
}

#[test]
fn y9_invalid_graphs_are_refused() {
    let (tree, [fork, left, _, join]) = fork_join(2);
    let refused = |change: &dyn Fn(&mut Tree)| {
        let mut tree = tree.clone();
        change(&mut tree);
        tree.check().expect_err("refused").kind
    };
    assert_eq!(refused(&|tree| _ = tree.channel(join, fork, 0)), TreeErrorKind::Cycle);
    assert_eq!(refused(&|tree| _ = tree.channel(left, left, 1)), TreeErrorKind::Cycle);
    // A task behind a cycle has a lower number than the one in it.
    let mut behind = tree.clone();
    let late = behind.task(Tree::ROOT, TaskSpec::node("late"));
    behind.channel(late, late, 1);
    behind.channel(late, fork, 0);
    let error = behind.check().expect_err("refused");
    assert_eq!((error.node, error.kind), (late, TreeErrorKind::Cycle));
    assert!(matches!(
        refused(&|tree| _ = tree.channel(fork, Tree::ROOT, 0)),
        TreeErrorKind::Channel { index: 4, .. }
    ));
    assert!(matches!(
        refused(&|tree| _ = tree.channel(NodeId(99), fork, 0)),
        TreeErrorKind::Channel { .. }
    ));
    assert!(matches!(
        refused(&|tree| tree.channels[0].tokens = 0),
        TreeErrorKind::Channel { index: 0, .. }
    ));
    let more = |tree: &mut Tree| (tree.channels[0].size, tree.channels[0].tokens) = (1, 2);
    assert!(matches!(refused(&more), TreeErrorKind::Channel { index: 0, .. }));
    let other_step = |tree: &mut Tree| {
        let root = tree.task(Tree::ROOT, TaskSpec::new("other", span(300)));
        tree.channel(root, join, 0);
    };
    assert_eq!(refused(&other_step), TreeErrorKind::GraphRoots { one: fork, other: NodeId(5) });
    assert_eq!(
        refused(&|tree| _ = tree.task(Tree::ROOT, TaskSpec::node("alone"))),
        TreeErrorKind::NoGraphRoot
    );
    // Removing a node also removes its channels; its sink then has no predecessor.
    let mut cut = tree.clone();
    cut.remove(left);
    assert_eq!(cut.channels.len(), 2);
    assert!(cut.check().is_ok());
    cut.remove(fork);
    assert_eq!(cut.check().expect_err("refused").kind, TreeErrorKind::NoGraphRoot);
}

#[test]
fn y9_in_500_random_graphs_no_node_starts_before_its_predecessors_have_completed() {
    let mut rng = Rng::new(9);
    let (mut edges, mut sinks) = (0, 0);
    for case in 0..500 {
        let cpus = 1 + rng.below(4) as u32;
        let policy = [PolicySpec::Edf, PolicySpec::RateMonotonic, PolicySpec::FixedPriority]
            [rng.below(3) as usize]
            .clone();
        let mut root = SchedulerSpec::new("root", policy);
        root.preemptive = rng.below(4) > 0;
        let mut tree = Tree::new(cpus, root);
        let (nodes, period) = (2 + rng.below(9) as usize, 200);
        let mut ids = Vec::new();
        let mut sources = Vec::new();
        let mut joined: Vec<(usize, usize, ChannelId)> = Vec::new();
        for node in 0..nodes {
            let above: Vec<usize> = (0..node).filter(|_| rng.below(3) == 0).collect();
            let priority = rng.below(200) as u8;
            let affinity = if cpus > 1 && rng.below(3) == 0 {
                Affinity(1 + rng.below((1 << cpus) - 1))
            } else {
                Affinity::ANY
            };
            let costs = Cost::Uniform { min: work(1), max: work(10) };
            let (spec, source) = if above.is_empty() {
                let mut spec = TaskSpec::new("root", span(period));
                spec.deadline = span(150);
                (spec, Source { cost: costs, ..Source::periodic(span(period), work(1)) })
            } else {
                (TaskSpec::node("node"), Source::activated(costs))
            };
            ids.push(tree.task(Tree::ROOT, TaskSpec { priority, affinity, ..spec }));
            sources.push(source);
            for from in above {
                let size = rng.below(3) as u32;
                joined.push((from, node, tree.channel(ids[from], ids[node], size)));
            }
        }
        let mut simulation = simulation(&tree, &sources);
        let activations = 3;
        let log = run_audited(&mut simulation, activations * period);
        let begins: BTreeMap<(u32, u64), u64> =
            log.begins.iter().map(|begin| ((begin.task, begin.job), begin.at)).collect();
        let ends: BTreeMap<(u32, u64), (u64, u64)> = log
            .ended
            .iter()
            .map(|job| ((job.task.0, job.job), (job.end.as_ns(), job.deadline.as_ns())))
            .collect();
        for node in 0..nodes as u32 {
            for job in 0..activations {
                let (_, deadline) = ends[&(node, job)];
                assert_eq!(
                    deadline,
                    job * period + 150,
                    "case {case}: the deadline of its activation"
                );
            }
        }
        for &(from, to, channel) in &joined {
            edges += 1;
            for job in 0..activations {
                assert!(
                    ends[&(from as u32, job)].0 <= begins[&(to as u32, job)],
                    "case {case}: {from} before {to}"
                );
            }
            let traffic = simulation.engine().traffic(channel);
            assert_eq!(
                (traffic.overflows, traffic.underflows, traffic.silent),
                (0, 0, 0),
                "case {case}"
            );
            assert_eq!(
                (traffic.pushed, traffic.popped),
                (activations, activations),
                "no token is lost"
            );
        }
        sinks += (0..nodes).filter(|node| joined.iter().all(|&(from, ..)| from != *node)).count();
    }
    assert!(edges > 3_000 && sinks > 500, "{edges} {sinks}");
}

#[test]
fn y9_a_pipeline_keeps_its_order_for_a_thousand_instances() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    let first = tree.task(Tree::ROOT, TaskSpec::new("first", span(20)));
    let second = tree.task(Tree::ROOT, TaskSpec::node("second"));
    let third = tree.task(Tree::ROOT, TaskSpec::node("third"));
    let channels = [tree.channel(first, second, 1), tree.channel(second, third, 1)];
    let sources = [
        Source::periodic(span(20), work(6)),
        Source::activated(cost(6)),
        Source::activated(cost(6)),
    ];
    let mut simulation = simulation(&tree, &sources);
    let mut jobs = Jobs::default();
    simulation.run(at(20_000), &mut jobs);
    let ends: Vec<(u64, u64)> = jobs
        .ended
        .iter()
        .filter(|job| job.task == TaskId(2))
        .map(|job| (job.job, job.end.as_ns()))
        .collect();
    assert_eq!(ends, (0..1_000).map(|job| (job, 20 * job + 18)).collect::<Vec<_>>());
    assert!(channels.iter().all(|&channel| simulation.engine().traffic(channel).overflows == 0));
}
