//! Each request and each outcome (R2), connections, groups, explanations, shutdown.

use super::stage::{MS, Words, by, owned, setup, timed, urgent, world, world_of};
use crate::input::{Errno, LogEvent};
use talea_core::setup::{Access, Bound, Domain, Rule, Setup};
use talea_core::{CpuSet, Span, Work};
use talea_proto::message::{SpecId, Token};
use talea_proto::refusal::PluginVerdict;
use talea_proto::{Code, Field, GROUP_MAX, Owner, Reply, Request, ThreadRef, VERSION};

#[test]
fn r2_create_attach_query_detach_and_release_succeed() {
    let mut world = world();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let granted = world.create(client, by(timed(1000, 10_000), "rm"));
    let before = world.attr_of(tid);
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    assert!(world.attr_of(tid).policy.is_real_time());
    assert!(world.attr_of(tid).reset_on_fork, "retif_s6: children start as ordinary threads");
    let info = world.query(client, granted.spec).expect("it exists");
    assert_eq!((info.tid, info.uid, info.pid), (Some(tid), 1000, tid));
    assert_eq!(info.attr, Some(world.attr_of(tid)));
    assert_eq!(info.granted, granted);
    world.done(client, Request::Detach(granted.spec));
    assert_eq!(world.attr_of(tid), before);
    world.done(client, Request::Release(granted.spec));
    assert_eq!(world.query(client, granted.spec), None);
    let refusal = world.refused(client, Request::Release(granted.spec));
    assert_eq!(refusal.code, Code::NoSuchSpec);
    world.check_idle(false);
}

#[test]
fn r2_release_of_an_attached_spec_detaches_first() {
    let mut world = world();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let before = world.attr_of(tid);
    let granted = world.attached(client, urgent(5), tid);
    world.done(client, Request::Release(granted.spec));
    assert_eq!(world.attr_of(tid), before);
    assert!(world.file.is_empty());
}

#[test]
fn r2_detach_without_a_thread_and_requests_for_unknown_specs_are_refused() {
    let mut world = world();
    let client = world.connect(1000);
    let granted = world.create(client, urgent(5));
    assert_eq!(world.refused(client, Request::Detach(granted.spec)).code, Code::NotAttached);
    let (spec, task) = (SpecId(77), urgent(5));
    for request in [
        Request::Change { spec, task },
        Request::Release(spec),
        Request::Detach(spec),
        Request::Query(spec),
        Request::Attach { spec, thread: ThreadRef::Tid(1) },
        Request::Claim { spec, token: Token([0; 16]) },
    ] {
        assert_eq!(world.refused(client, request).code, Code::NoSuchSpec);
    }
}

#[test]
fn hello_is_the_first_message_and_determines_the_version() {
    let mut world = world();
    world.kernel.spawn(50, 1000);
    let silent = world.open_connection(50, 1000, &[]);
    world.send(silent, Request::Status, None);
    world.run_until_idle();
    assert!(!world.connections.contains_key(&silent), "a connection without a hello is closed");

    let only = VERSION;
    for (min, max, version) in
        [(only, only, true), (1, 9, true), (only + 1, 9, false), (0, 0, false)]
    {
        let session = world.open_connection(50, 1000, &[]);
        let seq = world.send(session, Request::Hello { min, max }, None);
        world.run_until_idle();
        assert_eq!(world.connections.contains_key(&session), version, "{min}..={max} at {seq}");
        if version {
            let (_, _, reply) =
                world.connections.get_mut(&session).and_then(|l| l.replies.pop_front()).unwrap();
            assert_eq!(reply, Reply::Welcome { version: VERSION, instance: 1 });
        }
    }
}

#[test]
fn an_undecodable_message_is_refused_and_the_connection_stays() {
    let mut world = world();
    let client = world.connect(1000);
    let granted = world.create(client, urgent(5));
    world.send_nonsense(client);
    world.run_until_idle();
    let (_, _, reply) =
        world.connections.get_mut(&client).and_then(|line| line.replies.pop_front()).unwrap();
    assert!(matches!(reply, Reply::Refused(refusal) if refusal.code == Code::Malformed));
    assert!(world.query(client, granted.spec).is_some());
}

#[test]
fn r20_no_rule_no_service_and_root_is_exempt() {
    let mut setup = setup(&["edf", "rm", "fp", "rr"], 2);
    setup.access = Access::Rules;
    let mut world = world_of(setup, 2);
    let (user, root) = (world.connect(1000), world.connect(0));
    let refusal = world.refused(user, Request::Create(urgent(5)));
    assert_eq!(refusal.code, Code::NotAllowed);
    world.create(root, urgent(5));
}

#[test]
fn rules_are_checked_before_plugins_and_the_refusal_has_their_origin() {
    let mut setup = setup(&["rm"], 2);
    setup.access = Access::Rules;
    setup.rules = vec![Rule {
        domain: Domain::User(1000),
        plugin: None,
        bound: Bound::MaxRuntime(Work::from_ns(MS)),
        origin: "talead.toml:12".to_owned(),
    }];
    let mut world = world_of(setup, 2);
    let client = world.connect(1000);
    let refusal = world.refused(client, Request::Create(timed(2000, 10_000)));
    assert_eq!((refusal.code, refusal.field), (Code::RuleBound, Field::Runtime));
    assert_eq!((refusal.asked, refusal.limit), (2 * MS, MS));
    assert_eq!(refusal.rule.as_deref(), Some("talead.toml:12"));
    world.create(client, timed(1000, 10_000));
}

#[test]
fn r35_a_mandatory_cpu_is_a_condition_and_a_preferred_one_is_not() {
    let mut world = world();
    let client = world.connect(1000);
    for cpu in [0, 1, 1, 0] {
        let mut task = urgent(5);
        (task.cpus, task.cpus_mandatory) = (CpuSet::single(cpu), true);
        assert_eq!(world.create(client, task).cpu, Some(cpu));
    }
    let mut task = by(timed(9_000, 10_000), "rm");
    (task.cpus, task.cpus_mandatory) = (CpuSet::single(0), true);
    world.create(client, task);
    assert_eq!(world.refused(client, Request::Create(task)).code, Code::NoPlugin);
    task.cpus_mandatory = false;
    assert_eq!(world.create(client, task).cpu, Some(1));
}

#[test]
fn a_group_is_granted_completely_or_not_at_all() {
    let mut world = world();
    let client = world.connect(1000);
    let free = world.free(client);
    let half = by(timed(5_000, 10_000), "rm");
    let Reply::GrantedGroup(group) = world.call(client, Request::CreateGroup(vec![half, half]))
    else {
        panic!("the group fits")
    };
    let mut ids: Vec<_> = group.iter().map(|granted| granted.spec).collect();
    ids.dedup();
    assert_eq!(ids.len(), 2);
    assert_ne!(group[0].token, group[1].token);
    for granted in &group {
        assert!(world.query(client, granted.spec).is_some());
        world.done(client, Request::Release(granted.spec));
    }
    assert_eq!(world.free(client), free);

    let before = world.file.clone();
    let refusal =
        world.refused(client, Request::CreateGroup(vec![half, half, half, half, half, urgent(1)]));
    assert_eq!((refusal.code, refusal.index), (Code::NoPlugin, 4));
    assert_eq!(world.free(client), free, "the reservations of the first four are released");
    assert_eq!((world.broker.specs(), &world.file), (0, &before));

    let refusal = world.refused(client, Request::CreateGroup(vec![]));
    assert_eq!((refusal.code, refusal.field), (Code::Malformed, Field::Group));
    let refusal = world.refused(client, Request::CreateGroup(vec![urgent(1); GROUP_MAX + 1]));
    assert_eq!((refusal.code, refusal.asked, refusal.limit), (Code::Malformed, 65, 64));
    let refusal =
        world.refused(client, Request::CreateGroup(vec![urgent(1), urgent(1), urgent(0)]));
    assert_eq!((refusal.code, refusal.field, refusal.index), (Code::Malformed, Field::Priority, 2));
    world.check_idle(false);
}

#[test]
fn explain_reports_every_plugin_and_changes_nothing() {
    let mut world = world();
    let client = world.connect(1000);
    let free = world.free(client);
    let mut task = urgent(5);
    task.params.period = Some(Span::from_ns(10 * MS));
    let Reply::Explained { chosen, answers, refusal } = world.call(client, Request::Explain(task))
    else {
        panic!("an explanation")
    };
    assert_eq!((answers.len(), refusal), (4, None));
    let words: Vec<_> = answers.iter().map(|answer| answer.name.as_str()).collect();
    assert_eq!(words, ["edf", "rm", "fp", "rr"]);
    assert!(matches!(answers[0].verdict, PluginVerdict::No(no) if no.field == Field::Runtime));
    assert!(matches!(answers[1].verdict, PluginVerdict::Partial { .. }));
    assert!(matches!(answers[2].verdict, PluginVerdict::Ok { .. }));
    let granted = world.create(client, task);
    assert_eq!(chosen, Some(granted.plugin), "explain and create choose the same plugin");
    world.done(client, Request::Release(granted.spec));
    assert_eq!(world.free(client), free);

    let Reply::Explained { chosen: None, answers, refusal: Some(refusal) } =
        world.call(client, Request::Explain(urgent(0)))
    else {
        panic!("an invalid task is refused before any plugin is asked")
    };
    assert_eq!((answers.len(), refusal.code), (0, Code::Malformed));
}

#[test]
fn retif_m3_m4_indexes_beyond_every_list_get_the_end_of_the_list() {
    let mut world = world();
    let root = world.connect(0);
    let granted = world.create(root, urgent(5));
    for far in [4, 1024, u32::MAX] {
        assert_eq!(world.call(root, Request::Plugin(far)), Reply::End);
        assert_eq!(world.call(root, Request::PluginCpu { plugin: far, index: 0 }), Reply::End);
        assert_eq!(world.call(root, Request::PluginCpu { plugin: 0, index: far }), Reply::End);
    }
    for far in [granted.spec.0 + 1, u64::MAX] {
        assert_eq!(world.call(root, Request::NextSpec(SpecId(far))), Reply::End);
    }
    assert_eq!(world.call(root, Request::NextSession(u64::MAX)), Reply::End);
}

#[test]
fn lists_contain_what_the_status_counts() {
    let mut world = world();
    let (root, user, other) = (world.connect(0), world.connect(1000), world.connect(1001));
    for session in [root, user, user, other] {
        world.create(session, urgent(5));
    }
    let mut walk = |reply_to, sessions: bool| {
        let (mut from, mut seen) = (0, Vec::new());
        loop {
            let request =
                if sessions { Request::NextSession(from) } else { Request::NextSpec(SpecId(from)) };
            match world.call(reply_to, request) {
                Reply::Spec(info) => {
                    seen.push(u64::from(info.uid));
                    from = info.granted.spec.0 + 1;
                }
                Reply::Session(info) => {
                    seen.push(u64::from(info.uid));
                    from = info.session + 1;
                }
                Reply::End => return seen,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(walk(root, false), [0, 1000, 1000, 1001]);
    assert_eq!(walk(user, false), [1000, 1000]);
    assert_eq!(walk(root, true), [0, 1000, 1001]);
    assert_eq!(walk(user, true), [1000]);
    let Reply::Status(status) = world.call(user, Request::Status) else { panic!("a status") };
    assert_eq!((status.plugins, status.sessions, status.specs, status.attached), (4, 3, 4, 0));
    assert_eq!((status.instance, status.pid), (1, 1));
    let Reply::Plugin(info) = world.call(user, Request::Plugin(2)) else { panic!("a plugin") };
    assert_eq!((info.name.as_str(), info.kind.as_str(), info.band), ("fp", "fp", (30, 39)));
}

#[test]
fn a_refusal_is_logged_once_for_its_cause_and_connection() {
    let mut world = world();
    let (one, two) = (world.connect(1000), world.connect(1000));
    for session in [one, one, two, two] {
        world.refused(session, Request::Release(SpecId(9)));
        world.refused(session, Request::Create(urgent(0)));
    }
    let logged = world.log.iter().filter(|event| matches!(event, LogEvent::Refused { .. })).count();
    assert_eq!(logged, 4);
}

#[test]
fn stop_is_reserved_for_root_and_keeps_or_releases_grants() {
    let mut world = world();
    let (root, user) = (world.connect(0), world.connect(1000));
    let tid = world.tid_of(user);
    let before = world.attr_of(tid);
    let kept = world.attached(user, owned(urgent(5), Owner::Process), tid);
    assert_eq!(world.refused(user, Request::Stop { release: true }).code, Code::NotRoot);
    world.done(root, Request::Stop { release: false });
    assert!(world.exited && world.attr_of(tid) != before, "a restart loses nothing");
    assert_eq!(world.refused(user, Request::Query(kept.spec)).code, Code::Stopping);

    world.restart();
    let root = world.connect(0);
    world.done(root, Request::Stop { release: true });
    assert!(world.exited);
    assert_eq!(world.attr_of(tid), before);
    assert!(world.file.is_empty());
}

#[test]
fn reload_changes_rules_for_existing_connections_and_keeps_grants() {
    let mut world = world();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let granted = world.attached(client, urgent(50), tid);
    let applied = world.attr_of(tid);

    let mut strict = world.setup().clone();
    strict.access = Access::Rules;
    world.reload(strict.clone());
    assert_eq!(world.refused(client, Request::Create(urgent(50))).code, Code::NotAllowed);
    assert_eq!(world.attr_of(tid), applied);
    world.done(client, Request::Release(granted.spec));

    let mut other = strict;
    other.access = Access::Off;
    other.plugins.pop();
    world.reload(other);
    world.run_until_idle();
    let why = world.log.iter().find_map(|event| match event {
        LogEvent::ReloadRefused { why } => Some(why.clone()),
        _ => None,
    });
    assert!(why.is_some_and(|why| why.contains("\"rr\"")), "the reason names the plugin");
}

/// Returns `setup` with one rule: at most half a CPU for user 1000.
fn half_a_cpu(mut setup: Setup) -> Setup {
    setup.access = Access::Rules;
    setup.rules = vec![Rule {
        domain: Domain::User(1000),
        plugin: None,
        bound: Bound::MaxUtilization(talea_core::Charge::ratio(1, 2)),
        origin: "talead.toml:3".to_owned(),
    }];
    setup
}

#[test]
fn r24_aggregates_follow_every_change_also_one_that_the_kernel_refuses() {
    let mut world = world_of(half_a_cpu(setup(&["rm"], 2)), 2);
    let (client, other) = (world.connect(1000), world.connect(1000));
    let granted = world.create(client, timed(4_000, 10_000));
    let tid = world.tid_of(client);
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    // A task between the two periods on each CPU, so that the kernel must be asked.
    for cpu in 0..2 {
        let mut task = timed(10, 20_000);
        (task.cpus, task.cpus_mandatory) = (CpuSet::single(cpu), true);
        world.create(other, task);
    }
    let half = Request::Create(timed(2_000, 10_000));
    for task in [timed(4_500, 10_000), timed(3_000, 30_000), timed(4_000, 10_000)] {
        let change = Request::Change { spec: granted.spec, task };
        world.next_errors.push_back(Errno(1));
        let _ = world.call(client, change.clone());
        world.next_errors.clear();
        world.check_idle(false);
        assert!(matches!(world.call(client, change), Reply::Granted(_)), "{task:?}");
        world.check_idle(false);
    }
    assert_eq!(world.refused(client, half.clone()).code, Code::RuleBound);
    let less = Request::Change { spec: granted.spec, task: timed(2_000, 10_000) };
    assert!(matches!(world.call(client, less), Reply::Granted(_)));
    assert!(matches!(world.call(client, half), Reply::Granted(_)));
}

#[test]
fn r24_aggregates_are_recounted_at_a_reload() {
    let mut world = world_of(setup(&["rm"], 2), 2);
    let client = world.connect(1000);
    let held = world.create(client, timed(4_000, 10_000));
    let setup = half_a_cpu(world.setup().clone());
    world.reload(setup);
    let refusal = world.refused(client, Request::Create(timed(2_000, 10_000)));
    assert_eq!((refusal.code, refusal.field), (Code::RuleBound, Field::Utilization));
    world.create(client, timed(1_000, 10_000));
    world.done(client, Request::Release(held.spec));
    world.create(client, timed(4_000, 10_000));
}
