//! Quotas and request rates: limits per user, and isolation of other users.

use super::stage::{MS, Words, by, setup, urgent, world, world_of};
use crate::Subject;
use crate::input::{Input, LogEvent, SessionId};
use crate::sim::Simulation;
use talea_core::Span;
use talea_core::setup::{
    Access, Band, Bound, Domain, FpLevels, FpOptions, PluginKind, Quota, Rule, Setup,
    SubordinateUsers,
};
use talea_core::{CpuSet, Priority};
use talea_proto::message::SpecId;
use talea_proto::{Code, Field, Reply, Request, Task, VERSION};

fn quota(change: impl FnOnce(&mut Quota)) -> talea_core::setup::Setup {
    let mut setup = setup(&["edf", "rm", "fp", "rr"], 2);
    change(&mut setup.quota);
    setup
}

#[test]
fn retif_d4_specs_are_bounded_per_user_and_in_total_and_become_free_again() {
    let mut world = world_of(
        quota(|quota| {
            quota.specs_per_user = 3;
            quota.specs = 4;
        }),
        2,
    );
    let (a, again, b) = (world.connect(1000), world.connect(1000), world.connect(1001));
    let held: Vec<_> =
        [a, a, again].into_iter().map(|session| world.create(session, urgent(5))).collect();
    let refusal = world.refused(again, Request::Create(urgent(5)));
    assert_eq!(
        (refusal.code, refusal.field, refusal.asked, refusal.limit),
        (Code::Quota, Field::Specs, 4, 3)
    );
    world.create(b, urgent(5));
    let refusal = world.refused(b, Request::CreateGroup(vec![urgent(5); 2]));
    assert_eq!((refusal.code, refusal.asked, refusal.limit), (Code::Quota, 6, 4));
    world.done(a, Request::Release(held[0].spec));
    world.create(a, urgent(5));
}

#[test]
fn retif_d4_connections_are_bounded_and_rejected_ones_receive_the_reason() {
    let mut world = world_of(
        quota(|quota| {
            quota.sessions_per_user = 2;
            quota.sessions = 3;
        }),
        2,
    );
    let kept = [world.connect(1000), world.connect(1000)];
    world.kernel.spawn(500, 1000);
    let flood: Vec<_> = (0..200).map(|_| world.open_connection(500, 1000, &[])).collect();
    world.run_until_idle();
    let open = flood.iter().filter(|session| world.connections.contains_key(session)).count();
    assert_eq!(open, 64, "the number of rejected connections is bounded");
    world.send(flood[0], Request::Hello { min: VERSION, max: VERSION }, None);
    world.run_until_idle();
    assert!(!world.connections.contains_key(&flood[0]));
    let refused = world.log.iter().any(|event| {
        matches!(event, LogEvent::Refused { refusal, .. }
            if refusal.code == Code::Quota
                && refusal.field == Field::Sessions
                && refusal.limit == 2)
    });
    assert!(refused);
    // Other users connect up to the total, root beyond it.
    world.connect(1001);
    let roots = [world.connect(0), world.connect(0)];
    assert_eq!(world.broker.sessions(), 5);
    world.close_connection(kept[0]);
    for session in flood.into_iter().chain(roots) {
        world.close_connection(session);
    }
    world.run_until_idle();
    world.connect(1000);
}

/// Returns a setup in which one rule serves user 1000 and another the group 7.
fn with_rules(change: impl FnOnce(&mut Quota)) -> Setup {
    let rule = |domain| Rule {
        domain,
        plugin: None,
        bound: Bound::AllowUnbounded(true),
        origin: String::new(),
    };
    let mut setup = quota(change);
    setup.access = Access::Rules;
    setup.rules = vec![rule(Domain::User(1000)), rule(Domain::Group(7))];
    setup
}

/// Connects a new process of `uid`; returns `None` if the broker refuses the connection.
fn try_connect(world: &mut Simulation, uid: u32, groups: &[u32]) -> Option<SessionId> {
    let pid = world.kernel.free_id(500);
    world.kernel.spawn(pid, uid);
    let session = world.open_connection(pid, uid, groups);
    if world.connections.contains_key(&session) {
        world.send(session, Request::Hello { min: VERSION, max: VERSION }, None);
    }
    world.run_until_idle();
    world.connections.contains_key(&session).then_some(session)
}

#[test]
fn attack_4_users_that_no_rule_serves_share_their_places() {
    let mut world = world_of(
        with_rules(|quota| {
            quota.sessions_without_rule = 3;
            quota.sessions = 5;
        }),
        2,
    );
    let taken = (2000..2040).filter(|&uid| try_connect(&mut world, uid, &[]).is_some()).count();
    assert_eq!(taken, 3);
    assert_eq!(world.broker.usage(Subject::UNSERVED), (3, 0));
    // Users that rules serve, by name and by group, have the other places.
    let named = try_connect(&mut world, 1000, &[]).expect("a place");
    try_connect(&mut world, 3000, &[7]).expect("a place");
    world.create(named, urgent(5));
    assert_eq!(world.broker.usage(Subject::user(1000)), (1, 1));
    assert_eq!(world.broker.usage(Subject::user(3000)), (1, 0));
    // All places are taken. The holder of a grant and root have reserves.
    assert_eq!(try_connect(&mut world, 3001, &[7]), None);
    try_connect(&mut world, 1000, &[]).expect("a place of the reserve");
    assert_eq!(try_connect(&mut world, 1000, &[]), None);
    try_connect(&mut world, 0, &[]).expect("a place of root");
    // A reload with a rule for all users ends the group.
    let mut setup = world.setup().clone();
    setup.rules[1].domain = Domain::Global;
    world.reload(setup);
    assert_eq!(world.broker.usage(Subject::UNSERVED), (0, 0));
    assert_eq!(world.broker.usage(Subject::user(2000)), (1, 0));
}

#[test]
fn attack_5_subordinate_users_are_charged_to_the_owner_of_their_range() {
    let mut setup = with_rules(|quota| {
        quota.specs_per_user = 5;
        quota.sessions_per_user = 10;
        quota.requests_per_second = 100;
        quota.burst = 50;
    });
    setup.rules[1].domain = Domain::Global;
    setup.subordinate_users = vec![SubordinateUsers { owner: 1000, first: 100_000, count: 65_536 }];
    let mut world = world_of(setup, 2);
    let sessions: Vec<SessionId> =
        (100_000..100_032).filter_map(|uid| try_connect(&mut world, uid, &[])).collect();
    assert_eq!(sessions.len(), 10);
    let granted = sessions.iter().filter(|&&session| {
        matches!(world.call(session, Request::Create(urgent(5))), Reply::Granted(_))
    });
    assert_eq!(granted.count(), 5);
    assert_eq!(world.broker.usage(Subject::user(1000)), (10, 5));
    // The owner has no further place.
    assert_eq!(try_connect(&mut world, 1000, &[]), None);
    // The rate is one, too.
    for &session in &sessions {
        for _ in 0..20 {
            world.send(session, Request::Status, None);
        }
    }
    world.run_until_idle();
    let answers = sessions.iter().map(|session| world.connections[session].replies.len());
    let answered: usize = answers.sum();
    assert!(answered <= 60, "{answered} answers at once");
    // Another user has its own places, and lists its own specs only.
    let other = world.connect(1001);
    world.create(other, urgent(5));
    let Reply::Spec(info) = world.call(other, Request::NextSpec(SpecId(1))) else { panic!() };
    assert_eq!(info.uid, 1001);
}

#[test]
fn attack_17_one_user_occupies_no_more_levels_than_the_quota() {
    for levels in [FpLevels::Each, FpLevels::Common] {
        let mut setup = quota(|quota| quota.levels_per_user = 3);
        let fp = setup.plugins.iter_mut().find(|plugin| plugin.name == "fp").expect("it is there");
        fp.band = Some(Band { low: Priority(30), high: Priority(35) });
        fp.kind = PluginKind::Fp(FpOptions { refuse_sharing: true, levels });
        setup.subordinate_users = vec![SubordinateUsers { owner: 1000, first: 5000, count: 1 }];
        let mut world = world_of(setup, 2);
        let on_0 = |priority| {
            let task = by(urgent(priority), "fp");
            Task { cpus: CpuSet::single(0), cpus_mandatory: true, ..task }
        };
        let (a, subordinate, b) = (world.connect(1000), world.connect(5000), world.connect(1001));
        let held: Vec<_> = [5, 5, 6].map(|priority| world.create(a, on_0(priority))).into();
        world.create(subordinate, on_0(7));
        // A fourth key is refused, also as a change and in a group; keys that are held are not.
        let refusal = world.refused(a, Request::Create(on_0(8)));
        assert_eq!(
            (refusal.code, refusal.field, refusal.asked, refusal.limit),
            (Code::Quota, Field::Levels, 4, 3)
        );
        world.refused(subordinate, Request::CreateGroup(vec![on_0(6), on_0(9)]));
        world.create(a, on_0(7));
        let change = |spec, priority| Request::Change { spec, task: on_0(priority) };
        assert_eq!(world.refused(a, change(held[0].spec, 8)).code, Code::Quota);
        let said = world.call(a, change(held[2].spec, 8));
        assert!(matches!(said, Reply::Granted(_)), "its last spec with this key: {said:?}");
        // Another user has the rest, and root all of it.
        for priority in [20, 21, 22] {
            world.create(b, on_0(priority));
        }
        let root = world.connect(0);
        assert_eq!(world.refused(root, Request::Create(on_0(30))).code, Code::NoPlugin);
        for spec in &held {
            world.done(a, Request::Release(spec.spec));
        }
        world.create(a, on_0(9));
        world.restart();
        world.run_until_idle();
    }
}

#[test]
fn attack_9_log_lines_are_limited_across_connections_and_counted() {
    let mut world = world_of(with_rules(|_| {}), 2);
    for round in 0..100 {
        let client = world.connect(2000 + round % 7);
        world.refused(client, Request::Create(urgent(5)));
        world.close_connection(client);
        world.run_until_idle();
    }
    let refused = |world: &Simulation| {
        world.log.iter().filter(|event| matches!(event, LogEvent::Refused { .. })).count()
    };
    assert_eq!(refused(&world), 20, "the users that no rule serves are one subject");
    world.advance(Span::from_ns(1_000 * MS));
    world.run_until_idle();
    let summary = LogEvent::Suppressed { lines: 80, subject: Subject::UNSERVED };
    assert_eq!(world.log.last(), Some(&summary));
    assert_eq!(world.broker.next_wakeup(), None);
    let client = world.connect(2000);
    world.refused(client, Request::Create(urgent(5)));
    assert_eq!(refused(&world), 21);
}

#[test]
fn attack_4_a_connection_without_a_hello_is_closed_after_one_second() {
    let mut world = world();
    world.kernel.spawn(500, 1000);
    let client = world.connect(1000);
    assert_eq!(world.broker.next_wakeup(), None, "a client with its hello needs no timer");
    let silent: Vec<_> = (0..3).map(|_| world.open_connection(500, 1000, &[])).collect();
    world.run_until_idle();
    world.advance(Span::from_ns(999 * MS));
    world.run_until_idle();
    assert_eq!(world.broker.sessions(), 4);
    // The hello of one is in its socket when a late driver handles the time-out.
    let seq = world.send(silent[1], Request::Hello { min: VERSION, max: VERSION }, None);
    world.advance(Span::from_ns(500 * MS));
    world.run_until_idle();
    let open = silent.iter().filter(|session| world.connections.contains_key(session));
    assert_eq!(open.collect::<Vec<_>>(), [&silent[1]]);
    let (answered, _, reply) = &world.connections[&silent[1]].replies[0];
    assert_eq!(*answered, seq);
    assert!(matches!(reply, Reply::Welcome { .. }));
    assert_eq!((world.broker.sessions(), world.broker.next_wakeup()), (2, None));
    assert!(matches!(world.call(client, Request::Status), Reply::Status(_)));
}

#[test]
fn the_client_of_an_embedded_daemon_has_no_time_out() {
    let mut world = world();
    // The process of the broker itself.
    world.kernel.spawn(1, 1000);
    let client = world.open_connection(1, 1000, &[]);
    assert_eq!(world.broker.next_wakeup(), None);
    world.advance(Span::from_ns(5_000 * MS));
    let welcome = world.call(client, Request::Hello { min: VERSION, max: VERSION });
    assert!(matches!(welcome, Reply::Welcome { .. }), "{welcome:?}");
}

#[test]
fn attack_4_the_late_hello_that_a_driver_has_already_read_is_in_time() {
    let mut world = world();
    world.kernel.spawn(500, 1000);
    let client = world.open_connection(500, 1000, &[]);
    world.send(client, Request::Hello { min: VERSION, max: VERSION }, None);
    // The input that contains the hello is the one that lets the time-out expire.
    world.now = world.now.saturating_add(Span::from_ns(1_500 * MS));
    assert!(world.read_one(client));
    world.run_until_idle();
    assert!(matches!(world.call(client, Request::Status), Reply::Status(_)));
}

#[test]
fn retif_d4_a_client_above_the_rate_is_answered_and_then_suspended() {
    let mut world = world_of(
        quota(|quota| {
            quota.requests_per_second = 100;
            quota.burst = 10;
        }),
        2,
    );
    let (greedy, honest, root) = (world.connect(1000), world.connect(1001), world.connect(0));
    for session in [greedy, root] {
        for _ in 0..1000 {
            world.send(session, Request::Status, None);
        }
    }
    world.run_until_idle();
    let answered = world.connections[&greedy].replies.len();
    assert!((9..=11).contains(&answered), "{answered} answers at once");
    assert!(!world.connections[&greedy].is_reading);
    assert_eq!(world.connections[&root].replies.len(), 1000, "root is exempt");
    assert!(matches!(world.call(honest, Request::Status), Reply::Status(_)));

    // Served at the rate, with one wake-up each.
    let before = world.connections[&greedy].replies.len();
    for _ in 0..100 {
        world.advance(Span::from_ns(10 * MS));
        world.run_until_idle();
    }
    let served = world.connections[&greedy].replies.len() - before;
    assert!((99..=101).contains(&served), "{served} in a second");
    let limited = world.log.iter().filter(|event| matches!(event, LogEvent::RateLimited { .. }));
    assert!(limited.count() <= 2, "once a second");
    world.close_connection(greedy);
    world.run_until_idle();
    assert_eq!(world.broker.next_wakeup(), None);
}

#[test]
fn retif_d4_a_group_costs_one_request_per_task() {
    let mut world = world_of(
        quota(|quota| {
            quota.requests_per_second = 100;
            quota.burst = 100;
        }),
        2,
    );
    let greedy = world.connect(1000);
    for _ in 0..100 {
        world.send(greedy, Request::CreateGroup(vec![urgent(5); 50]), None);
    }
    world.run_until_idle();
    let at_once = world.connections[&greedy].replies.len();
    assert!((2..=3).contains(&at_once), "{at_once} groups at once");
    for _ in 0..200 {
        world.advance(Span::from_ns(10 * MS));
        world.run_until_idle();
    }
    let served = world.connections[&greedy].replies.len() - at_once;
    assert!((3..=4).contains(&served), "{served} groups in two seconds");
}

#[test]
fn a_flood_of_connections_does_not_multiply_the_rate() {
    let mut world = world_of(
        quota(|quota| {
            quota.requests_per_second = 100;
            quota.burst = 10;
        }),
        2,
    );
    let sessions: Vec<_> = (0..20).map(|_| world.connect(1000)).collect();
    for &session in &sessions {
        for _ in 0..100 {
            world.send(session, Request::Status, None);
        }
    }
    for _ in 0..100 {
        world.advance(Span::from_ns(10 * MS));
        world.run_until_idle();
    }
    let served: usize =
        sessions.iter().map(|session| world.connections[session].replies.len()).sum();
    // The burst, one per connection before it is suspended, and the requests of a second.
    assert!(served <= 10 + 20 + 101, "{served} answers");
}

#[test]
fn the_request_queue_is_bounded_even_if_the_driver_ignores_suspension() {
    let mut world = world_of(setup(&["ours", "fp"], 2), 2);
    let client = world.connect(1000);
    for seq in 10..40 {
        let request = Request::Create(urgent(5));
        world.connections.get_mut(&client).unwrap().outstanding.insert(seq, request.clone());
        world.handle_input(Input::Received {
            session: client,
            seq,
            request,
            thread: None,
            caller: None,
            entropy: 1,
        });
    }
    while world.run_effect() {}
    let replies = &world.connections[&client].replies;
    assert_eq!(replies.len(), 25, "one request is at the plugin, four are queued");
    assert!(replies.iter().all(|(_, _, reply)| {
        matches!(reply, Reply::Refused(refusal) if refusal.code == Code::Busy)
    }));
    world.advance(Span::from_ns(60 * MS));
    world.run_until_idle();
    assert_eq!(world.connections[&client].replies.len(), 30);
}

#[test]
fn retif_w10_ids_start_at_one_never_repeat_and_refused_requests_take_none() {
    let mut world = world();
    let client = world.connect(1000);
    let first = world.create(client, urgent(5));
    assert_eq!(first.spec, SpecId(1));
    for _ in 0..5 {
        world.refused(client, Request::Create(urgent(0)));
        world.refused(client, Request::CreateGroup(vec![urgent(1), urgent(0)]));
    }
    world.done(client, Request::Release(first.spec));
    assert_eq!(world.create(client, urgent(5)).spec, SpecId(2));
    // Ids beyond the precision of a float stay distinct.
    let mut record = world.broker.record(0).expect("the second spec has a record");
    record.spec = SpecId(1 << 53);
    world.file.insert(0, record);
    world.restart();
    world.run_until_idle();
    let client = world.connect(1000);
    let ids: Vec<_> = (0..3).map(|_| world.create(client, urgent(5)).spec.0).collect();
    assert_eq!(ids, [(1 << 53) + 1, (1 << 53) + 2, (1 << 53) + 3]);
}
