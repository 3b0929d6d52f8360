//! Results of events, and refused trees. `talea-sim` compares schedules.

use super::super::{AcceleratorId, ResourceId};
use super::super::{
    Condition, Cpu, Engine, Event, Handled, Order, SchedulerSpec, Selection, TaskId, TaskSpec,
    Tree, TreeErrorKind, Version,
};
use super::Protocol;
use crate::sched::PolicySpec;
use crate::{Span, Time};
use alloc::vec;
use alloc::vec::Vec;

fn at(ns: u64) -> Time {
    Time::from_ns(ns)
}

fn spec(period: u64) -> TaskSpec {
    TaskSpec::new("t", Span::from_ns(period))
}

fn arrive(engine: &mut Engine, now: u64, task: u32) -> Handled {
    engine.handle(at(now), Event::Arrived { task: TaskId(task), arrival: at(now) })
}

fn orders(engine: &mut Engine, now: u64) -> Vec<Order> {
    let orders = core::iter::from_fn(|| engine.poll(at(now))).collect();
    engine.audit(at(now)).expect("invariants");
    orders
}

fn runs(task: u32, job: u64, version: u32) -> Order {
    Order::Run { cpu: Cpu(0), task: TaskId(task), job, version }
}

#[test]
fn y6_an_order_names_the_version() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.selection = Selection::Energy;
    let energy = |energy| Version { energy, ..Version::new("v") };
    tree.task(Tree::ROOT, TaskSpec { versions: vec![energy(5), energy(12)], ..spec(100) });
    let mut engine = tree.build().expect("a tree");
    for (now, battery, version) in [(0, 12, 1), (10, 11, 0), (20, 3, 0)] {
        assert_eq!(
            engine.handle(at(now), Event::Changed(Condition::Battery(battery))),
            Handled::Done
        );
        assert_eq!(arrive(&mut engine, now, 0), Handled::Done);
        assert_eq!(orders(&mut engine, now), [runs(0, now / 10, version)]);
        assert_eq!(engine.handle(at(now + 5), Event::Completed { task: TaskId(0) }), Handled::Done);
        assert_eq!(orders(&mut engine, now + 5), [Order::Idle { cpu: Cpu(0) }]);
    }
}

#[test]
fn y8_a_contended_lock_waits_and_is_held_when_the_job_resumes() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let r = tree.resource("r", Protocol::Inheritance);
    tree.task(Tree::ROOT, TaskSpec { uses: vec![r], ..spec(100) });
    tree.task(Tree::ROOT, TaskSpec { uses: vec![r], ..spec(50) });
    let mut engine = tree.build().expect("a tree");
    let locked = |task| Event::Locked { task: TaskId(task), resource: r };
    let unlocked = |task| Event::Unlocked { task: TaskId(task), resource: r };
    let _ = arrive(&mut engine, 0, 0);
    assert_eq!(orders(&mut engine, 0), [runs(0, 0, 0)]);
    assert_eq!(engine.handle(at(1), locked(0)), Handled::Done);
    assert_eq!(engine.resource_holder(r), Some(TaskId(0)));
    let _ = arrive(&mut engine, 2, 1);
    assert_eq!(orders(&mut engine, 2), [runs(1, 0, 0)]);
    assert_eq!(engine.handle(at(3), locked(1)), Handled::Waits);
    assert_eq!(orders(&mut engine, 3), [runs(0, 0, 0)]);
    assert_eq!(engine.handle(at(4), unlocked(0)), Handled::Done);
    assert_eq!(engine.resource_holder(r), None);
    assert_eq!(orders(&mut engine, 4), [runs(1, 0, 0)]);
    assert_eq!(engine.resource_holder(r), Some(TaskId(1)));
    // Resources held at completion are released.
    let _ = engine.handle(at(5), Event::Completed { task: TaskId(1) });
    assert_eq!(engine.resource_holder(r), None);
    assert_eq!(orders(&mut engine, 5), [runs(0, 0, 0)]);
}

#[test]
fn y8_a_resource_released_at_the_instant_of_its_request_costs_no_switch() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    let r = tree.resource("r", Protocol::None);
    for period in [100, 50] {
        tree.task(Tree::ROOT, TaskSpec { uses: vec![r], ..spec(period) });
    }
    let mut engine = tree.build().expect("a tree");
    let _ = (arrive(&mut engine, 0, 0), arrive(&mut engine, 0, 1));
    assert_eq!(orders(&mut engine, 0).len(), 2);
    let _ = engine.handle(at(1), Event::Locked { task: TaskId(0), resource: r });
    assert_eq!(
        engine.handle(at(2), Event::Locked { task: TaskId(1), resource: r }),
        Handled::Waits
    );
    let _ = engine.handle(at(2), Event::Unlocked { task: TaskId(0), resource: r });
    assert_eq!(orders(&mut engine, 2), []);
    assert_eq!(engine.resource_holder(r), Some(TaskId(1)));
}

#[test]
fn y14_a_stopped_engine_accepts_no_job() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.task(Tree::ROOT, spec(100));
    let mut engine = tree.build().expect("a tree");
    let _ = arrive(&mut engine, 0, 0);
    let _ = engine.handle(at(1), Event::Stopped);
    assert_eq!(arrive(&mut engine, 2, 0), Handled::Stopped);
    assert!(!engine.is_drained());
    assert_eq!(orders(&mut engine, 2), [runs(0, 0, 0)]);
    let _ = engine.handle(at(3), Event::Completed { task: TaskId(0) });
    assert!(engine.is_drained());
}

#[test]
fn y1_unknown_or_too_many_accelerators_versions_and_resources_are_refused() {
    let refused = |change: &dyn Fn(&mut Tree, &mut TaskSpec)| {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut task = spec(100);
        change(&mut tree, &mut task);
        tree.task(Tree::ROOT, task);
        tree.check().err().map(|wrong| wrong.kind)
    };
    let needs = |id| Version { accelerators: vec![AcceleratorId(id)], ..Version::new("v") };
    assert_eq!(refused(&|_, _| {}), None);
    assert_eq!(
        refused(&|_, task| task.versions = vec![needs(0)]),
        Some(TreeErrorKind::Unknown { what: "accelerator", number: 0 })
    );
    assert_eq!(
        refused(&|_, task| task.uses = vec![ResourceId(3)]),
        Some(TreeErrorKind::Unknown { what: "resource", number: 3 })
    );
    let many = |task: &mut TaskSpec, n| task.versions = (0..n).map(|_| Version::new("v")).collect();
    assert_eq!(refused(&|_, task| many(task, 64)), None);
    assert_eq!(
        refused(&|_, task| many(task, 65)),
        Some(TreeErrorKind::TooMany { what: "versions", most: 64 })
    );
    let gpus = |tree: &mut Tree, n| (0..n).for_each(|_| _ = tree.accelerator("gpu"));
    assert_eq!(refused(&|tree, _| gpus(tree, 64)), None);
    assert_eq!(
        refused(&|tree, _| gpus(tree, 65)),
        Some(TreeErrorKind::TooMany { what: "accelerators", most: 64 })
    );
    let weigh = |tree: &mut Tree, weight| tree.selection = Selection::TradeOff { weight };
    assert_eq!(refused(&|tree, _| weigh(tree, 1_000)), None);
    assert_eq!(refused(&|tree, _| weigh(tree, 1_001)), Some(TreeErrorKind::Weight(1_001)));
}

#[test]
fn y7_the_last_of_64_accelerators_and_of_64_versions_behave_like_the_others() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let all: Vec<AcceleratorId> = (0..64).map(|_| tree.accelerator("a")).collect();
    tree.selection = Selection::User(|of| of.iter().next_back().map(|(at, _)| at));
    let version = |_| Version { accelerators: all.clone(), ..Version::new("v") };
    tree.task(Tree::ROOT, TaskSpec { versions: (0..64).map(version).collect(), ..spec(100) });
    let mut engine = tree.build().expect("a tree");
    let _ = arrive(&mut engine, 0, 0);
    assert_eq!(orders(&mut engine, 0), [runs(0, 0, 63)]);
    assert!(all.iter().all(|&id| engine.accelerator_holder(id) == Some(TaskId(0))));
    let _ = engine.handle(at(1), Event::Completed { task: TaskId(0) });
    assert!(all.iter().all(|&id| engine.accelerator_holder(id).is_none()));
}
