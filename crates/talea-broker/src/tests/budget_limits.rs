//! Limits of FIFO and RR threads.

use super::stage::{MS, Words, by, setup, timed, urgent, world, world_of};
use crate::input::{Input, Limit};
use crate::sim::Simulation;
use talea_core::setup::{Access, Bound, Domain, OnOverrun, Rule};
use talea_core::{Span, Work};
use talea_proto::message::Notes;
use talea_proto::{Reply, Request, SpecId};

fn limit_of(world: &Simulation, spec: SpecId) -> Option<Limit> {
    let thread = world.broker.thread_of(spec).expect("a thread is attached");
    world.limits.get(&thread).copied()
}

#[test]
fn a_declared_runtime_limits_a_fifo_thread_and_the_kernel_limits_a_deadline_thread() {
    let mut world = world();
    world.kernel.spawn(500, 1000);
    let session = world.connect(1000);
    for (tid, plugin) in [(500, "rm"), (501, "fp"), (502, "rr")] {
        world.kernel.spawn(tid, 1000);
        let mut task = by(timed(1_000, 10_000), plugin);
        task.params.priority = urgent(5).params.priority;
        let granted = world.attached(session, task, tid);
        let limit = limit_of(&world, granted.spec).expect(plugin);
        assert_eq!(
            (limit.budget, limit.period, limit.on_overrun, limit.uid),
            (Work::from_ns(MS), Span::from_ns(10 * MS), OnOverrun::Throttle, 1000)
        );
        assert!(!granted.notes.contains(Notes::BUDGET_NOT_ENFORCED));
        assert!(!granted.granularity.is_zero());
    }
    world.kernel.spawn(510, 1000);
    let deadline = world.attached(session, by(timed(1_000, 10_000), "edf"), 510);
    assert_eq!(limit_of(&world, deadline.spec), None);
    assert!(!deadline.notes.contains(Notes::UNLIMITED));
    world.kernel.spawn(511, 1000);
    let unlimited = world.attached(session, by(urgent(5), "fp"), 511);
    assert_eq!(limit_of(&world, unlimited.spec), None);
    assert!(unlimited.notes.contains(Notes::UNLIMITED));
}

#[test]
fn a_change_and_a_detach_change_the_limit() {
    let mut world = world();
    world.kernel.spawn(500, 1000);
    let session = world.connect(1000);
    let granted = world.attached(session, by(timed(1_000, 10_000), "rm"), 500);
    let change = Request::Change { spec: granted.spec, task: by(timed(2_000, 20_000), "rm") };
    assert!(matches!(world.call(session, change), Reply::Granted(_)));
    let limit = limit_of(&world, granted.spec).expect("a limit");
    assert_eq!((limit.budget.as_ns(), limit.period.as_ns()), (2 * MS, 20 * MS));
    world.done(session, Request::Detach(granted.spec));
    assert!(world.limits.is_empty());
}

#[test]
fn a_rule_selects_the_reaction_and_a_demoted_thread_is_restored() {
    let mut rules = setup(&["rm"], 1);
    rules.access = Access::Rules;
    let rule = |bound| Rule { domain: Domain::Global, plugin: None, bound, origin: String::new() };
    rules.rules =
        vec![rule(Bound::OnOverrun(OnOverrun::Demote)), rule(Bound::OnOverrun(OnOverrun::Notify))];
    let mut world = world_of(rules, 1);
    world.kernel.spawn(500, 1000);
    let session = world.connect(1000);
    let granted = world.attached(session, by(timed(1_000, 10_000), "rm"), 500);
    let limit = limit_of(&world, granted.spec).expect("a limit");
    assert_eq!(limit.on_overrun, OnOverrun::Demote, "the strictest rule");
    let thread = world.broker.thread_of(granted.spec).expect("a thread is attached");
    world.handle_input(Input::Overrun { thread });
    world.run_until_idle();
    let info = world.query(session, granted.spec).expect("the spec stays");
    assert_eq!(info.tid, None);
    let found = &world.kernel.threads[&500];
    assert_eq!(found.attr, found.own, "the thread is restored");
}
