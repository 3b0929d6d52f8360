//! Trees with all features: versions, accelerators, resources, suspensions, channels, changing
//! conditions.

use super::fake::{run_in, simulate_in};
use super::{at, ms, tenths};
use crate::replay::replay;
use talea_core::criteria::Overrides;
use talea_core::engine::{
    Condition, Event, Migration, NodeId, Preemption, Protocol, ResourceId, SchedulerSpec,
    Selection, TaskSpec, Tree, Version,
};
use talea_core::sched::{PolicySpec, TableEntry};
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Arrivals, Cost, Source, Workload};
use talea_core::{Span, Work};
use talea_sim::rng::Rng;

/// Times are tenths of a millisecond: rounded remainders of budgets would differ from the
/// simulator.
fn scheduler(rng: &mut Rng) -> SchedulerSpec {
    let policies =
        [PolicySpec::Edf, PolicySpec::FixedPriority, PolicySpec::RateMonotonic, PolicySpec::Fifo];
    let mut spec = SchedulerSpec::new("group", policies[rng.below(4) as usize].clone());
    spec.preemptive = rng.below(4) > 0;
    if rng.below(3) == 0 {
        spec.overrides = Overrides { priority: Some(rng.below(9) as u8), ..Overrides::default() };
    }
    spec
}

/// Returns the steps and costs of a job.
fn job(rng: &mut Rng, uses: &[ResourceId]) -> Cost {
    let most = 10 + rng.below(60);
    let mut job = Cost::List((0..5).map(|_| tenths(1 + rng.below(most))).collect());
    // In the order of their numbers, nested: no deadlock.
    for (depth, &resource) in (0..).zip(uses) {
        job = job.locking(resource, tenths(depth), tenths(most.saturating_sub(depth)));
    }
    if rng.below(3) == 0 {
        let (at, length) = (tenths(rng.below(most)), Span::from_ns(rng.below(90) * 100_000));
        job = match rng.below(4) {
            0 => job.occupying(at, length, false),
            1 => job.occupying(at, length, true),
            _ => job.suspending(at, length),
        };
    }
    job
}

fn system(rng: &mut Rng, cpus: u32) -> (Tree, Workload) {
    let mut tree =
        Tree::new(cpus, SchedulerSpec { overrides: Overrides::default(), ..scheduler(rng) });
    tree.inheritance = rng.below(2) == 0;
    tree.migration = if rng.below(2) == 0 { Migration::Anytime } else { Migration::JobBoundaries };
    tree.selection = [Selection::Declared, Selection::Energy, Selection::Mode, Selection::Mask]
        [rng.below(4) as usize];
    let mut parents = vec![Tree::ROOT];
    for _ in 0..rng.below(3) {
        let mut spec = scheduler(rng);
        if rng.below(3) == 0 {
            let kinds = [
                ServerKind::Polling,
                ServerKind::Deferrable,
                ServerKind::Sporadic,
                ServerKind::HardCbs,
            ];
            let period = 10 + rng.below(20);
            let budget = Work::from_ns((2 + rng.below(period - 2)) * 1_000_000);
            spec.reservation =
                Some(Reservation::new(kinds[rng.below(4) as usize], budget, ms(period)));
        }
        parents.push(tree.scheduler(Tree::ROOT, spec));
    }
    let accelerators: Vec<_> = (0..rng.below(3)).map(|_| tree.accelerator("a")).collect();
    let protocols = [Protocol::None, Protocol::Inheritance, Protocol::Ceiling];
    let resources: Vec<_> =
        (0..rng.below(3)).map(|_| tree.resource("r", protocols[rng.below(3) as usize])).collect();
    let (mut sources, mut nodes): (Vec<Source>, Vec<NodeId>) = (Vec::new(), Vec::new());
    for number in 0..3 + rng.below(4) {
        let above: Vec<NodeId> = nodes.iter().copied().filter(|_| rng.below(5) == 0).collect();
        let mut spec =
            if above.is_empty() { TaskSpec::new("t", ms(60)) } else { TaskSpec::node("n") };
        spec.priority = rng.below(10) as u8;
        spec.uses = resources.iter().copied().filter(|_| rng.below(2) == 0).collect();
        for _ in 0..rng.below(3) {
            spec.versions.push(Version {
                accelerators: accelerators.iter().copied().filter(|_| rng.below(2) == 0).collect(),
                energy: rng.below(9),
                modes: rng.below(4),
                needs: rng.below(4),
                ..Version::new("v")
            });
        }
        let uses = spec.uses.clone();
        let has_points = cpus == 1 && rng.below(3) == 0;
        if has_points {
            spec.preemption = Preemption::AtPoints;
        }
        let job = |rng: &mut Rng| {
            let job = job(rng, &uses);
            if !has_points {
                return job;
            }
            let mut points = [0; 3].map(|_| tenths(1 + rng.below(40)));
            points.sort_unstable();
            job.preemptible_at(&points)
        };
        let cost = match spec.versions.len() {
            0 => job(rng),
            n => Cost::Versions((0..n).map(|_| job(rng)).collect()),
        };
        let node = tree.task(parents[rng.below(parents.len() as u64) as usize], spec);
        for &from in &above {
            let _ = tree.channel(from, node, 3 * rng.below(2) as u32);
        }
        nodes.push(node);
        // No two events at one instant but those that the engine makes so.
        let offset = Span::from_ns(number * 1_700_000);
        let arrivals = Arrivals::Periodic { offset, period: ms(60), jitter: Span::ZERO };
        let own = above.is_empty();
        sources.push(if own { Source { arrivals, cost } } else { Source::activated(cost) });
    }
    (tree, Workload { sources, seed: rng.next() })
}

#[test]
fn steps_within_jobs_are_delivered_as_in_a_simulation() {
    let mut rng = Rng::new(17);
    let changes = vec![
        (at(40), Condition::Battery(4)),
        (at(90), Condition::Mode(1)),
        (at(130), Condition::Permitted(1)),
    ];
    let mut seen = [0; 7];
    let (mut events, mut cases) = (0, 0);
    for case in 0..400 {
        let (tree, workload) = system(&mut rng, 1 + (case % 3) as u32);
        if tree.check().is_err() {
            continue;
        }
        cases += 1;
        let until = at(240);
        let result =
            run_in(&tree, &workload, until, (Span::ZERO, Span::ZERO), changes.clone(), || {
                Span::ZERO
            });
        let simulated = simulate_in(&tree, &workload, until, changes.clone());
        if let Some(differs) = result.log.first_difference(&simulated) {
            panic!(
                "case {case}: {differs:?}\n{:?}\n{:?}\n{tree:?}\n{workload:?}",
                result.log.timed_events(),
                simulated.timed_events()
            );
        }
        events += simulated.events().count();
        for entry in &result.record {
            let crate::record::RecordKind::Event(event) = entry.kind else { continue };
            seen[match event {
                Event::Blocked { .. } => 0,
                Event::Woke { .. } => 1,
                Event::Locked { .. } => 2,
                Event::Unlocked { .. } => 3,
                Event::Pushed { .. } => 4,
                Event::Popped { .. } => 5,
                Event::PreemptionPoint { .. } => 6,
                _ => continue,
            }] += 1;
        }
        let orders = replay(&mut tree.build().expect("a valid tree"), &result.record);
        assert!(orders.unwrap_or_else(|differs| panic!("case {case}: {differs}")) > 0);
    }
    assert!(cases > 200 && events > 5_000, "{cases} cases, {events} turns: too little happens");
    assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
}

#[test]
fn late_dispatchers_of_all_features_record_what_a_fresh_engine_repeats() {
    let mut rng = Rng::new(23);
    for case in 0..100 {
        let (tree, workload) = system(&mut rng, 1 + (case % 3) as u32);
        if tree.check().is_err() {
            continue;
        }
        let mut late = Rng::new(case);
        let costs = (Span::from_ns(7_000), Span::from_ns(3_000));
        let result = run_in(&tree, &workload, at(240), costs, Vec::new(), || {
            Span::from_ns(late.below(3) * late.below(400_000))
        });
        let replayed = replay(&mut tree.build().expect("a valid tree"), &result.record);
        assert!(replayed.unwrap_or_else(|differs| panic!("case {case}: {differs}")) > 0);
    }
}

#[test]
fn y11_a_table_activates_jobs_in_its_versions() {
    let entry = |cpu, start, end, owner, version| TableEntry {
        version: Some(version),
        activates: true,
        ..TableEntry::new(cpu, ms(start), ms(end), owner)
    };
    let entries = vec![
        entry(0, 0, 10, 0, 0),
        entry(0, 20, 35, 0, 1),
        TableEntry { continues: true, version: None, ..entry(1, 5, 15, 1, 0) },
        TableEntry { activates: false, version: None, ..entry(1, 25, 35, 1, 0) },
    ];
    let table = PolicySpec::Table { hyperperiod: ms(40), entries };
    let mut tree = Tree::new(2, SchedulerSpec::new("root", table));
    let mut filter = TaskSpec::new("filter", ms(20));
    filter.versions = vec![Version::new("fast"), Version::new("slow")];
    let _ = tree.task(Tree::ROOT, filter);
    let _ = tree.task(Tree::ROOT, TaskSpec::new("plan", ms(40)));
    let work = |ms: u64| Cost::Constant(Work::from_ns(ms * 1_000_000));
    let sources = vec![
        Source::activated(Cost::Versions(vec![work(8), work(15)])),
        Source::activated(work(18)),
    ];
    let workload = Workload { sources, seed: 1 };
    let result =
        run_in(&tree, &workload, at(400), (Span::ZERO, Span::ZERO), Vec::new(), || Span::ZERO);
    assert_eq!(
        result.log.first_difference(&simulate_in(&tree, &workload, at(400), Vec::new())),
        None
    );
    assert_eq!(result.stops, 10, "`plan` is executed in two segments");
}
