//! Version 2 of the plugin interface: granted runtimes, the deadline class, new levels, reasons,
//! and the order of calls.

use super::foreign::{ask, last, ours_first, with, yes};
use super::stage::{MS, Words, by, setup, timed, urgent, world_of};
use crate::input::{ForeignAnswer, ForeignCall, Input, LogEvent, Platform, SessionId};
use crate::sim::{Rng, Simulation};
use crate::trail::AuditEvent;
use talea_core::setup::{Access, Bound, Confine, Domain, PluginKind, Rule, Setup};
use talea_core::{Charge, CpuSet, Policy, Priority, Span, Work};
use talea_proto::message::{Mechanism, Notes};
use talea_proto::refusal::{PLUGIN_TEXT_MAX, PluginText, PluginVerdict, RejectionReason};
use talea_proto::{Granted, Reply, Request, SpecId, Task};

/// Answers calls with `yes` until there is none.
fn answer_all(world: &mut Simulation) {
    world.run_until_idle();
    while world.answer_call(yes) {
        world.run_until_idle();
    }
}

fn granted(world: &mut Simulation, session: SessionId, task: Task) -> Granted {
    ask(world, session, Request::Create(task));
    answer_all(world);
    match last(world, session) {
        Some(Reply::Granted(granted)) => granted,
        other => panic!("not granted: {other:?}"),
    }
}

fn desiring(runtime_us: u64, desired_us: u64, period_us: u64) -> Task {
    let mut task = by(timed(runtime_us, period_us), "ours");
    task.params.desired = Work::from_us(desired_us);
    task
}

#[test]
fn r18_r8_a_plugin_grants_a_part_of_the_desired_runtime() {
    let granting = |ns: u64| {
        move |question: &ForeignCall| Some(ForeignAnswer { runtime_ns: ns, ..yes(question)? })
    };
    let mut world = ours_first();
    let client = world.connect(1000);
    for (granted_us, runtime_us) in [(0, 2_000), (2_000, 2_000), (3_000, 3_000), (4_000, 4_000)] {
        ask(&mut world, client, Request::Create(desiring(2_000, 4_000, 10_000)));
        world.answer_call(granting(granted_us * 1000));
        answer_all(&mut world);
        let said = last(&mut world, client);
        let Some(Reply::Granted(granted)) = said else { panic!("{said:?}") };
        assert_eq!(granted.runtime, Work::from_us(runtime_us));
        assert_eq!(granted.charge, Charge::ratio(runtime_us, 10_000));
        assert_eq!(granted.notes.contains(Notes::BELOW_DESIRED), runtime_us < 4_000);
        world.done(client, Request::Release(granted.spec));
        answer_all(&mut world);
    }
    // A nanosecond outside, and a runtime for a task without one.
    for (task, ns) in [
        (desiring(2_000, 4_000, 10_000), 1_999_999),
        (desiring(2_000, 4_000, 10_000), 4_000_001),
        (by(urgent(5), "ours"), 1),
    ] {
        let mut world = ours_first();
        let client = world.connect(1000);
        ask(&mut world, client, Request::Create(task));
        world.answer_call(granting(ns));
        world.run_until_idle();
        assert!(matches!(last(&mut world, client), Some(Reply::Refused(_))));
        assert!(world.log.iter().any(|event| matches!(event, LogEvent::PluginOutOfBounds { .. })));
    }
}

#[test]
fn r18_r8_an_access_rule_reduces_the_granted_runtime_and_the_plugin_is_notified_of_the_rest() {
    let mut setup = setup(&["ours"], 2);
    setup.access = Access::Rules;
    let rule = |bound| Rule { domain: Domain::Global, plugin: None, bound, origin: String::new() };
    setup.rules = vec![
        rule(Bound::MaxRuntime(Work::from_ns(3 * MS))),
        rule(Bound::MaxUtilization(Charge::ratio(1, 2))),
    ];
    let mut world = world_of(setup, 2);
    let client = world.connect(1000);
    // By the runtime, then by the rest of the share: 50 % − 30 % of 10 ms.
    for runtime_ms in [3, 2] {
        ask(&mut world, client, Request::Create(desiring(1_000, 4_000, 10_000)));
        world.answer_call(|question| Some(ForeignAnswer { runtime_ns: 4 * MS, ..yes(question)? }));
        world.run_until_idle();
        let Some((_, ForeignCall::Schedule { runtime, .. }, _)) = world.calls.values().next()
        else {
            panic!("notified")
        };
        assert_eq!(*runtime, Some(Work::from_ns(runtime_ms * MS)));
        answer_all(&mut world);
        let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
        assert_eq!(granted.runtime, Some(Work::from_ns(runtime_ms * MS)));
    }
}

#[test]
fn r18_the_reason_of_a_plugin_reaches_the_client_and_the_trail() {
    let mut world = world_of(setup(&["ours"], 2), 2);
    let client = world.connect(1000);
    ask(&mut world, client, Request::Create(urgent(5)));
    let mut text = [0; PLUGIN_TEXT_MAX];
    text[..12].copy_from_slice(b"full\nat 90 %");
    let text = PluginText::from_untrusted(&text);
    world.answer_call(|question| Some(ForeignAnswer { text, ..with(-1, 0, 0)(question)? }));
    world.run_until_idle();
    world.handle_input(Input::Timer);
    let Some(Reply::Refused(refusal)) = last(&mut world, client) else { panic!("refused") };
    assert_eq!(refusal.answers[0].text.as_str(), "full?at 90 %");
    assert!(refusal.to_string().contains("its module rejected the task: \"full?at 90 %\""));
    let reason = world.take_trail().into_iter().find_map(|record| match record.event {
        AuditEvent::Refusal { reason, .. } => reason,
        _ => None,
    });
    let reason = reason.expect("a reason");
    assert_eq!((reason.0.as_str(), reason.1.as_str()), ("ours", "full?at 90 %"));
    // An accepted task has none.
    ask(&mut world, client, Request::Explain(urgent(5)));
    world.answer_call(|question| Some(ForeignAnswer { text, ..yes(question)? }));
    world.run_until_idle();
    let Some(Reply::Explained { answers, .. }) = last(&mut world, client) else {
        panic!("a reply")
    };
    assert_eq!(answers[0].text, PluginText::NONE);
}

fn level_of(world: &Simulation, tid: u32) -> Policy {
    world.attr_of(tid).policy
}

#[test]
fn r18_a_plugin_gives_its_tasks_new_levels() {
    let mut world = ours_first();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let first = granted(&mut world, client, urgent(5));
    assert_eq!(world.attach(client, first.spec, tid), Reply::Done);
    answer_all(&mut world);
    assert_eq!(level_of(&world, tid), Policy::Fifo(Priority(44)));
    // The schedule of a second task moves the first one.
    ask(&mut world, client, Request::Create(urgent(6)));
    world.answer_call(yes);
    world.run_until_idle();
    let Some(Reply::Granted(second)) = last(&mut world, client) else { panic!("granted") };
    world.rank(0, vec![(first.spec, 41), (second.spec, 40)], false);
    world.answer_call(yes);
    world.run_until_idle();
    assert_eq!(level_of(&world, tid), Policy::Fifo(Priority(41)));
    let info = world.query(client, second.spec).expect("known");
    assert_eq!(info.granted.priority, 40);
    let recorded: Vec<u8> = world.file.values().map(|record| record.priority).collect();
    assert_eq!(recorded, [41, 40], "the next daemon applies the same levels");
    // After as many levels as fit, the plugin is asked for the rest.
    world.done(client, Request::Release(second.spec));
    world.rank(0, vec![(first.spec, 42)], true);
    world.answer_call(yes);
    world.run_until_idle();
    assert!(matches!(world.calls.values().next(), Some((0, ForeignCall::Rank, _))));
    world.rank(0, vec![(first.spec, 43)], false);
    world.answer_call(yes);
    world.run_until_idle();
    assert_eq!(level_of(&world, tid), Policy::Fifo(Priority(43)));
    assert!(world.log.is_empty(), "{:?}", world.log);
    world.done(client, Request::Release(first.spec));
    world.check_idle(false);
}

#[test]
fn r18_a_plugin_ranks_only_what_it_holds_within_its_band_and_in_a_notification() {
    let violates = |setup: Setup, prepare: fn(&mut Simulation, SessionId) -> Vec<(SpecId, i32)>| {
        let mut world = world_of(setup, 2);
        let client = world.connect(1000);
        let ranks = prepare(&mut world, client);
        world.rank(0, ranks, false);
        world.run_until_idle();
        assert!(world.log.iter().any(|event| matches!(event, LogEvent::PluginOutOfBounds { .. })));
        let Reply::Plugin(info) = world.call(client, Request::Plugin(0)) else {
            panic!("a plugin")
        };
        assert!(info.out_of_service);
    };
    for level in [39, 50, 0, -1, 300] {
        let mut world = ours_first();
        let client = world.connect(1000);
        let spec = granted(&mut world, client, urgent(5)).spec;
        let tid = world.tid_of(client);
        assert_eq!(world.attach(client, spec, tid), Reply::Done);
        world.rank(0, vec![(spec, 41), (spec, level)], false);
        world.run_until_idle();
        assert!(world.log.iter().any(|event| matches!(event, LogEvent::PluginOutOfBounds { .. })));
        assert_eq!(level_of(&world, tid), Policy::Fifo(Priority(44)), "no part of it is applied");
    }
    // The grant of another plugin, and one that does not exist.
    violates(setup(&["ours", "fp"], 2), |world, client| {
        let other = world.create(client, by(urgent(5), "fp")).spec;
        ask(world, client, Request::Create(by(urgent(5), "ours")));
        world.answer_call(yes);
        world.run_until_idle();
        vec![(other, 44)]
    });
    violates(setup(&["ours", "fp"], 2), |world, client| {
        ask(world, client, Request::Create(by(urgent(5), "ours")));
        world.answer_call(yes);
        world.run_until_idle();
        vec![(SpecId(4711), 44)]
    });
    // In answer to a question, and without a call.
    violates(setup(&["ours", "fp"], 2), |world, client| {
        let spec = granted(world, client, urgent(5)).spec;
        ask(world, client, Request::Create(urgent(6)));
        vec![(spec, 44)]
    });
    violates(setup(&["ours", "fp"], 2), |world, client| {
        vec![(granted(world, client, urgent(5)).spec, 44)]
    });
}

#[test]
fn r18_a_plugin_that_ranks_forever_is_out_of_service() {
    let mut world = ours_first();
    let client = world.connect(1000);
    ask(&mut world, client, Request::Create(urgent(5)));
    world.answer_call(yes);
    world.run_until_idle();
    let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
    for level in 40..44 {
        world.rank(0, vec![(granted.spec, level)], true);
        world.answer_call(yes);
        world.run_until_idle();
    }
    assert!(world.log.iter().any(|event| matches!(event, LogEvent::PluginOutOfBounds { .. })));
}

/// A spec that the plugin still holds may have ended meanwhile.
#[test]
fn r18_a_level_for_a_task_that_has_just_ended_is_ignored() {
    let mut world = ours_first();
    let client = world.connect(1000);
    let ended = granted(&mut world, client, urgent(5)).spec;
    ask(&mut world, client, Request::Create(urgent(6)));
    world.answer_call(yes);
    world.run_until_idle();
    last(&mut world, client);
    // The schedule of the second task is in flight; the release of the first one waits.
    world.done(client, Request::Release(ended));
    world.rank(0, vec![(ended, 41)], false);
    answer_all(&mut world);
    assert!(world.log.is_empty(), "{:?}", world.log);
    assert!(world.hosts.held[&0].len() == 1);
}

/// While new terms wait for the kernel, a new level belongs to the old terms: the plugin is not
/// notified of the new ones yet.
#[test]
fn r18_a_level_during_a_change_survives_its_rollback() {
    let mut world = ours_first();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let spec = granted(&mut world, client, urgent(5)).spec;
    assert_eq!(world.attach(client, spec, tid), Reply::Done);
    // The notification of the attach is in flight during the change to another plugin.
    world.next_errors.push_back(crate::input::Errno(1));
    world.send(client, Request::Change { spec, task: by(urgent(6), "fp") }, None);
    assert!(world.read_one(client), "the change awaits the kernel");
    world.rank(0, vec![(spec, 42)], false);
    answer_all(&mut world);
    let Some(Reply::Refused(_)) = last(&mut world, client) else { panic!("refused") };
    assert_eq!(level_of(&world, tid), Policy::Fifo(Priority(42)));
}

/// The plugin gets the end of a task that it holds, also if new terms of the task wait.
#[test]
fn a_release_after_a_change_reaches_a_slow_plugin() {
    let mut world = world_of(setup(&["ours", "ours2"], 2), 2);
    let (client, other) = (world.connect(1000), world.connect(1000));
    // The first plugin serves the task in part, so the second one is asked too.
    let answer = |world: &mut Simulation, plugin: u32, verdict: i32| {
        let (&ticket, (_, call, _)) =
            world.calls.iter().find(|(_, (asked, ..))| *asked == plugin).expect("a call");
        let answer = with(verdict, 1, 44)(call);
        world.calls.remove(&ticket);
        world.handle_input(Input::PluginAnswered { ticket, answer });
        world.run_until_idle();
    };
    ask(&mut world, client, Request::Create(urgent(5)));
    answer(&mut world, 0, 0);
    answer(&mut world, 1, -1);
    let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
    answer_all(&mut world);
    let spec = granted.spec;
    ask(&mut world, client, Request::Change { spec, task: urgent(6) });
    answer(&mut world, 0, 0);
    // The first plugin has a question of another client when the change is accepted.
    ask(&mut world, other, Request::Create(by(urgent(5), "ours")));
    answer(&mut world, 1, -1);
    assert!(matches!(last(&mut world, client), Some(Reply::Granted(_))));
    world.done(client, Request::Release(spec));
    answer_all(&mut world);
    assert!(!world.hosts.held[&0].contains(&spec));
}

/// The plugin is asked only when it knows of the tasks granted before.
#[test]
fn a_question_follows_the_notifications_of_other_users() {
    let mut world = ours_first();
    let (one, other) = (world.connect(1000), world.connect(1001));
    ask(&mut world, one, Request::Create(urgent(5)));
    ask(&mut world, other, Request::Create(urgent(6)));
    // The grant of the first request precedes the question of the second.
    world.answer_call(yes);
    world.run_until_idle();
    assert!(matches!(world.calls.values().next(), Some((_, ForeignCall::Schedule { .. }, _))));
    world.answer_call(yes);
    world.run_until_idle();
    assert!(matches!(world.calls.values().next(), Some((_, ForeignCall::Accept { .. }, _))));
}

#[expect(clippy::large_types_passed_by_value, reason = "the closure owns it")]
fn deadline(answer: ForeignAnswer) -> impl Fn(&ForeignCall) -> Option<ForeignAnswer> {
    move |question| {
        let ForeignCall::Accept { epoch, .. } = question else { return yes(question) };
        Some(ForeignAnswer { epoch: *epoch, verdict: 1, ..answer })
    }
}

/// Requests `task` of the plugin `ours-dl`, which gives `answer`.
fn request(world: &mut Simulation, client: SessionId, task: Task, answer: &ForeignAnswer) -> Reply {
    ask(world, client, Request::Create(by(task, "ours-dl")));
    world.answer_call(deadline(*answer));
    answer_all(world);
    last(world, client).expect("a reply")
}

fn is_out_of_bounds(world: &Simulation) -> bool {
    world.log.iter().any(|event| matches!(event, LogEvent::PluginOutOfBounds { .. }))
}

#[test]
fn r18_a_plugin_chooses_the_parameters_of_the_deadline_class() {
    let us = |us| Span::from_us(us).expect("small");
    let mut bare = timed(0, 0);
    bare.params.deadline = Some(us(9_000));
    let mut elastic = timed(2_000, 10_000);
    elastic.params.desired = Work::from_us(4_000);
    elastic.params.deadline = Some(us(8_000));
    let chosen = |runtime_us: u64, deadline_us: u64, period_us: u64| ForeignAnswer {
        runtime_ns: runtime_us * 1000,
        deadline_ns: deadline_us * 1000,
        period_ns: period_us * 1000,
        ..ForeignAnswer::default()
    };
    for (task, answer, expected) in [
        (elastic, chosen(0, 0, 0), Some((2_000, 8_000, 10_000))),
        (elastic, chosen(4_000, 0, 0), Some((4_000, 8_000, 10_000))),
        (elastic, chosen(3_000, 5_000, 6_000), Some((3_000, 5_000, 6_000))),
        (elastic, chosen(3_000, 0, 6_000), Some((3_000, 6_000, 6_000))),
        (bare, chosen(1_000, 0, 20_000), Some((1_000, 9_000, 20_000))),
        (timed(0, 0), chosen(1_000, 0, 20_000), Some((1_000, 20_000, 20_000))),
        // Longer than those of the task, or than the period.
        (elastic, chosen(0, 8_001, 0), None),
        (elastic, chosen(0, 0, 10_001), None),
        (elastic, chosen(0, 7_000, 6_000), None),
        // Too short for the kernel, or for the runtime.
        (elastic, chosen(0, 0, 50), None),
        (elastic, chosen(4_000, 3_999, 0), None),
        (timed(0, 0), chosen(1, 0, 10_000), None),
        // Missing, or a level.
        (timed(0, 0), chosen(0, 0, 10_000), None),
        (timed(0, 0), chosen(1_000, 0, 0), None),
        (elastic, ForeignAnswer { cpu: 2, ..chosen(0, 0, 0) }, None),
        (elastic, ForeignAnswer { cpus: CpuSet::first(2), ..chosen(0, 0, 0) }, None),
    ] {
        let mut world = world_of(setup(&["ours-dl"], 2), 2);
        let client = world.connect(1000);
        let tid = world.tid_of(client);
        let said = request(&mut world, client, task, &answer);
        assert_eq!(is_out_of_bounds(&world), expected.is_none(), "{answer:?}");
        let Some((runtime_us, deadline_us, period_us)) = expected else { continue };
        let Reply::Granted(granted) = said else { panic!("{said:?}") };
        assert_eq!(granted.runtime, Work::from_us(runtime_us));
        assert_eq!(granted.charge, Charge::ratio(runtime_us, deadline_us));
        assert_eq!((granted.mechanism, granted.priority), (Mechanism::DeadlinePinned, 0));
        assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
        let policy = Policy::Deadline {
            runtime: Work::from_us(runtime_us).expect("small"),
            deadline: us(deadline_us),
            period: us(period_us),
        };
        let expected = (policy, CpuSet::single(0));
        assert_eq!((world.attr_of(tid).policy, world.attr_of(tid).cpus), expected);
        answer_all(&mut world);
        // The next daemon knows the terms.
        world.restart();
        world.run_until_idle();
        assert_eq!(world.attr_of(tid).policy, policy);
        let adopted = world.file.values().next().expect("a record").terms;
        let terms = adopted.map(|terms| (terms.deadline, terms.period));
        assert_eq!(terms, Some((us(deadline_us), us(period_us))));
    }
}

#[test]
fn r18_the_kernel_admits_all_deadline_tasks_of_a_plugin() {
    let cpu = |cpu| ForeignAnswer { cpu, ..ForeignAnswer::default() };
    // Alone: 90 % of a CPU fit, and a nanosecond more is a violation.
    for (work, ok) in [(40_000, true), (40_001, false)] {
        let mut world = world_of(setup(&["ours-dl"], 2), 2);
        let client = world.connect(1000);
        let said = request(&mut world, client, timed(50_000, 100_000), &cpu(0));
        assert!(matches!(said, Reply::Granted(_)));
        let said = request(&mut world, client, timed(work, 100_000), &cpu(0));
        assert_eq!((matches!(said, Reply::Granted(_)), is_out_of_bounds(&world)), (ok, !ok));
    }
    // Beside `edf`, whose tasks the plugin does not know.
    let mut world = world_of(setup(&["ours-dl", "edf"], 2), 2);
    let client = world.connect(1000);
    for _ in 0..2 {
        world.create(client, by(timed(50_000, 100_000), "edf"));
    }
    let said = request(&mut world, client, timed(40_001, 100_000), &cpu(0));
    let Reply::Refused(refusal) = said else { panic!("{said:?}") };
    assert!(matches!(refusal.answers[0].verdict, PluginVerdict::No(no)
        if no.reason == RejectionReason::NoRoom && no.cpu == Some(0)));
    assert!(!is_out_of_bounds(&world));
    // Densities beyond the share would break the guarantee of `edf`, but not of an empty CPU.
    let mut dense = timed(10_000, 100_000);
    dense.params.deadline = Span::from_us(20_000);
    let said = request(&mut world, client, dense, &cpu(0));
    let Reply::Refused(refusal) = said else { panic!("{said:?}") };
    assert!(matches!(refusal.answers[0].verdict, PluginVerdict::No(no)
        if no.reason == RejectionReason::WouldBreakOthers));
    assert!(!is_out_of_bounds(&world));
}

#[test]
fn r18_a_plugin_of_the_deadline_class_serves_a_whole_root_domain() {
    let mut setup = setup(&["ours-dl"], 2);
    if let PluginKind::Foreign(options) = &mut setup.plugins[0].kind {
        options.confine = Confine::Global;
    }
    let all = CpuSet::first(2);
    for (cpus, ok) in [(CpuSet::EMPTY, true), (all, true), (CpuSet::single(0), false)] {
        let mut world = Simulation::new(setup.clone(), Platform::declared(2), false, Rng::Seed(1));
        let client = world.connect(1000);
        let tid = world.tid_of(client);
        let answer = ForeignAnswer { cpus, ..ForeignAnswer::default() };
        let said = request(&mut world, client, timed(50_000, 100_000), &answer);
        assert_eq!((matches!(said, Reply::Granted(_)), is_out_of_bounds(&world)), (ok, !ok));
        let Reply::Granted(granted) = said else { continue };
        assert_eq!((granted.cpu, granted.mechanism), (None, Mechanism::DeadlineGlobal));
        assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
        assert_eq!(world.attr_of(tid).cpus, all);
    }
}

/// The kernel does not move a deadline thread to another root domain.
#[test]
fn r18_the_thread_of_a_deadline_task_stays_on_its_cpu() {
    let mut world = world_of(setup(&["ours-dl"], 2), 2);
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let said = request(&mut world, client, timed(10_000, 100_000), &ForeignAnswer::default());
    let Reply::Granted(granted) = said else { panic!("{said:?}") };
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    answer_all(&mut world);
    let task = by(timed(20_000, 100_000), "ours-dl");
    ask(&mut world, client, Request::Change { spec: granted.spec, task });
    let Some((_, ForeignCall::Accept { cpus, .. }, _)) = world.calls.values().next() else {
        panic!("asked")
    };
    assert_eq!(*cpus, CpuSet::single(0));
    world.answer_call(deadline(ForeignAnswer { cpu: 1, ..ForeignAnswer::default() }));
    answer_all(&mut world);
    assert!(is_out_of_bounds(&world));
}
