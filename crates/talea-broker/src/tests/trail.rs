//! Audit trail: each event yields one record, and floods are counted completely.

use super::stage::{MS, Words, by, setup, timed, urgent, world, world_of};
use crate::input::{Input, SessionId, Uids};
use crate::sim::Simulation;
use crate::subjects::Subject;
use crate::trail::{AuditEvent, AuditRecord, AuditThread, DemotionCause, Seen, SpecEnd, ThreadEnd};
use talea_core::setup::{Access, Bound, Domain, OnOverrun, Rule};
use talea_core::{Attr, Charge, CpuSet, Policy, Priority, Span, Work};
use talea_proto::message::DetachCause;
use talea_proto::{Code, Counters, Owner, Reply, Request, SpecId, Task, VERSION};

/// Returns the events of the records since the last call.
fn events(world: &mut Simulation) -> Vec<AuditEvent> {
    records(world).into_iter().map(|record| record.event).collect()
}

/// Returns the records since the last call.
fn records(world: &mut Simulation) -> Vec<AuditRecord> {
    world.handle_input(Input::Timer);
    world.take_trail()
}

fn detach(end: ThreadEnd) -> AuditEvent {
    AuditEvent::Detach(end)
}

fn demotion(cause: DetachCause) -> AuditEvent {
    AuditEvent::Demotion(DemotionCause::Detached(cause))
}

/// Returns a world with rules that serve user 1000, with the given reaction to overruns.
fn ruled(on_overrun: OnOverrun) -> Simulation {
    let mut rules = setup(&["rm", "fp"], 2);
    rules.access = Access::Rules;
    let rule = |bound, origin: &str| Rule {
        domain: Domain::User(1000),
        plugin: None,
        bound,
        origin: origin.to_owned(),
    };
    rules.rules = vec![
        rule(Bound::OnOverrun(on_overrun), "talead.toml:7"),
        rule(Bound::MaxUtilization(Charge::ratio(1, 2)), "talead.toml:9"),
    ];
    world_of(rules, 2)
}

#[test]
fn the_counters_have_each_event_of_the_trail_and_each_refusal_by_its_code() {
    let mut world = ruled(OnOverrun::Throttle);
    let alice = world.connect(1000);
    world.kernel.spawn(500, 1000);
    let granted = world.attached(alice, by(timed(1_000, 10_000), "rm"), 500);
    for spec in [granted.spec, SpecId(4_711), SpecId(4_712)] {
        world.call(alice, Request::Release(spec));
    }
    let Reply::Counters(found) = world.call(alice, Request::Counters) else { panic!("counters") };
    let mut expected =
        Counters { grants: 1, attaches: 1, detaches: 1, releases: 1, ..Counters::default() };
    expected.refusals[Code::NoSuchSpec as usize] = 2;
    assert_eq!(*found, expected);
    assert_eq!(world.broker.status().refused, 2);
}

#[test]
fn a_grant_and_its_end_are_one_record_each_with_process_thread_and_rule() {
    let mut world = ruled(OnOverrun::Throttle);
    let alice = world.connect(1000);
    let process = world.connections[&alice].process;
    world.kernel.spawn(500, 1000);
    let granted = world.attached(alice, by(timed(1_000, 10_000), "rm"), 500);
    let found = records(&mut world);
    let thread = world.kernel.open(500).expect("the thread lives");
    world.kernel.close(thread.thread);
    let expected = AuditRecord {
        subject: Some(Subject::user(1000)),
        first: found[0].first,
        last: found[0].last,
        count: 1,
        uid: 1000,
        process,
        spec: granted.spec,
        plugin: talea_proto::message::Name::new("rm"),
        rule: Some("talead.toml:7".into()),
        thread: None,
        by: None,
        event: AuditEvent::Grant { cpu: granted.cpu },
    };
    assert!(process.start != 0 && thread.start != 0, "start times are part of the identity");
    let of_thread =
        AuditThread { tid: 500, tgid: thread.tgid, start: thread.start, inode: thread.inode };
    let attach = AuditRecord {
        first: found[1].first,
        last: found[1].last,
        thread: Some(of_thread),
        event: AuditEvent::Attach,
        ..expected.clone()
    };
    assert_eq!(found, [expected, attach]);
    world.done(alice, Request::Release(granted.spec));
    let end = AuditEvent::Release(SpecEnd::Requested);
    let found = records(&mut world);
    assert_eq!(found[0].thread, Some(of_thread));
    let found: Vec<AuditEvent> = found.into_iter().map(|record| record.event).collect();
    assert_eq!(found, [detach(ThreadEnd::Requested), end]);
}

#[test]
fn each_end_of_a_grant_has_its_cause() {
    let mut world = world();
    let (alice, root) = (world.connect(1000), world.connect(0));
    let start = |world: &mut Simulation, tid: u32| {
        world.kernel.spawn(tid, 1000);
        let granted = world.attached(alice, urgent(5), tid);
        let begun = events(world);
        assert!(matches!(begun[..], [AuditEvent::Grant { .. }, AuditEvent::Attach]), "{begun:?}");
        granted.spec
    };
    let spec = start(&mut world, 500);
    world.done(alice, Request::Detach(spec));
    assert_eq!(events(&mut world), [detach(ThreadEnd::Requested)]);
    world.done(alice, Request::Release(spec));
    assert_eq!(events(&mut world), [AuditEvent::Release(SpecEnd::Requested)]);
    // The superuser ends the grant of a user.
    let spec = start(&mut world, 501);
    world.done(root, Request::Release(spec));
    let found = records(&mut world);
    assert!(found.iter().all(|record| (record.uid, record.by) == (1000, Some(0))), "{found:?}");
    let found: Vec<AuditEvent> = found.into_iter().map(|record| record.event).collect();
    let demotion = AuditEvent::Demotion(DemotionCause::Administrator);
    assert_eq!(found, [demotion, AuditEvent::Release(SpecEnd::Administrator)]);
    // The thread exits.
    let spec = start(&mut world, 502);
    world.kernel.end_thread(502, world.now);
    while world.deliver_exit() {}
    world.run_until_idle();
    assert_eq!(events(&mut world), [detach(ThreadEnd::Exited)]);
    world.done(alice, Request::Release(spec));
    events(&mut world);
    // The connection ends.
    start(&mut world, 503);
    world.close_connection(alice);
    world.run_until_idle();
    let end = AuditEvent::Release(SpecEnd::OwnerEnded);
    assert_eq!(events(&mut world), [detach(ThreadEnd::OwnerEnded), end]);
    // The daemon stops.
    let bob = world.connect(1001);
    world.kernel.spawn(504, 1001);
    world.attached(bob, urgent(5), 504);
    events(&mut world);
    world.done(root, Request::Stop { release: true });
    let end = AuditEvent::Release(SpecEnd::Stopped);
    assert_eq!(events(&mut world), [detach(ThreadEnd::Stopped), end]);
}

#[test]
fn a_change_and_a_claim_and_an_adoption_are_recorded() {
    let mut world = world();
    let alice = world.connect(1000);
    world.kernel.spawn(500, 1000);
    let task = Task { owner: Owner::Process, ..by(timed(1_000, 10_000), "rm") };
    let granted = world.attached(alice, task, 500);
    events(&mut world);
    let change = Request::Change { spec: granted.spec, task: by(timed(2_000, 10_000), "rm") };
    world.call(alice, change);
    assert!(matches!(events(&mut world)[..], [AuditEvent::Change { .. }]));
    world.restart();
    world.run_until_idle();
    assert_eq!(events(&mut world), [AuditEvent::Adopt { has_thread: true }]);
    let alice = world.connect(1000);
    world.call(alice, Request::Claim { spec: granted.spec, token: granted.token });
    assert_eq!(events(&mut world), [AuditEvent::Claim]);
    world.check_idle(false);
}

#[test]
fn a_failed_attach_is_a_refusal_only() {
    let mut world = world();
    let alice = world.connect(1000);
    world.kernel.spawn(500, 1000);
    let granted = world.create(alice, urgent(5));
    events(&mut world);
    world.next_errors.push_back(crate::input::Errno(1));
    world.attach(alice, granted.spec, 500);
    world.run_until_idle();
    let found = records(&mut world);
    let [AuditRecord { spec, event: AuditEvent::Refusal { request, code, errno, .. }, .. }] =
        &found[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!((*spec, *request, *code, errno.0), (granted.spec, "attach", Code::Kernel, 1));
    world.check_idle(false);
}

#[test]
fn a_drift_is_recorded_with_what_was_seen_and_a_demotion_with_its_cause() {
    let mut world = world();
    let alice = world.connect(1000);
    let session = |world: &mut Simulation, tid: u32| {
        world.kernel.spawn(tid, 1000);
        world.attached(alice, urgent(5), tid);
        events(world);
    };
    session(&mut world, 500);
    world.kernel.change_credentials(500, Uids::all(7), world.now);
    world.report_credentials(500);
    world.run_until_idle();
    let drift = AuditEvent::Drift(Box::new(Seen::Uids(Uids::all(7))));
    assert_eq!(events(&mut world), [drift, demotion(DetachCause::Credentials)]);
    session(&mut world, 501);
    let given = world.attr_of(501);
    let moved = Attr { cpus: CpuSet::first(2), ..given };
    let inspect = |world: &mut Simulation, attr: Attr| {
        world.kernel.set_outside(501, attr, world.now);
        world.advance(Span::from_ns(200 * MS));
        world.run_until_idle();
        events(world)
    };
    let drift = |attr| AuditEvent::Drift(Box::new(Seen::Attr(attr)));
    assert_eq!(inspect(&mut world, moved), [drift(moved)]);
    let twice = inspect(&mut world, moved);
    assert_eq!(twice, [drift(moved), demotion(DetachCause::Affinity)]);
    session(&mut world, 502);
    let other = Attr { policy: Policy::Fifo(Priority(99)), ..world.attr_of(502) };
    world.kernel.set_outside(502, other, world.now);
    world.advance(Span::from_ns(200 * MS));
    world.run_until_idle();
    assert_eq!(events(&mut world), [drift(other), demotion(DetachCause::Policy)]);
}

#[test]
fn overruns_are_recorded_once_with_budget_and_consumption() {
    let mut world = ruled(OnOverrun::Demote);
    let alice = world.connect(1000);
    world.kernel.spawn(500, 1000);
    let granted = world.attached(alice, by(timed(1_000, 10_000), "rm"), 500);
    let thread = world.broker.thread_of(granted.spec).expect("it is attached");
    events(&mut world);
    let overran = |world: &mut Simulation, overruns: u64| {
        world.handle_input(Input::Overran { thread, overruns, consumed: Work::from_ns(MS + 9) });
    };
    overran(&mut world, 3);
    // The same number again: nothing new.
    overran(&mut world, 3);
    overran(&mut world, 4);
    let found = records(&mut world);
    let counts: Vec<u64> = found.iter().map(|record| record.count).collect();
    assert_eq!(counts, [3, 1]);
    let (budget, period) = (Work::from_ns(MS), Span::from_ns(10 * MS));
    let event = AuditEvent::Overrun { consumed: Work::from_ns(MS + 9), budget, period };
    assert!(found.iter().all(|record| record.event == event), "{found:?}");
    world.handle_input(Input::Overrun { thread });
    // Reported late: the limit has ended, the thread has not.
    overran(&mut world, 5);
    world.run_until_idle();
    let found = events(&mut world);
    assert_eq!(found, [event, AuditEvent::Demotion(DemotionCause::Overrun)]);
}

/// Sends refused requests within one second.
fn flood(world: &mut Simulation, session: SessionId, count: u64) {
    for number in 0..count {
        world.refused(session, Request::Query(SpecId(1_000_000 + number)));
    }
}

#[test]
fn equal_refusals_are_one_record_and_one_count() {
    let mut world = world();
    let (alice, bob) = (world.connect(1000), world.connect(1001));
    flood(&mut world, alice, 500);
    flood(&mut world, bob, 1);
    let found = records(&mut world);
    assert_eq!(found.len(), 2, "the first one of each user: {found:?}");
    world.advance(Span::from_ns(1_000 * MS));
    let found = records(&mut world);
    let [AuditRecord { count, uid, first, last, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((*count, *uid), (499, 1000));
    assert!(first <= last);
    // Without further refusals there is no further record, and no timer.
    world.advance(Span::from_ns(3_000 * MS));
    assert!(records(&mut world).is_empty());
}

#[test]
fn a_flood_of_grants_is_counted_and_displaces_no_record_of_another_user() {
    let mut world = world();
    let (alice, bob) = (world.connect(1000), world.connect(1001));
    for _ in 0..400 {
        let granted = world.create(alice, urgent(5));
        world.done(alice, Request::Release(granted.spec));
    }
    let granted = world.create(bob, urgent(5));
    world.advance(Span::from_ns(1_000 * MS));
    let found = records(&mut world);
    assert!(found.len() <= 128 + 2 + 1, "{} records", found.len());
    let sum = |uid: u32, wanted: fn(&AuditEvent) -> bool| -> u64 {
        let of_uid = found.iter().filter(|r| r.uid == uid && wanted(&r.event));
        of_uid.map(|record| record.count).sum()
    };
    assert_eq!(sum(1000, |event| matches!(event, AuditEvent::Grant { .. })), 400);
    assert_eq!(sum(1000, |event| matches!(event, AuditEvent::Release(_))), 400);
    let of_bob =
        found.iter().find(|record| record.uid == 1001).expect("a record of the other user");
    assert_eq!((of_bob.spec, of_bob.count), (granted.spec, 1));
}

#[test]
fn processes_beyond_the_number_of_counts_are_counted_together() {
    let mut world = world();
    let requests = 300;
    for pid in 0..requests {
        world.kernel.spawn(5_000 + pid, 1000);
        let session = world.open_connection(5_000 + pid, 1000, &[]);
        world.call(session, Request::Hello { min: VERSION, max: VERSION });
        world.refused(session, Request::Query(SpecId(9)));
        world.close_connection(session);
        world.run_until_idle();
    }
    world.advance(Span::from_ns(1_000 * MS));
    let found = records(&mut world);
    assert!(found.len() <= 128 + 128 + 1, "{} records", found.len());
    let refusals = found.iter().filter(|r| matches!(r.event, AuditEvent::Refusal { .. }));
    assert_eq!(refusals.map(|record| record.count).sum::<u64>(), u64::from(requests));
    let rest = found.iter().find(|record| record.uid == u32::MAX).expect("a count of the rest");
    assert_eq!((rest.process.pid, rest.count), (0, u64::from(requests) - 256));
}

#[test]
fn a_flush_at_the_end_reports_the_counts_of_the_present_window() {
    let mut world = world();
    let alice = world.connect(1000);
    flood(&mut world, alice, 50);
    world.broker.flush_audit();
    world.broker.flush_audit();
    let found = records(&mut world);
    assert_eq!(found.iter().map(|record| record.count).collect::<Vec<_>>(), [1, 49]);
    world.advance(Span::from_ns(2_000 * MS));
    assert!(records(&mut world).is_empty());
    world.check_idle(false);
}
