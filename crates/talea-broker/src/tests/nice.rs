//! Nice values of threads without a grant.

use super::stage::{Words, setup, urgent, world_of};
use crate::input::{SessionId, Uids};
use crate::sim::{Simulation, Target};
use crate::trail::AuditEvent;
use talea_core::Policy;
use talea_core::setup::{Access, Bound, Domain, Rule, Setup};
use talea_proto::{Code, Field, Reply, Request, ThreadRef};

fn rule(domain: Domain, bound: Bound) -> Rule {
    Rule { domain, plugin: None, bound, origin: "talead.toml:4".to_owned() }
}

/// A setup in which user 1000 may have nice values from -11, and nothing else.
fn ruled(rules: Vec<Rule>) -> Setup {
    Setup { access: Access::Rules, rules, ..setup(&["fp"], 2) }
}

fn world() -> Simulation {
    world_of(ruled(vec![rule(Domain::User(1000), Bound::MinNice(-11))]), 2)
}

fn nice(world: &mut Simulation, session: SessionId, tid: u32, nice: i8) -> Reply {
    let request = Request::Nice { nice, thread: ThreadRef::Pidfd };
    world.call_about(session, request, Some(Target::Thread(tid)))
}

fn refused(world: &mut Simulation, session: SessionId, tid: u32, value: i8) -> (Code, u64, u64) {
    match nice(world, session, tid, value) {
        Reply::Refused(no) => (no.code, no.asked, no.limit),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_rule_bounds_nice_values_and_allows_nothing_else() {
    let mut world = world();
    let (alice, mallory) = (world.connect(1000), world.connect(1001));
    let (hers, other) = (world.tid_of(alice), world.tid_of(mallory));
    assert_eq!(nice(&mut world, alice, hers, -11), Reply::Done);
    let attr = world.attr_of(hers);
    assert_eq!((attr.policy, attr.reset_on_fork), (Policy::Other { nice: -11 }, true));
    assert_eq!(nice(&mut world, alice, hers, 5), Reply::Done);
    assert_eq!(refused(&mut world, alice, hers, -12), (Code::RuleBound, 32, 31));
    assert_eq!(refused(&mut world, mallory, other, 0), (Code::NotAllowed, 20, 0));
    let no = world.refused(alice, Request::Create(urgent(1)));
    assert_eq!(no.code, Code::NotAllowed, "a nice value is no real time");
    assert_eq!(world.attr_of(hers).policy, Policy::Other { nice: 5 });
    world.check_idle(false);
}

#[test]
fn of_several_rules_the_highest_nice_value_binds_and_root_is_free() {
    let of_all = rule(Domain::Global, Bound::MinNice(-5));
    let own = rule(Domain::User(1000), Bound::MinNice(-11));
    for rules in [vec![of_all.clone(), own.clone()], vec![own, of_all]] {
        let mut world = world_of(ruled(rules), 2);
        let (alice, root) = (world.connect(1000), world.connect(0));
        let hers = world.tid_of(alice);
        assert_eq!(refused(&mut world, alice, hers, -6), (Code::RuleBound, 26, 25));
        assert_eq!(nice(&mut world, alice, hers, -5), Reply::Done);
        assert_eq!(nice(&mut world, root, hers, -20), Reply::Done);
    }
}

#[test]
fn threads_of_others_and_threads_with_a_grant_keep_their_attributes() {
    let mut setup = ruled(vec![rule(Domain::Global, Bound::MinNice(-11))]);
    setup.rules.push(rule(Domain::Global, Bound::AllowUnbounded(true)));
    let mut world = world_of(setup, 2);
    let (alice, mallory) = (world.connect(1000), world.connect(1001));
    let (hers, other) = (world.tid_of(alice), world.tid_of(mallory));
    assert_eq!(refused(&mut world, alice, other, -1), (Code::ForeignThread, 1001, 1000));
    let now = world.now;
    let uids = Uids { saved: 0, ..Uids::all(1001) };
    world.kernel.change_credentials(other, uids, now);
    assert_eq!(refused(&mut world, mallory, other, -1), (Code::ForeignThread, 0, 1001));
    let granted = world.attached(alice, urgent(5), hers);
    let before = world.attr_of(hers);
    assert_eq!(refused(&mut world, alice, hers, -1).0, Code::ThreadTaken);
    assert_eq!(world.attr_of(hers), before);
    world.done(alice, Request::Release(granted.spec));
    assert_eq!(nice(&mut world, alice, hers, -1), Reply::Done);
    assert!(matches!(
        nice(&mut world, alice, 99_999, -1),
        Reply::Refused(no) if no.code == Code::NoSuchThread
    ));
    assert!(matches!(
        world.call(alice, Request::Nice { nice: -1, thread: ThreadRef::Pidfd }),
        Reply::Refused(no) if (no.code, no.field) == (Code::Malformed, Field::Thread)
    ));
    world.check_idle(false);
}

#[test]
fn a_nice_value_is_on_the_audit_trail() {
    let mut world = world();
    let alice = world.connect(1000);
    let hers = world.tid_of(alice);
    assert_eq!(nice(&mut world, alice, hers, -3), Reply::Done);
    let trail = world.take_trail();
    let record = trail.iter().find(|record| record.event == AuditEvent::Nice { nice: -3 });
    let record = record.expect("a record");
    assert_eq!((record.uid, record.thread.map(|thread| thread.tid)), (1000, Some(hers)));
    assert_eq!(record.rule.as_deref(), Some("talead.toml:4"));
}
