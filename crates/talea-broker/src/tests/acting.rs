//! Front ends: connections that act for another user.

use super::stage::{Words, by, owned, setup, urgent, world_of};
use crate::input::{SessionId, Uids};
use crate::sim::{Simulation, Target};
use crate::trail::AuditEvent;
use talea_core::setup::{Access, Bound, Domain, Rule, Setup};
use talea_core::{Priority, Span};
use talea_proto::message::Notes;
use talea_proto::{Code, Field, Owner, Reply, Request, ThreadRef};

/// User of the front end.
const FRONT_END: u32 = 600;

/// A setup in which user 1000 may use `fp` up to priority 20, and user 600 is a front end.
fn setup_with_front_end() -> Setup {
    let rule = |bound| Rule {
        domain: Domain::User(1000),
        plugin: Some(0),
        bound,
        origin: "talead.toml:9".to_owned(),
    };
    Setup {
        access: Access::Rules,
        rules: vec![rule(Bound::MaxPriority(Priority(20))), rule(Bound::AllowUnbounded(true))],
        front_ends: vec![FRONT_END],
        ..setup(&["fp"], 2)
    }
}

fn world() -> Simulation {
    world_of(setup_with_front_end(), 2)
}

fn act(world: &mut Simulation, session: SessionId, tid: u32, uid: u32) -> Reply {
    world.call_about(session, Request::ActFor { uid }, Some(Target::Thread(tid)))
}

fn refused(world: &mut Simulation, session: SessionId, tid: u32, uid: u32) -> (Code, u64, u64) {
    match act(world, session, tid, uid) {
        Reply::Refused(no) => (no.code, no.asked, no.limit),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_front_end_has_the_rules_of_the_user_that_it_acts_for() {
    let mut world = world();
    let (alice, mallory) = (world.connect(1000), world.connect(1001));
    let front_end = world.connect(FRONT_END);
    let (hers, other) = (world.tid_of(alice), world.tid_of(mallory));
    let own = world.refused(front_end, Request::Create(urgent(5)));
    assert_eq!(own.code, Code::NotAllowed, "the front end itself has no rule");
    assert_eq!(act(&mut world, front_end, hers, 1000), Reply::Done);
    let above = world.refused(front_end, Request::Create(by(urgent(21), "fp")));
    assert_eq!((above.code, above.field, above.limit), (Code::RuleBound, Field::Priority, 20));
    let granted = world.create(front_end, owned(urgent(5), Owner::Thread));
    let thread = Request::Attach { spec: granted.spec, thread: ThreadRef::Pidfd };
    let foreign = world.call_about(front_end, thread.clone(), Some(Target::Thread(other)));
    assert!(
        matches!(&foreign, Reply::Refused(no) if no.code == Code::ForeignThread),
        "{foreign:?}"
    );
    assert_eq!(world.call_about(front_end, thread, Some(Target::Thread(hers))), Reply::Done);
    world.close_connection(front_end);
    world.run_until_idle();
    assert!(world.attr_of(hers).policy.is_real_time(), "the thread owns the grant");
    let seen = world.query(alice, granted.spec).expect("the grant is that of user 1000");
    assert_eq!((seen.uid, seen.pid, seen.tid), (1000, hers, Some(hers)));
    world.check_idle(false);
}

#[test]
fn a_grant_shows_that_a_front_end_asked_also_after_a_restart_of_the_daemon() {
    let mut world = world();
    let (alice, front_end) = (world.connect(1000), world.connect(FRONT_END));
    let (hers, other) = (world.tid_of(alice), 500);
    let before = world.attr_of(hers);
    world.kernel.spawn_thread(other, hers, before);
    let own = world.attached(alice, owned(urgent(6), Owner::Thread), other);
    assert_eq!(act(&mut world, front_end, hers, 1000), Reply::Done);
    let asked = world.attached(front_end, owned(urgent(5), Owner::Thread), hers);
    let marks = |world: &mut Simulation, session| {
        [own.spec, asked.spec].map(|spec| {
            let notes = world.query(session, spec).expect("a grant").granted.notes;
            notes.contains(Notes::FRONT_END)
        })
    };
    assert_eq!(marks(&mut world, alice), [false, true]);
    world.restart();
    let alice = world.connect(1000);
    assert_eq!(marks(&mut world, alice), [false, true]);
}

#[test]
fn only_a_listed_front_end_and_root_act_for_another_user() {
    let mut world = world();
    let (alice, mallory, root) = (world.connect(1000), world.connect(1001), world.connect(0));
    let hers = world.tid_of(alice);
    assert_eq!(refused(&mut world, mallory, hers, 1000), (Code::NotFrontEnd, 1001, 1000));
    assert_eq!(act(&mut world, root, hers, 1000), Reply::Done);
    assert_eq!(world.refused(root, Request::Stop { release: false }).code, Code::NotRoot);
    let mut closed = setup_with_front_end();
    closed.front_ends.clear();
    let mut world = world_of(closed, 2);
    let (alice, front_end) = (world.connect(1000), world.connect(FRONT_END));
    let hers = world.tid_of(alice);
    assert_eq!(refused(&mut world, front_end, hers, 1000), (Code::NotFrontEnd, 600, 1000));
}

#[test]
fn no_connection_acts_for_root_or_for_a_process_of_two_users() {
    let mut world = world();
    let (alice, root) = (world.connect(1000), world.connect(0));
    let front_end = world.connect(FRONT_END);
    let (hers, roots) = (world.tid_of(alice), world.tid_of(root));
    assert_eq!(refused(&mut world, front_end, roots, 0), (Code::NotFrontEnd, 600, 0));
    assert_eq!(refused(&mut world, front_end, roots, 1000), (Code::ForeignThread, 0, 1000));
    assert_eq!(refused(&mut world, front_end, hers, 1001), (Code::ForeignThread, 1000, 1001));
    let now = world.now;
    let uids = Uids { real: 1000, effective: 0, saved: 0 };
    world.kernel.change_credentials(hers, uids, now);
    assert_eq!(refused(&mut world, front_end, hers, 1000), (Code::ForeignThread, 0, 1000));
    assert!(matches!(
        world.call(front_end, Request::ActFor { uid: 1000 }),
        Reply::Refused(no) if no.code == Code::Malformed
    ));
}

#[test]
fn a_connection_acts_for_one_process_only_and_not_with_a_spec_of_its_own() {
    let mut world = world();
    let (alice, bob, root) = (world.connect(1000), world.connect(1001), world.connect(0));
    let front_end = world.connect(FRONT_END);
    let (hers, his) = (world.tid_of(alice), world.tid_of(bob));
    assert_eq!(act(&mut world, front_end, hers, 1000), Reply::Done);
    assert_eq!(refused(&mut world, front_end, his, 1001), (Code::NotFrontEnd, 600, 1001));
    world.create(root, urgent(5));
    assert_eq!(refused(&mut world, root, hers, 1000), (Code::NotFrontEnd, 0, 1000));
    world.check_idle(false);
}

#[test]
fn an_acting_connection_is_charged_to_the_user_and_ends_with_the_process() {
    let mut setup = setup_with_front_end();
    setup.quota.sessions_per_user = 2;
    let mut world = world_of(setup, 2);
    let alice = world.connect(1000);
    let hers = world.tid_of(alice);
    let (first, second) = (world.connect(FRONT_END), world.connect(FRONT_END));
    assert_eq!(act(&mut world, first, hers, 1000), Reply::Done);
    assert_eq!(refused(&mut world, second, hers, 1000), (Code::Quota, 3, 2));
    let third = world.connect(FRONT_END);
    assert!(world.connections.contains_key(&third), "the first is no longer charged to 600");
    let now = world.now;
    world.kernel.end_process(hers, now);
    world.close_connection(alice);
    world.run_until_idle();
    assert!(!world.connections.contains_key(&first), "its process has ended");
    assert!(world.connections.contains_key(&second));
    world.advance(Span::from_ns(1));
    world.check_idle(false);
}

#[test]
fn the_audit_trail_names_the_user_and_the_front_end() {
    let mut world = world();
    let (alice, front_end) = (world.connect(1000), world.connect(FRONT_END));
    let hers = world.tid_of(alice);
    assert_eq!(act(&mut world, front_end, hers, 1000), Reply::Done);
    world.refused(front_end, Request::Create(by(urgent(21), "fp")));
    world.attached(front_end, urgent(5), hers);
    let of = |event: &AuditEvent| {
        matches!(event, AuditEvent::Grant { .. } | AuditEvent::Attach | AuditEvent::Refusal { .. })
    };
    let trail = world.take_trail();
    let found: Vec<_> = trail.iter().filter(|record| of(&record.event)).collect();
    assert_eq!(found.len(), 3);
    assert!(
        found.iter().all(|r| (r.uid, r.process.pid, r.by) == (1000, hers, Some(FRONT_END))),
        "{found:?}"
    );
}
