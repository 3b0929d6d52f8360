//! Time partitions, levels and EDF schedulers at a priority as in PikeOS (L1 to L4, L6, L9, L10,
//! L13, L21, L24), and the rule of composition (S4).

use crate::harness::{Log, at, cost, listed, run, run_audited, simulation, span, task, work};
use talea_core::Time;
use talea_core::criteria::Overrides;
use talea_core::engine::{
    NodeId, NodeSpec, Observer, SchedulerSpec, Signal, TaskSpec, Tree, TreeErrorKind,
};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};
use talea_sim::rng::Rng;
use talea_sim::{Simulation, Source, Workload};

fn fp() -> Tree {
    Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority))
}

fn table(frame: u64, slots: &[(u64, u64, u32)]) -> PolicySpec {
    let slots =
        slots.iter().map(|&(start, end, owner)| Slot { start: span(start), end: span(end), owner });
    PolicySpec::Partitions { frame: span(frame), slots: slots.collect(), lending: false }
}

fn prioritised(name: &str, priority: u8) -> TaskSpec {
    TaskSpec { priority, ..task(name, 1_000_000) }
}

fn band(tree: &mut Tree, priority: u8) -> NodeId {
    let mut band = SchedulerSpec::new("band", PolicySpec::Edf);
    band.overrides = Overrides { priority: Some(priority), ..Overrides::default() };
    tree.scheduler(Tree::ROOT, band)
}

fn server(tree: &mut Tree, band: NodeId, kind: ServerKind, budget: u64, period: u64) -> NodeId {
    let mut spec = SchedulerSpec::new("server", PolicySpec::Fifo);
    spec.reservation = Some(Reservation::new(kind, work(budget), span(period)));
    tree.scheduler(band, spec)
}

#[test]
fn s4_a_partition_table_below_an_ordering_scheduler_is_refused_with_the_reason() {
    let policy = || table(10, &[(0, 10, 0)]);
    for under in [
        PolicySpec::Edf,
        PolicySpec::RateMonotonic,
        PolicySpec::Fifo,
        PolicySpec::RoundRobin { quantum: work(1) },
    ] {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", under.clone()));
        let node = tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", policy()));
        tree.task(node, task("a", 10));
        let refused = tree.build().expect_err("refused");
        assert_eq!(
            (refused.node, &refused.kind),
            (node, &TreeErrorKind::TimeSharing { under: under.name() })
        );
        let text = refused.kind.to_string();
        assert!(text.contains(under.name()) && text.contains("partition table"), "{text}");
    }
    // Directly below an `fp` root, but no deeper; below another table; at the root.
    let mut tree = fp();
    let node = tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", policy()));
    let inner = tree.scheduler(node, SchedulerSpec::new("inner", policy()));
    tree.task(inner, task("a", 10));
    assert!(tree.build().is_ok());
    let mut tree = fp();
    let node = tree.scheduler(Tree::ROOT, SchedulerSpec::new("fp", PolicySpec::FixedPriority));
    let node = tree.scheduler(node, SchedulerSpec::new("table", policy()));
    tree.task(node, task("a", 10));
    assert_eq!(tree.build().expect_err("refused").kind, TreeErrorKind::TimeSharing { under: "fp" });
}

#[test]
fn l1_no_partition_runs_outside_its_slots_under_any_load() {
    let cycles = 100_000;
    for count in 2..=8_u64 {
        let mut rng = Rng::new(count);
        let mut end = 0;
        let slots: Vec<(u64, u64, u32)> = (0..count)
            .map(|slot| {
                let start = end + rng.below(3);
                end = start + rng.between(1, 20);
                (start, end, (slot % (count - 1)) as u32)
            })
            .collect();
        let frame = end + rng.below(5);
        let mut tree = fp();
        let node = tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", table(frame, &slots)));
        let mut sources = vec![];
        for partition in 0..count - 1 {
            let own =
                tree.scheduler(node, SchedulerSpec::new("partition", PolicySpec::FixedPriority));
            tree.task(own, prioritised("busy", partition as u8));
            sources.push(listed(&[0], cost(u64::MAX >> 4)));
        }
        // Audited for a while; the rest repeats.
        let mut simulation = simulation(&tree, &sources);
        let mut log = run_audited(&mut simulation, frame * 500);
        simulation.run(at(frame * cycles), &mut log);
        let mut runs = log.runs.iter().copied();
        // Each slot begins with a switch to its owner, unless the owner has the CPU already.
        let mut last = None;
        for cycle in 0..cycles {
            for &(start, end, owner) in &slots {
                let start = cycle * frame + start;
                if last != Some((start, owner)) {
                    assert_eq!(runs.next(), Some((start, 0, owner)), "{slots:?}");
                }
                last = Some((cycle * frame + end, owner));
            }
        }
        assert_eq!(runs.next(), None);
    }
}

#[test]
fn l2_levels_run_in_order_and_each_is_a_queue() {
    let mut rng = Rng::new(2);
    for _ in 0..20 {
        let mut tree = fp();
        let mut sources = vec![];
        let mut expected = vec![];
        for task in 0..300_u32 {
            // All 256 levels occur, some twice. All jobs arrive while the very first one runs.
            let priority = if task < 256 { 255 - task as u8 } else { rng.below(256) as u8 };
            let at = if task == 0 { 0 } else { rng.between(1, 400) };
            tree.task(Tree::ROOT, prioritised("task", priority));
            sources.push(listed(&[at], cost(1_000)));
            expected.push((u8::MAX - priority, at, task));
        }
        expected.sort_unstable();
        let log = run(&tree, &sources, 1_000_000);
        let order: Vec<u32> = log.ended.iter().map(|job| job.task.0).collect();
        assert_eq!(order, expected.iter().map(|&(_, _, task)| task).collect::<Vec<_>>());
    }
}

#[test]
fn l3_the_system_partition_is_always_eligible_and_wins_ties() {
    let mut tree = fp();
    let node = tree.scheduler(Tree::ROOT, SchedulerSpec::new("TP_X", table(10, &[(0, 5, 0)])));
    let partition = tree.scheduler(node, SchedulerSpec::new("TP_1", PolicySpec::FixedPriority));
    tree.task(partition, prioritised("user", 7));
    tree.task(Tree::ROOT, prioritised("system", 7));
    // The user's job runs when the system's job arrives, at the same level; and outside the slot.
    let log = run(&tree, &[listed(&[0, 10], cost(4)), listed(&[2, 7], cost(1))], 100);
    assert_eq!([log.ends(0), log.ends(1)], [vec![5, 14], vec![3, 8]]);
    // One level lower the system's job waits for the user's, but not for the end of the partition.
    tree.get_mut(NodeId(4)).expect("the task").spec = NodeSpec::Task(prioritised("system", 6));
    let log = run(&tree, &[listed(&[0], cost(4)), listed(&[2, 7], cost(1))], 100);
    assert_eq!([log.ends(0), log.ends(1)], [vec![4], vec![5, 8]]);
}

#[test]
fn l4_two_bands_around_fixed_levels_order_by_level_then_deadline_then_number() {
    let mut tree = fp();
    let (high, low) = (band(&mut tree, 30), band(&mut tree, 10));
    // The deadlines of the servers are 50, 40, 40 and 20, 30; all receive demand at time 1.
    let clients: Vec<NodeId> = [(high, 50), (high, 40), (high, 40), (low, 20), (low, 30)]
        .map(|(band, period)| server(&mut tree, band, ServerKind::Sporadic, 10, period))
        .into();
    for &client in &clients {
        tree.task(client, task("client", 1_000));
    }
    for priority in [31, 20, 5] {
        tree.task(Tree::ROOT, prioritised("fixed", priority));
    }
    let sources = vec![listed(&[1], cost(2)); 8];
    let log = run(&tree, &sources, 100);
    let order: Vec<u32> = log.ended.iter().map(|job| job.task.0).collect();
    assert_eq!(order, [5, 1, 2, 0, 6, 3, 4, 7]);
}

#[test]
fn l6_a_reservation_in_a_time_partition_is_refused() {
    let mut tree = fp();
    let node = tree.scheduler(Tree::ROOT, SchedulerSpec::new("TP_X", table(10, &[(0, 10, 0)])));
    let partition = tree.scheduler(node, SchedulerSpec::new("TP_1", PolicySpec::Edf));
    let inside = server(&mut tree, partition, ServerKind::Deferrable, 1, 10);
    tree.task(inside, task("client", 10));
    let refused = tree.build().expect_err("refused");
    assert_eq!((refused.node, refused.kind), (inside, TreeErrorKind::ServerInPartition));
}

/// Builds a table, a task of the system partition and one task in each of two partitions.
fn stock() -> (Tree, Vec<Source>) {
    let mut tree = fp();
    let node = tree
        .scheduler(Tree::ROOT, SchedulerSpec::new("TP_X", table(20, &[(0, 10, 0), (10, 20, 1)])));
    let mut sources = vec![];
    for level in [10, 20] {
        let partition = tree.scheduler(node, SchedulerSpec::new("TP", PolicySpec::FixedPriority));
        tree.task(partition, prioritised("user", level));
        tree.task(partition, prioritised("user", level + 1));
        sources.push(Source::periodic(span(20), work(6)));
        sources.push(Source::periodic(span(40), work(5)));
    }
    tree.task(Tree::ROOT, prioritised("system", 15));
    sources.push(Source::periodic(span(13), work(2)));
    (tree, sources)
}

/// Number of all signals between runnables, the components of L3C's switch costs.
#[derive(Debug, Default)]
struct Signals(u64);

impl Observer for Signals {
    const ENABLED: bool = true;

    fn on_signal(&mut self, _: Time, _: Signal, _: NodeId) {
        self.0 += 1;
    }
}

/// Adds an EDF scheduler at `priority` with a server of each kind. The scheduler has no demand.
fn with_idle_band(tree: &Tree, sources: &[Source], priority: u8) -> (Tree, Vec<Source>) {
    let (mut tree, mut sources) = (tree.clone(), sources.to_vec());
    let band = band(&mut tree, priority);
    for kind in
        [ServerKind::Polling, ServerKind::Deferrable, ServerKind::Sporadic, ServerKind::HardCbs]
    {
        let client = server(&mut tree, band, kind, 2, 16);
        tree.task(client, task("client", 10));
        sources.push(listed(&[], cost(1)));
    }
    (tree, sources)
}

/// Returns the schedule of a run, and its number of signals.
fn counted(tree: &Tree, sources: &[Source], until: u64) -> (Log, u64) {
    let engine = tree.build_with(Signals::default()).expect("a tree");
    let mut simulation = Simulation::new(engine, 1, &Workload { sources: sources.into(), seed: 1 });
    let mut log = Log::default();
    simulation.run(at(until), &mut log);
    (log, simulation.engine_mut().observer().0)
}

/// Builds the configurations of L1, L2 and L3.
///
/// Tables of two to eight slots with busy or idle partitions, levels as queues, and a system
/// partition beside a table at the same level.
fn configurations() -> Vec<(Tree, Vec<Source>)> {
    let mut all = vec![stock()];
    for count in 2..=8_u64 {
        for busy in [true, false] {
            let mut tree = fp();
            let slots: Vec<_> =
                (0..count).map(|slot| (slot * 10, slot * 10 + 9, slot as u32)).collect();
            let node =
                tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", table(count * 10, &slots)));
            let mut sources = vec![];
            for partition in 0..count {
                let own = tree
                    .scheduler(node, SchedulerSpec::new("partition", PolicySpec::FixedPriority));
                tree.task(own, prioritised("task", partition as u8));
                sources.push(if busy {
                    listed(&[0], cost(u64::MAX >> 4))
                } else {
                    Source::periodic(span(count * 10), work(6))
                });
            }
            all.push((tree, sources));
        }
    }
    let (mut levels, mut sources) = (fp(), vec![]);
    for number in 0..300_u64 {
        levels.task(Tree::ROOT, prioritised("task", (number * 7) as u8));
        sources.push(Source::periodic(span(4_000 + number), work(10)));
    }
    all.push((levels, sources));
    for level in [6, 7, 8] {
        let mut tree = fp();
        let node = tree.scheduler(Tree::ROOT, SchedulerSpec::new("TP_X", table(10, &[(0, 5, 0)])));
        let partition = tree.scheduler(node, SchedulerSpec::new("TP_1", PolicySpec::FixedPriority));
        tree.task(partition, prioritised("user", 7));
        tree.task(Tree::ROOT, prioritised("system", level));
        all.push((
            tree,
            vec![Source::periodic(span(10), work(3)), Source::periodic(span(7), work(2))],
        ));
    }
    all
}

#[test]
fn l9_l10_an_unused_band_changes_no_run_of_l1_to_l3_and_costs_no_operation() {
    for (number, (tree, sources)) in configurations().into_iter().enumerate() {
        let (without, operations) = counted(&tree, &sources, 20_000);
        assert!(
            !without.runs.is_empty() && operations > 0,
            "configuration {number} does something"
        );
        for priority in [0, 12, 255] {
            let (tree, sources) = with_idle_band(&tree, &sources, priority);
            let (with, also) = counted(&tree, &sources, 20_000);
            assert_eq!(without.runs, with.runs, "configuration {number}, band at {priority}");
            assert_eq!(without.ended, with.ended, "configuration {number}, band at {priority}");
            assert_eq!(
                operations, also,
                "operations of configuration {number}, band at {priority}"
            );
        }
    }
}

#[test]
fn l13_a_task_above_every_band_is_unaffected_by_a_burst() {
    let responses = |burst: u64| {
        let mut tree = fp();
        tree.task(Tree::ROOT, prioritised("above", 200));
        let band = band(&mut tree, 100);
        let client = server(&mut tree, band, ServerKind::Deferrable, 5, 20);
        let mut spec = task("client", 100);
        spec.backlog.capacity = 2_000;
        tree.task(client, spec);
        tree.task(Tree::ROOT, prioritised("below", 50));
        let requests: Vec<u64> = (0..burst).collect();
        let sources = [
            Source::periodic(span(10), work(3)),
            listed(&requests, cost(4)),
            Source::periodic(span(40), work(6)),
        ];
        let log = run(&tree, &sources, 4_000);
        let response = |task: u32| -> Vec<u64> {
            log.ended
                .iter()
                .filter(|job| job.task.0 == task)
                .map(|job| job.response().as_ns())
                .collect()
        };
        (response(0), response(2))
    };
    let (quiet, burst) = (responses(0), responses(1_000));
    assert_eq!(quiet.0, burst.0, "above: identical");
    assert!(burst.1.iter().max() > quiet.1.iter().max(), "below: interference");
    assert!(burst.1.iter().all(|&response| response <= 40), "but bounded");
}

#[test]
fn l21_two_cpus_have_two_independent_tables() {
    let cpu = |frame: u64, slots: &[(u64, u64, u32)]| {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", table(frame, slots)));
        for _ in 0..2 {
            tree.task(Tree::ROOT, task("busy", 1_000));
        }
        let busy = listed(&[0], cost(1_000_000));
        simulation(&tree, &[busy.clone(), busy])
    };
    let (mut left, mut right) =
        (cpu(10, &[(0, 5, 0), (5, 10, 1)]), cpu(7, &[(0, 2, 1), (2, 7, 0)]));
    let (left, right) = (run_audited(&mut left, 1_000), run_audited(&mut right, 1_000));
    assert!(left.runs.iter().all(|&(at, _, task)| at % 10 == if task == 0 { 0 } else { 5 }));
    assert!(right.runs.iter().all(|&(at, _, task)| at % 7 == if task == 0 { 2 } else { 0 }));
    assert_eq!([left.runs.len(), right.runs.len()], [200, 286]);
}

#[test]
fn l24_a_budget_is_used_only_by_running() {
    // The client of a server (4 every 20) is preempted by a higher task and is pending across a
    // switch of the partitions below it.
    let mut tree = fp();
    tree.task(Tree::ROOT, prioritised("above", 200));
    let band = band(&mut tree, 100);
    let client = server(&mut tree, band, ServerKind::Deferrable, 4, 20);
    tree.task(client, task("client", 1_000));
    let node =
        tree.scheduler(Tree::ROOT, SchedulerSpec::new("TP_X", table(6, &[(0, 3, 0), (3, 6, 1)])));
    for _ in 0..2 {
        let partition = tree.scheduler(node, SchedulerSpec::new("TP", PolicySpec::FixedPriority));
        tree.task(partition, prioritised("user", 1));
    }
    let busy = listed(&[0], cost(1_000));
    let sources = [listed(&[2], cost(5)), listed(&[0], cost(11)), busy.clone(), busy];
    let log = run(&tree, &sources, 60);
    // 0 to 2, then 7 to 9: four in total. 20 to 24, and the rest from 40 on.
    assert_eq!(log.ends(1), [43]);
    let client: Vec<u64> =
        log.runs.iter().filter(|&&(_, _, task)| task == 1).map(|&(at, _, _)| at).collect();
    assert_eq!(client, [0, 7, 20, 40]);
}

#[test]
fn l23_impossible_reservations_are_refused_with_the_numbers() {
    let build = |reservation: Reservation| {
        let mut tree = fp();
        let mut spec = SchedulerSpec::new("server", PolicySpec::Fifo);
        spec.reservation = Some(reservation);
        let node = tree.scheduler(Tree::ROOT, spec);
        tree.task(node, task("client", 10));
        tree.build().map(|_| ()).map_err(|wrong| wrong.kind)
    };
    let fine = Reservation::new(ServerKind::HardCbs, work(4), span(10));
    assert_eq!(build(fine), Ok(()));
    let within = |within| TreeErrorKind::Budget { budget: work(4), within: span(within) };
    assert_eq!(build(Reservation { period: span(3), ..fine }), Err(within(3)));
    assert_eq!(build(Reservation { deadline: Some(span(3)), ..fine }), Err(within(3)));
    assert_eq!(
        build(Reservation { deadline: Some(span(11)), ..fine }),
        Err(TreeErrorKind::ServerDeadline)
    );
    assert_eq!(
        build(Reservation { offset: span(10), ..fine }),
        Err(TreeErrorKind::Offset),
        "offset = period"
    );
    assert!(matches!(
        build(Reservation { budget: work(0), ..fine }),
        Err(TreeErrorKind::Budget { .. })
    ));
    assert_eq!(build(Reservation { offset: span(9), ..fine }), Ok(()));
    // Slots that overlap, exceed the frame, are empty or have no owner.
    for slots in [&[(0, 5, 0), (4, 8, 0)][..], &[(5, 11, 0)], &[(5, 5, 0)], &[(5, 8, 0), (0, 4, 0)]]
    {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", table(10, slots)));
        tree.task(Tree::ROOT, task("a", 10));
        let index = slots.len() - 1;
        assert_eq!(
            tree.build().expect_err("refused").kind,
            TreeErrorKind::Slot { index },
            "{slots:?}"
        );
    }
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", table(10, &[(0, 5, 1)])));
    tree.task(Tree::ROOT, task("a", 10));
    assert_eq!(
        tree.build().expect_err("refused").kind,
        TreeErrorKind::SlotOwner { index: 0, children: 1 }
    );
}

#[test]
fn l23_node_ids_are_never_reused_and_removing_a_server_removes_its_clients() {
    let mut tree = fp();
    let first = server(&mut tree, Tree::ROOT, ServerKind::Polling, 1, 10);
    let client = tree.task(first, task("client", 10));
    let second = server(&mut tree, Tree::ROOT, ServerKind::Polling, 2, 10);
    tree.task(second, task("client", 10));
    tree.remove(first);
    assert!(tree.get(first).is_none() && tree.get(client).is_none());
    let third = server(&mut tree, Tree::ROOT, ServerKind::Polling, 3, 10);
    assert!(third > second, "{third:?}");
    tree.task(third, task("client", 10));
    assert_eq!(tree.children(Tree::ROOT).map(|(id, _)| id).collect::<Vec<_>>(), [second, third]);
    if let Some(NodeSpec::Scheduler(spec)) = tree.get_mut(second).map(|node| &mut node.spec) {
        spec.reservation = Some(Reservation::new(ServerKind::Polling, work(5), span(10)));
    }
    let engine = tree.build().expect("a tree");
    assert_eq!(engine.tasks(), 2);
    let log = run(&tree, &[listed(&[0], cost(5)), listed(&[0], cost(3))], 100);
    assert_eq!([log.ends(0), log.ends(1)], [[5], [8]], "resized");
    // A node below a removed node is refused.
    tree.task(first, task("orphan", 10));
    assert_eq!(tree.build().expect_err("refused").kind, TreeErrorKind::Parent);
}
