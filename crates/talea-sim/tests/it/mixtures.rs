//! Everything at once: random trees with versions, accelerators, resources, graphs and affinities
//! keep the invariants, and nobody is forgotten.

use crate::lab::{at, cost, listed, run, span, watch, work, world};
use talea_core::Time;
use talea_core::criteria::Own;
use talea_core::machine::{
    AcceleratorId, Affinity, Condition, Cpu, Migration, NodeId, Note, Protocol, ResourceId,
    SchedulerSpec, Selection, TaskSpec, Tree, Version,
};
use talea_core::sched::Policy;
use talea_core::server::{Kind, Reservation};
use talea_sim::dice::Dice;
use talea_sim::{Cost, Overheads, Source};

fn scheduler(dice: &mut Dice) -> SchedulerSpec {
    let policies = [
        Policy::Edf,
        Policy::FixedPriority,
        Policy::RateMonotonic,
        Policy::DeadlineMonotonic,
        Policy::Fifo,
    ];
    let mut spec = SchedulerSpec::new("s", policies[dice.below(5) as usize].clone());
    spec.preemptive = dice.below(4) > 0;
    if dice.below(3) == 0 {
        spec.own = Own { priority: Some(dice.below(9) as u8), ..Own::default() };
    }
    spec
}

/// Schedulers of which a third are servers, three levels deep.
fn schedulers(dice: &mut Dice, tree: &mut Tree) -> Vec<NodeId> {
    let mut all = vec![Tree::ROOT];
    for _ in 0..dice.below(5) {
        let parent = all[dice.below(all.len() as u64) as usize];
        let mut spec = scheduler(dice);
        if dice.below(3) == 0 {
            let kinds =
                [Kind::Polling, Kind::Deferrable, Kind::Sporadic, Kind::HardCbs, Kind::SoftCbs];
            let period = 5 + dice.below(20);
            let budget = work(1 + dice.below(period));
            spec.reservation =
                Some(Reservation::new(kinds[dice.below(5) as usize], budget, span(period)));
        }
        all.push(tree.scheduler(parent, spec));
    }
    all
}

/// A random tree that may have all of it.
pub(crate) struct Everything {
    pub(crate) tree: Tree,
    pub(crate) sources: Vec<Source>,
    accelerators: Vec<AcceleratorId>,
    resources: Vec<ResourceId>,
}

pub(crate) fn everything(dice: &mut Dice) -> Everything {
    let cpus = 1 + dice.below(3) as u32;
    let mut tree = Tree::new(cpus, SchedulerSpec { own: Own::default(), ..scheduler(dice) });
    tree.inheritance = dice.below(2) == 0;
    tree.migration = if dice.below(2) == 0 { Migration::Anytime } else { Migration::JobBoundaries };
    tree.selection = [
        Selection::Declared,
        Selection::Energy,
        Selection::TradeOff { weight: 400 },
        Selection::Mode,
        Selection::Mask,
        Selection::User(|of| Some((of.job % 3) as u32)),
    ][dice.below(6) as usize];
    let schedulers = schedulers(dice, &mut tree);
    let accelerators: Vec<_> = (0..dice.below(3)).map(|_| tree.accelerator("a")).collect();
    let protocols = [Protocol::None, Protocol::Inheritance, Protocol::Ceiling];
    let resources: Vec<ResourceId> =
        (0..dice.below(3)).map(|_| tree.resource("r", protocols[dice.below(3) as usize])).collect();
    let (mut sources, mut nodes) = (Vec::new(), Vec::new());
    for _ in 0..2 + dice.below(7) {
        let parent = schedulers[dice.below(schedulers.len() as u64) as usize];
        let above: Vec<usize> = (0..nodes.len()).filter(|_| dice.below(6) == 0).collect();
        let is_node = !above.is_empty();
        let mut spec = if is_node { TaskSpec::node("n") } else { TaskSpec::new("t", span(50)) };
        spec.priority = dice.below(10) as u8;
        if !is_node && dice.below(2) == 0 {
            spec.enforced = true;
        }
        spec.uses = resources.iter().copied().filter(|_| dice.below(2) == 0).collect();
        for _ in 0..dice.below(3) {
            spec.versions.push(Version {
                accelerators: accelerators.iter().copied().filter(|_| dice.below(2) == 0).collect(),
                energy: dice.below(9),
                time: work(dice.below(9)),
                modes: dice.below(4),
                needs: dice.below(4),
                ..Version::new("v")
            });
        }
        if parent == Tree::ROOT && cpus > 1 && dice.below(3) == 0 {
            spec.affinity = Affinity(1 + dice.below((1 << cpus) - 1));
        }
        let uses = spec.uses.clone();
        let job = |dice: &mut Dice| {
            let most = 1 + dice.below(8);
            let mut job = Cost::Uniform { min: work(1), max: work(most) };
            // In the order of their numbers, one inside the other: nobody waits for ever.
            for (depth, &resource) in uses.iter().enumerate() {
                let (from, to) = (depth as u64, most.saturating_sub(depth as u64));
                job = job.locking(resource, work(from), work(to));
            }
            if dice.below(3) == 0 {
                job = job.suspending(work(dice.below(most)), span(dice.below(9)));
            }
            job
        };
        let costs = match spec.versions.len() {
            0 => job(dice),
            n => Cost::Versions((0..n).map(|_| job(dice)).collect()),
        };
        let node = tree.task(parent, spec);
        for &from in &above {
            // With room for all that will come.
            tree.channel(nodes[from], node, 3 * dice.below(2) as u32);
        }
        nodes.push(node);
        sources.push(if is_node { Source::activated(costs) } else { listed(&[0, 50, 100], costs) });
    }
    Everything { tree, sources, accelerators, resources }
}

/// What becomes of the world meanwhile.
pub(crate) fn changes() -> Vec<(Time, Condition)> {
    vec![
        (at(40), Condition::Battery(4)),
        (at(60), Condition::Mode(1)),
        (at(80), Condition::Permitted(1)),
    ]
}

#[test]
fn y7_y8_y9_random_trees_with_everything_keep_the_invariants_and_end() {
    let mut dice = Dice::new(79);
    let (mut jobs, mut waits) = (0, 0);
    for case in 0..800 {
        let Everything { tree, sources, accelerators, resources } = everything(&mut dice);
        let mut world = world(&tree, &sources).with_changes(changes());
        if dice.below(3) == 0 {
            let overheads = Overheads {
                release: span(1),
                switch: span(1),
                migration: span(1),
                ..Overheads::default()
            };
            world = world
                .with_overheads(overheads)
                .with_holes(Cpu(0), vec![(at(5), at(9)), (at(30), at(42))]);
        }
        let log = watch(&mut world, 20_000);
        assert!(
            !log.notes.iter().any(|(_, note)| matches!(note, Note::Deadlock { .. })),
            "case {case}"
        );
        assert!(world.machine().is_drained(), "case {case}: somebody is forgotten\n{tree:#?}");
        for task in 0..sources.len() as u32 {
            assert_eq!(log.ends(task).len(), 3, "case {case}, task {task}");
        }
        assert!(accelerators.iter().all(|&id| world.machine().accelerator_of(id).is_none()));
        assert!(resources.iter().all(|&id| world.machine().resource_of(id).is_none()));
        jobs += log.ended.len();
        waits += log.runs.len();
    }
    assert!(jobs > 8_000 && waits > jobs, "{jobs} {waits}");
}

/// One CPU, tasks with distinct deadlines or priorities, nested sections; when the jobs end.
fn ends(
    tree: &mut Tree,
    parents: &[NodeId],
    specs: &[TaskSpec],
    sources: &[Source],
) -> Vec<Vec<u64>> {
    for (parent, spec) in parents.iter().zip(specs) {
        tree.task(*parent, spec.clone());
    }
    // Tasks are numbered by their nodes, which are made in this order.
    let log = run(tree, sources, 2_000);
    (0..specs.len() as u32).map(|task| log.ends(task)).collect()
}

#[test]
fn y8_with_inheritance_a_tree_equals_its_flat_set() {
    let mut dice = Dice::new(88);
    let mut waited = 0;
    for case in 0..1_000 {
        let n = 3 + dice.below(5) as usize;
        let protocol = if case % 3 == 0 { Protocol::Ceiling } else { Protocol::Inheritance };
        let is_edf = case % 2 == 0;
        let policy = || if is_edf { Policy::Edf } else { Policy::FixedPriority };
        let mut flat = Tree::new(1, SchedulerSpec::new("root", policy()));
        let mut deep = Tree::new(1, SchedulerSpec::new("root", policy()));
        let gpu = (flat.accelerator("gpu"), deep.accelerator("gpu")).0;
        let r = (flat.resource("r", protocol), deep.resource("r", protocol)).0;
        let (mut specs, mut sources) = (Vec::new(), Vec::new());
        for task in 0..n {
            // Distinct absolute deadlines, and priorities.
            let (arrival, length) = (dice.below(15), 3 + dice.below(10));
            let mut spec = TaskSpec::new("t", span(1_000));
            spec.deadline = span(100 + 10 * dice.below(20) + task as u64 - arrival);
            spec.priority = (task as u64 * 7 % 13) as u8;
            let mut job = cost(length);
            match dice.below(3) {
                0 => spec.versions = vec![Version { accelerators: vec![gpu], ..Version::new("v") }],
                1 => {
                    spec.uses = vec![r];
                    job = job.locking(r, work(1), work(length - 1));
                }
                _ => {}
            }
            specs.push(spec);
            sources.push(listed(&[arrival], job));
        }
        let expected = ends(&mut flat, &vec![Tree::ROOT; n], &specs, &sources);
        // EDF: any tree of EDF schedulers. Priorities: a group for each task that stands at the
        // task's priority, and inside which numbers mean nothing.
        let mut parents = Vec::new();
        let mut groups = vec![Tree::ROOT];
        for spec in &specs {
            if is_edf {
                let parent = groups[dice.below(groups.len() as u64) as usize];
                if dice.below(2) == 0 {
                    groups.push(deep.scheduler(parent, SchedulerSpec::new("g", Policy::Edf)));
                }
                parents.push(groups[dice.below(groups.len() as u64) as usize]);
            } else {
                let own = Own { priority: Some(spec.priority), ..Own::default() };
                let group = SchedulerSpec { own, ..SchedulerSpec::new("g", Policy::FixedPriority) };
                parents.push(deep.scheduler(Tree::ROOT, group));
            }
        }
        if !is_edf {
            for spec in &mut specs {
                spec.priority = dice.below(200) as u8;
            }
        }
        let got = ends(&mut deep, &parents, &specs, &sources);
        // A ceiling of deadlines is an instant and a length, which may tie with deadlines; the
        // order of ties is the tree's.
        if !(is_edf && protocol == Protocol::Ceiling) {
            assert_eq!(got, expected, "case {case}\n{deep:#?}\n{sources:#?}");
        }
        let mut without = flat.clone();
        without.inheritance = false;
        without.resources[0].protocol = Protocol::None;
        let plain = run(&without, &sources, 2_000);
        waited +=
            usize::from((0..n as u32).any(|task| plain.ends(task) != expected[task as usize]));
    }
    assert!(waited > 100, "inheritance must matter: {waited}");
}
