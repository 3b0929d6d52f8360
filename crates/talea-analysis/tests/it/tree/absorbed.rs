//! What a band takes of slots, and slots that absorb it: held against the simulator, over systems
//! as PikeOS has them.

use crate::dice::{dice, rounds};
use talea_analysis::supply::Curve;
use talea_analysis::tree::Roots;
use talea_analysis::tree::disturb::{Absorbed, interference, stretch_each};
use talea_core::machine::{Body, NodeId, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{Policy, Slot};
use talea_core::server::{Kind, Reservation};
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Time, Work};
use talea_sim::dice::Dice;
use talea_sim::{Jobs, Workload, World};

const FRAME: u64 = 60;
const FRAMES: u64 = 40;

/// A partition table beside tasks, servers, and groups of them; two partitions, as urgent as it
/// comes, always busy.
struct Made {
    tree: Tree,
    sources: Vec<Source>,
    table: NodeId,
    partitions: [NodeId; 2],
    /// The first task of the partitions.
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

fn made(dice: &mut Dice, slots: Vec<Slot>) -> Made {
    let ns = Span::from_ns;
    let mut tree = Tree::new(1, SchedulerSpec::new("TP_0", Policy::FixedPriority));
    let mut sources = Vec::new();
    for _ in 0..dice.between(1, 3) {
        let mut parent = Tree::ROOT;
        let priority = dice.between(1, 5) as u8;
        if dice.below(2) == 0 {
            let mut group = SchedulerSpec::new("band", Policy::Edf);
            group.own.priority = (dice.below(3) > 0).then_some(priority);
            parent = tree.scheduler(parent, group);
        }
        let period = dice.between(10, 40);
        if dice.below(2) == 0 {
            let kinds = [Kind::Polling, Kind::Deferrable, Kind::Sporadic, Kind::HardCbs];
            let mut server = SchedulerSpec::new("server", Policy::Fifo);
            server.own.priority = Some(priority);
            let budget = Work::from_ns(dice.between(1, 2));
            server.reservation =
                Some(Reservation::new(kinds[dice.below(4) as usize], budget, ns(period)));
            let server = tree.scheduler(parent, server);
            // Now and then more than it ever gets.
            let times = (0..FRAME * FRAMES).filter(|at| at % 170 > 40).map(Time::from_ns).collect();
            add(&mut tree, &mut sources, server, priority, Arrivals::List(times), 1);
        } else {
            let arrivals = Arrivals::Periodic {
                offset: ns(dice.below(period)),
                period: ns(period),
                jitter: ns(dice.below(8).min(period - 1)),
            };
            add(&mut tree, &mut sources, parent, priority, arrivals, dice.between(1, 2));
        }
    }
    let busy = sources.len() as u32;
    let policy = Policy::Partitions { frame: ns(FRAME), slots, lending: false };
    let table = tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", policy));
    let partitions =
        [(); 2].map(|()| tree.scheduler(table, SchedulerSpec::new("TP", Policy::FixedPriority)));
    for partition in partitions {
        let arrivals = Arrivals::Periodic { offset: ns(0), period: ns(1), jitter: ns(0) };
        add(&mut tree, &mut sources, partition, dice.between(1, 5) as u8, arrivals, 1);
    }
    Made { tree, sources, table, partitions, busy }
}

fn with_slots(made: &Made, slots: &[Slot]) -> Tree {
    let mut tree = made.tree.clone();
    if let Some(Body::Scheduler(spec)) = tree.get_mut(made.table).map(|node| &mut node.body) {
        spec.policy = Policy::Partitions {
            frame: Span::from_ns(FRAME),
            slots: slots.to_vec(),
            lending: false,
        };
    }
    tree
}

/// How much each partition does in each frame, job by job of a nanosecond.
fn served(made: &Made, slots: &[Slot], seed: u64) -> Vec<[u64; 2]> {
    let tree = with_slots(made, slots);
    let workload = Workload { sources: made.sources.clone(), seed };
    let mut jobs = Jobs::default();
    World::new(tree.build().expect("a tree"), 1, &workload)
        .run(Time::from_ns(FRAME * FRAMES), &mut jobs);
    let mut frames = vec![[0; 2]; FRAMES as usize];
    for job in jobs.ended.iter().filter(|job| job.task.0 >= made.busy) {
        if let Some(frame) = frames.get_mut((job.end.as_ns() - 1) as usize / FRAME as usize) {
            frame[(job.task.0 - made.busy) as usize] += 1;
        }
    }
    frames
}

#[test]
fn l3c_4_1_slots_lose_no_more_than_is_said_and_stretched_ones_hold_what_they_held() {
    let ns = Span::from_ns;
    let mut dice = dice(52);
    let (mut stretched, mut reached, mut disturbed, mut unknown) = (0, 0, 0, 0);
    for seed in 0..rounds(600) {
        let (first, second) = (dice.between(5, 20), dice.between(5, 20));
        let begin = first + dice.below(4);
        let slots = vec![
            Slot { start: ns(0), end: ns(first), owner: 0 },
            Slot { start: ns(begin), end: ns(begin + second), owner: 1 },
        ];
        let made = made(&mut dice, slots.clone());
        let roots = Roots::new(&made.tree, &made.sources);
        let above = made.partitions.map(|partition| roots.above_partition(partition));
        let [Ok(first_above), Ok(second_above)] = above else {
            unknown += 1;
            continue;
        };
        let above: [Vec<Curve>; 2] = [first_above, second_above];
        let loss = |owner: usize, length: u64| interference(&above[owner], ns(length)).as_ns();
        // The first frame begins with what everybody begins with; from there on all phases come.
        for frame in served(&made, &slots, seed) {
            for (owner, length) in [first, second].into_iter().enumerate() {
                let lost = length.saturating_sub(frame[owner]);
                assert!(
                    lost <= loss(owner, length),
                    "{owner} lost {lost} of {length}: {:#?}",
                    made.tree
                );
                reached += u64::from(lost > 0 && lost == loss(owner, length));
                disturbed += u64::from(lost > 0);
            }
        }
        let Ok(Absorbed::Slots(wide)) = roots.absorbed(made.table) else { continue };
        stretched += 1;
        // Asked again with the new slots, which make others wait longer, it is the same table.
        let changed = with_slots(&made, &wide);
        let again = Roots { tree: &changed, ..roots };
        let above =
            made.partitions.map(|partition| again.above_partition(partition).expect("known"));
        let same = stretch_each(ns(FRAME), &slots, |slot| above[slot.owner as usize].as_slice());
        assert_eq!(same.as_ref(), Ok(&wide), "{:#?}", made.tree);
        for frame in served(&made, &wide, seed) {
            assert!(
                frame[0] >= first && frame[1] >= second,
                "{frame:?} {slots:?} {wide:?}: {:#?}",
                made.tree
            );
        }
    }
    println!(
        "{stretched} tables, {disturbed} slots disturbed, {reached} as much as is said, {unknown} unknown"
    );
    assert!(stretched > 300 && disturbed > 10_000 && reached > 1_000);
}
