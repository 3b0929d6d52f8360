//! Interference on slots, and slots that absorb it, compared with the simulator. The systems
//! resemble those of PikeOS.

use crate::rng::{rng, rounds};
use talea_analysis::supply::InterferenceCurve;
use talea_analysis::tree::RootModel;
use talea_analysis::tree::slot_interference::{AbsorbedTable, interference, stretch_slots_each};
use talea_core::engine::{NodeId, NodeSpec, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Jobs, Simulation, Workload};

const FRAME: u64 = 60;
const FRAMES: u64 = 40;

/// A partition table beside tasks, servers and schedulers. The table has two partitions of random
/// priority, which are always busy.
struct RandomTree {
    tree: Tree,
    sources: Vec<Source>,
    table: NodeId,
    partitions: [NodeId; 2],
    /// Index of the first task of the partitions.
    busy: u32,
}

fn add(
    tree: &mut Tree,
    sources: &mut Vec<Source>,
    parent: NodeId,
    priority: u8,
    arrivals: Arrivals,
    cost: u64,
) {
    let period = match arrivals {
        Arrivals::Periodic { period, .. } => period,
        _ => Span::from_ns(1),
    };
    let mut spec = TaskSpec::new("task", period);
    spec.priority = priority;
    spec.backlog.capacity = 1 << 12;
    tree.task(parent, spec);
    sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(cost)) });
}

fn random_tree(rng: &mut Rng, slots: Vec<Slot>) -> RandomTree {
    let ns = Span::from_ns;
    let mut tree = Tree::new(1, SchedulerSpec::new("TP_0", PolicySpec::FixedPriority));
    let mut sources = Vec::new();
    for _ in 0..rng.between(1, 3) {
        let mut parent = Tree::ROOT;
        let priority = rng.between(1, 5) as u8;
        if rng.below(2) == 0 {
            let mut group = SchedulerSpec::new("band", PolicySpec::Edf);
            group.overrides.priority = (rng.below(3) > 0).then_some(priority);
            parent = tree.scheduler(parent, group);
        }
        let period = rng.between(10, 40);
        if rng.below(2) == 0 {
            let kinds = [
                ServerKind::Polling,
                ServerKind::Deferrable,
                ServerKind::Sporadic,
                ServerKind::HardCbs,
            ];
            let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
            server.overrides.priority = Some(priority);
            let budget = Work::from_ns(rng.between(1, 2));
            server.reservation =
                Some(Reservation::new(kinds[rng.below(4) as usize], budget, ns(period)));
            let server = tree.scheduler(parent, server);
            // Now and then more than it ever gets.
            let times = (0..FRAME * FRAMES).filter(|at| at % 170 > 40).map(Time::from_ns).collect();
            add(&mut tree, &mut sources, server, priority, Arrivals::List(times), 1);
        } else {
            let arrivals = Arrivals::Periodic {
                offset: ns(rng.below(period)),
                period: ns(period),
                jitter: ns(rng.below(8).min(period - 1)),
            };
            add(&mut tree, &mut sources, parent, priority, arrivals, rng.between(1, 2));
        }
    }
    let busy = sources.len() as u32;
    let policy = PolicySpec::Partitions { frame: ns(FRAME), slots, lending: false };
    let table = tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", policy));
    let partitions = [(); 2]
        .map(|()| tree.scheduler(table, SchedulerSpec::new("TP", PolicySpec::FixedPriority)));
    for partition in partitions {
        let arrivals = Arrivals::Periodic { offset: ns(0), period: ns(1), jitter: ns(0) };
        add(&mut tree, &mut sources, partition, rng.between(1, 5) as u8, arrivals, 1);
    }
    RandomTree { tree, sources, table, partitions, busy }
}

fn with_slots(system: &RandomTree, slots: &[Slot]) -> Tree {
    let mut tree = system.tree.clone();
    if let Some(NodeSpec::Scheduler(spec)) = tree.get_mut(system.table).map(|node| &mut node.spec) {
        spec.policy = PolicySpec::Partitions {
            frame: Span::from_ns(FRAME),
            slots: slots.to_vec(),
            lending: false,
        };
    }
    tree
}

/// Returns the work of each partition in each frame, summed over jobs of a nanosecond.
fn served(system: &RandomTree, slots: &[Slot], seed: u64) -> Vec<[u64; 2]> {
    let tree = with_slots(system, slots);
    let workload = Workload { sources: system.sources.clone(), seed };
    let mut jobs = Jobs::default();
    Simulation::new(tree.build().expect("a tree"), 1, &workload)
        .run(Time::from_ns(FRAME * FRAMES), &mut jobs);
    let mut frames = vec![[0; 2]; FRAMES as usize];
    for job in jobs.ended.iter().filter(|job| job.task.0 >= system.busy) {
        if let Some(frame) = frames.get_mut((job.end.as_ns() - 1) as usize / FRAME as usize) {
            frame[(job.task.0 - system.busy) as usize] += 1;
        }
    }
    frames
}

#[test]
fn l3c_4_1_slots_lose_at_most_the_interference_and_stretched_slots_keep_their_work() {
    let ns = Span::from_ns;
    let mut rng = rng(52);
    let (mut stretched, mut reached, mut disturbed, mut unknown) = (0, 0, 0, 0);
    for seed in 0..rounds(600) {
        let (first, second) = (rng.between(5, 20), rng.between(5, 20));
        let begin = first + rng.below(4);
        let slots = vec![
            Slot { start: ns(0), end: ns(first), owner: 0 },
            Slot { start: ns(begin), end: ns(begin + second), owner: 1 },
        ];
        let system = random_tree(&mut rng, slots.clone());
        let roots = RootModel::new(&system.tree, &system.sources);
        let above =
            system.partitions.map(|partition| roots.interference_above_partition(partition));
        let [Ok(first_above), Ok(second_above)] = above else {
            unknown += 1;
            continue;
        };
        let above: [Vec<InterferenceCurve>; 2] = [first_above, second_above];
        let loss = |owner: usize, length: u64| interference(&above[owner], ns(length)).as_ns();
        // The first frame begins with the synchronous release; later frames see all phases.
        for frame in served(&system, &slots, seed) {
            for (owner, length) in [first, second].into_iter().enumerate() {
                let lost = length.saturating_sub(frame[owner]);
                assert!(
                    lost <= loss(owner, length),
                    "{owner} lost {lost} of {length}: {:#?}",
                    system.tree
                );
                reached += u64::from(lost > 0 && lost == loss(owner, length));
                disturbed += u64::from(lost > 0);
            }
        }
        let Ok(AbsorbedTable::Slots(wide)) = roots.absorbing_slots(system.table) else { continue };
        stretched += 1;
        // Asked again with the new slots, which make others wait longer, it is the same table.
        let changed = with_slots(&system, &wide);
        let again = RootModel { tree: &changed, ..roots };
        let above = system
            .partitions
            .map(|partition| again.interference_above_partition(partition).expect("known"));
        let same =
            stretch_slots_each(ns(FRAME), &slots, |slot| above[slot.owner as usize].as_slice());
        assert_eq!(same.as_ref(), Ok(&wide), "{:#?}", system.tree);
        for frame in served(&system, &wide, seed) {
            assert!(
                frame[0] >= first && frame[1] >= second,
                "{frame:?} {slots:?} {wide:?}: {:#?}",
                system.tree
            );
        }
    }
    println!(
        "{stretched} tables, {disturbed} slots disturbed, {reached} as much as is said, {unknown} unknown"
    );
    assert!(stretched > 300 && disturbed > 10_000 && reached > 1_000);
}
