//! All features at once: random trees with versions, accelerators, resources, graphs and affinities
//! keep the invariants, and every job completes.

use crate::harness::{at, cost, listed, run, run_audited, simulation, span, work};
use talea_core::Time;
use talea_core::criteria::Overrides;
use talea_core::engine::{
    AcceleratorId, Affinity, Condition, Cpu, Migration, NodeId, Notification, Protocol, ResourceId,
    SchedulerSpec, Selection, TaskSpec, Tree, Version,
};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_sim::rng::Rng;
use talea_sim::{Cost, Overheads, Source};

fn scheduler(rng: &mut Rng) -> SchedulerSpec {
    let policies = [
        PolicySpec::Edf,
        PolicySpec::FixedPriority,
        PolicySpec::RateMonotonic,
        PolicySpec::DeadlineMonotonic,
        PolicySpec::Fifo,
    ];
    let mut spec = SchedulerSpec::new("s", policies[rng.below(5) as usize].clone());
    spec.preemptive = rng.below(4) > 0;
    if rng.below(3) == 0 {
        spec.overrides = Overrides { priority: Some(rng.below(9) as u8), ..Overrides::default() };
    }
    spec
}

/// Generates schedulers, a third of them servers, three levels deep.
fn schedulers(rng: &mut Rng, tree: &mut Tree) -> Vec<NodeId> {
    let mut all = vec![Tree::ROOT];
    for _ in 0..rng.below(5) {
        let parent = all[rng.below(all.len() as u64) as usize];
        let mut spec = scheduler(rng);
        if rng.below(3) == 0 {
            let kinds = [
                ServerKind::Polling,
                ServerKind::Deferrable,
                ServerKind::Sporadic,
                ServerKind::HardCbs,
                ServerKind::SoftCbs,
            ];
            let period = 5 + rng.below(20);
            let budget = work(1 + rng.below(period));
            spec.reservation =
                Some(Reservation::new(kinds[rng.below(5) as usize], budget, span(period)));
        }
        all.push(tree.scheduler(parent, spec));
    }
    all
}

/// Random tree with any of the features.
pub(crate) struct Everything {
    pub(crate) tree: Tree,
    pub(crate) sources: Vec<Source>,
    accelerators: Vec<AcceleratorId>,
    resources: Vec<ResourceId>,
}

pub(crate) fn everything(rng: &mut Rng) -> Everything {
    let cpus = 1 + rng.below(3) as u32;
    let mut tree =
        Tree::new(cpus, SchedulerSpec { overrides: Overrides::default(), ..scheduler(rng) });
    tree.inheritance = rng.below(2) == 0;
    tree.migration = if rng.below(2) == 0 { Migration::Anytime } else { Migration::JobBoundaries };
    tree.selection = [
        Selection::Declared,
        Selection::Energy,
        Selection::TradeOff { weight: 400 },
        Selection::Mode,
        Selection::Mask,
        Selection::User(|of| Some((of.job % 3) as u32)),
    ][rng.below(6) as usize];
    let schedulers = schedulers(rng, &mut tree);
    let accelerators: Vec<_> = (0..rng.below(3)).map(|_| tree.accelerator("a")).collect();
    let protocols = [Protocol::None, Protocol::Inheritance, Protocol::Ceiling];
    let resources: Vec<ResourceId> =
        (0..rng.below(3)).map(|_| tree.resource("r", protocols[rng.below(3) as usize])).collect();
    let (mut sources, mut nodes) = (Vec::new(), Vec::new());
    for _ in 0..2 + rng.below(7) {
        let parent = schedulers[rng.below(schedulers.len() as u64) as usize];
        let above: Vec<usize> = (0..nodes.len()).filter(|_| rng.below(6) == 0).collect();
        let is_node = !above.is_empty();
        let mut spec = if is_node { TaskSpec::node("n") } else { TaskSpec::new("t", span(50)) };
        spec.priority = rng.below(10) as u8;
        if !is_node && rng.below(2) == 0 {
            spec.enforced = true;
        }
        spec.uses = resources.iter().copied().filter(|_| rng.below(2) == 0).collect();
        for _ in 0..rng.below(3) {
            spec.versions.push(Version {
                accelerators: accelerators.iter().copied().filter(|_| rng.below(2) == 0).collect(),
                energy: rng.below(9),
                time: work(rng.below(9)),
                modes: rng.below(4),
                needs: rng.below(4),
                ..Version::new("v")
            });
        }
        if parent == Tree::ROOT && cpus > 1 && rng.below(3) == 0 {
            spec.affinity = Affinity(1 + rng.below((1 << cpus) - 1));
        }
        let uses = spec.uses.clone();
        let job = |rng: &mut Rng| {
            let most = 1 + rng.below(8);
            let mut job = Cost::Uniform { min: work(1), max: work(most) };
            // Nested in the order of their numbers: no job waits forever.
            for (depth, &resource) in uses.iter().enumerate() {
                let (from, to) = (depth as u64, most.saturating_sub(depth as u64));
                job = job.locking(resource, work(from), work(to));
            }
            if rng.below(3) == 0 {
                job = job.suspending(work(rng.below(most)), span(rng.below(9)));
            }
            job
        };
        let costs = match spec.versions.len() {
            0 => job(rng),
            n => Cost::Versions((0..n).map(|_| job(rng)).collect()),
        };
        let node = tree.task(parent, spec);
        for &from in &above {
            // With room for all tokens of the run.
            tree.channel(nodes[from], node, 3 * rng.below(2) as u32);
        }
        nodes.push(node);
        sources.push(if is_node { Source::activated(costs) } else { listed(&[0, 50, 100], costs) });
    }
    Everything { tree, sources, accelerators, resources }
}

/// Returns the changes of conditions during the run.
pub(crate) fn changes() -> Vec<(Time, Condition)> {
    vec![
        (at(40), Condition::Battery(4)),
        (at(60), Condition::Mode(1)),
        (at(80), Condition::Permitted(1)),
    ]
}

#[test]
fn y7_y8_y9_random_trees_with_all_features_keep_the_invariants_and_complete() {
    let mut rng = Rng::new(79);
    let (mut jobs, mut waits) = (0, 0);
    for case in 0..800 {
        let Everything { tree, sources, accelerators, resources } = everything(&mut rng);
        let mut simulation = simulation(&tree, &sources).with_condition_changes(changes());
        if rng.below(3) == 0 {
            let overheads = Overheads {
                release: span(1),
                switch: span(1),
                migration: span(1),
                ..Overheads::default()
            };
            simulation = simulation
                .with_overheads(overheads)
                .with_stalls(Cpu(0), vec![(at(5), at(9)), (at(30), at(42))]);
        }
        let log = run_audited(&mut simulation, 20_000);
        assert!(
            !log.notifications
                .iter()
                .any(|(_, notification)| matches!(notification, Notification::Deadlock { .. })),
            "case {case}"
        );
        assert!(simulation.engine().is_drained(), "case {case}: a job never completes\n{tree:#?}");
        for task in 0..sources.len() as u32 {
            assert_eq!(log.ends(task).len(), 3, "case {case}, task {task}");
        }
        assert!(
            accelerators.iter().all(|&id| simulation.engine().accelerator_holder(id).is_none())
        );
        assert!(resources.iter().all(|&id| simulation.engine().resource_holder(id).is_none()));
        jobs += log.ended.len();
        waits += log.runs.len();
    }
    assert!(jobs > 8_000 && waits > jobs, "{jobs} {waits}");
}

/// Simulates one CPU, tasks with distinct deadlines or priorities, and nested sections. Returns the
/// completion times.
fn ends(
    tree: &mut Tree,
    parents: &[NodeId],
    specs: &[TaskSpec],
    sources: &[Source],
) -> Vec<Vec<u64>> {
    for (parent, spec) in parents.iter().zip(specs) {
        tree.task(*parent, spec.clone());
    }
    // Tasks are numbered by their nodes, which are created in this order.
    let log = run(tree, sources, 2_000);
    (0..specs.len() as u32).map(|task| log.ends(task)).collect()
}

#[test]
fn y8_with_inheritance_a_tree_equals_its_flat_set() {
    let mut rng = Rng::new(88);
    let mut waited = 0;
    for case in 0..1_000 {
        let n = 3 + rng.below(5) as usize;
        let protocol = if case % 3 == 0 { Protocol::Ceiling } else { Protocol::Inheritance };
        let is_edf = case % 2 == 0;
        let policy = || if is_edf { PolicySpec::Edf } else { PolicySpec::FixedPriority };
        let mut flat = Tree::new(1, SchedulerSpec::new("root", policy()));
        let mut deep = Tree::new(1, SchedulerSpec::new("root", policy()));
        let gpu = (flat.accelerator("gpu"), deep.accelerator("gpu")).0;
        let r = (flat.resource("r", protocol), deep.resource("r", protocol)).0;
        let (mut specs, mut sources) = (Vec::new(), Vec::new());
        for task in 0..n {
            // Distinct absolute deadlines, and distinct priorities.
            let (arrival, length) = (rng.below(15), 3 + rng.below(10));
            let mut spec = TaskSpec::new("t", span(1_000));
            spec.deadline = span(100 + 10 * rng.below(20) + task as u64 - arrival);
            spec.priority = (task as u64 * 7 % 13) as u8;
            let mut job = cost(length);
            match rng.below(3) {
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
        // EDF: any tree of EDF schedulers. Priorities: one group for each task, at the task's
        // priority, inside which priorities are irrelevant.
        let mut parents = Vec::new();
        let mut groups = vec![Tree::ROOT];
        for spec in &specs {
            if is_edf {
                let parent = groups[rng.below(groups.len() as u64) as usize];
                if rng.below(2) == 0 {
                    groups.push(deep.scheduler(parent, SchedulerSpec::new("g", PolicySpec::Edf)));
                }
                parents.push(groups[rng.below(groups.len() as u64) as usize]);
            } else {
                let own = Overrides { priority: Some(spec.priority), ..Overrides::default() };
                let group = SchedulerSpec {
                    overrides: own,
                    ..SchedulerSpec::new("g", PolicySpec::FixedPriority)
                };
                parents.push(deep.scheduler(Tree::ROOT, group));
            }
        }
        if !is_edf {
            for spec in &mut specs {
                spec.priority = rng.below(200) as u8;
            }
        }
        let got = ends(&mut deep, &parents, &specs, &sources);
        // A ceiling of deadlines is a time plus a span, which may tie with deadlines; the tree
        // decides ties.
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
