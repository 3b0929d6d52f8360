//! Foreign plugins: time-outs, violations and crashes do not affect other clients (R18).

use super::stage::{MS, Words, by, setup, timed, urgent, world_of};
use crate::input::{ForeignAnswer, ForeignCall, Input, LogEvent, SessionId};
use crate::sim::Simulation;
use talea_core::Span;
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{Code, Reply, Request};

#[expect(clippy::unnecessary_wraps, reason = "an answer, as opposed to a time-out")]
pub(super) fn yes(question: &ForeignCall) -> Option<ForeignAnswer> {
    let ForeignCall::Accept { epoch, .. } = question else {
        return Some(ForeignAnswer {
            epoch: 0,
            verdict: 1,
            cpu: 0,
            priority: 0,
            ..ForeignAnswer::default()
        });
    };
    Some(ForeignAnswer {
        epoch: *epoch,
        verdict: 1,
        cpu: 1,
        priority: 44,
        ..ForeignAnswer::default()
    })
}

pub(super) fn with(
    verdict: i32,
    cpu: i32,
    priority: i32,
) -> impl Fn(&ForeignCall) -> Option<ForeignAnswer> {
    move |question| {
        let mut answer = yes(question)?;
        (answer.verdict, answer.cpu, answer.priority) = (verdict, cpu, priority);
        Some(answer)
    }
}

pub(super) fn last(world: &mut Simulation, session: SessionId) -> Option<Reply> {
    world.connections.get_mut(&session).unwrap().replies.pop_back().map(|(_, _, reply)| reply)
}

pub(super) fn ask(world: &mut Simulation, session: SessionId, request: Request) {
    world.send(session, request, None);
    world.run_until_idle();
}

pub(super) fn ours_first() -> Simulation {
    world_of(setup(&["ours", "fp"], 2), 2)
}

#[test]
fn r18_a_foreign_plugin_accepts_and_places_a_task_and_is_notified_of_its_events() {
    let mut world = ours_first();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    ask(&mut world, client, Request::Create(urgent(5)));
    assert_eq!(last(&mut world, client), None, "the request waits for the plugin");
    world.answer_call(yes);
    world.run_until_idle();
    let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
    assert_eq!((granted.plugin, granted.cpu, granted.priority), (0, Some(1), 44));
    let notified =
        |world: &Simulation| world.calls.values().next().map(|(_, question, _)| question.clone());
    assert!(matches!(
        notified(&world),
        Some(ForeignCall::Schedule { cpu: Some(1), priority: 44, .. })
    ));
    world.answer_call(yes);
    world.run_until_idle();
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    assert!(matches!(notified(&world), Some(ForeignCall::Attach { .. })));
    world.answer_call(yes);
    world.done(client, Request::Release(granted.spec));
    assert!(matches!(notified(&world), Some(ForeignCall::Detach { .. })));
    world.answer_call(yes);
    world.run_until_idle();
    assert!(matches!(notified(&world), Some(ForeignCall::Release { .. })));
    world.answer_call(yes);
    world.run_until_idle();
    assert_eq!(notified(&world), None);
    world.check_idle(false);
}

#[test]
fn r18_during_a_call_other_clients_are_served_and_the_requester_is_suspended() {
    let mut world = ours_first();
    let (slow, fast) = (world.connect(1000), world.connect(1000));
    ask(&mut world, slow, Request::Create(urgent(5)));
    assert!(!world.connections[&slow].is_reading);
    ask(&mut world, slow, Request::Status);
    let granted = world.create(fast, by(urgent(5), "fp"));
    world.done(fast, Request::Release(granted.spec));
    // The ledger has changed meanwhile, so the plugin is asked once more.
    for _ in 0..2 {
        world.answer_call(with(-1, 0, 0));
        world.run_until_idle();
    }
    let replies: Vec<_> = world
        .connections
        .get_mut(&slow)
        .unwrap()
        .replies
        .drain(..)
        .map(|(_, _, reply)| reply)
        .collect();
    assert!(
        matches!(&replies[..], [Reply::Granted(granted), Reply::Status(_)] if granted.plugin == 1)
    );
}

#[test]
fn r18_a_plugin_that_hangs_is_out_of_service_and_its_specs_stay() {
    let mut world = ours_first();
    let (client, other) = (world.connect(1000), world.connect(1000));
    let tid = world.tid_of(client);
    ask(&mut world, client, Request::Create(urgent(5)));
    world.answer_call(yes);
    world.answer_call(yes);
    world.run_until_idle();
    let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    world.answer_call(yes);
    let applied = world.attr_of(tid);

    // live counterpart: the C plugin that sleeps in accept.
    ask(&mut world, client, Request::Create(urgent(6)));
    ask(&mut world, other, Request::Create(urgent(7)));
    world.advance(Span::from_ns(50 * MS));
    world.run_until_idle();
    for session in [client, other] {
        let Some(Reply::Granted(granted)) = last(&mut world, session) else { panic!("granted") };
        assert_eq!(granted.plugin, 1, "the next plugin serves it");
    }
    assert!(
        world.log.iter().any(
            |event| matches!(event, LogEvent::PluginOutOfService { name, .. } if name == "ours")
        )
    );
    assert_eq!(world.attr_of(tid), applied);
    let Reply::Plugin(info) = world.call(client, Request::Plugin(0)) else { panic!("a plugin") };
    assert!(info.out_of_service);
    let refusal = world.refused(client, Request::Create(by(urgent(5), "ours")));
    assert!(matches!(refusal.answers[0].verdict, PluginVerdict::No(no)
            if no.reason == RejectionReason::OutOfService));
    world.done(client, Request::Release(granted.spec));
    world.check_idle(false);
}

#[test]
fn r18_a_plugin_that_violates_its_bounds_is_out_of_service_and_its_answer_is_not_used() {
    // A CPU outside its set, a priority above its band, an invalid verdict. live counterpart: the C
    // plugin that violates its bounds.
    for lie in [
        with(1, 7, 44),
        with(1, -1, 44),
        with(1, 1, 99),
        with(1, 1, 50),
        with(1, 1, 39),
        with(7, 1, 44),
    ] {
        let mut world = ours_first();
        let client = world.connect(1000);
        ask(&mut world, client, Request::Create(urgent(5)));
        world.answer_call(lie);
        world.run_until_idle();
        let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
        assert_eq!(granted.plugin, 1);
        assert!(world.log.iter().any(|event| matches!(event, LogEvent::PluginOutOfBounds { .. })));
        assert!(world.log.iter().any(|event| matches!(event, LogEvent::PluginOutOfService { .. })));
    }
}

#[test]
fn r18_a_crash_of_a_plugin_host_does_not_block_other_requests() {
    // live counterpart: the C plugin that crashes.
    let mut world = world_of(setup(&["ours", "ours2", "fp"], 2), 2);
    let clients: Vec<_> = (0..4).map(|_| world.connect(1000)).collect();
    for &client in &clients {
        ask(&mut world, client, Request::Create(urgent(5)));
    }
    world.fail_host(0);
    world.run_until_idle();
    // All four requests are now at the second plugin, one at a time.
    for &client in &clients {
        assert_eq!(last(&mut world, client), None);
        world.answer_call(with(-1, 0, 0));
        world.run_until_idle();
        let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
        assert_eq!(granted.plugin, 2);
    }
    world.fail_host(0);
    world.run_until_idle();
    world.check_idle(false);
}

#[test]
fn attack_10_a_host_that_serves_again_is_notified_of_its_specs() {
    let mut world = ours_first();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    ask(&mut world, client, Request::Create(urgent(5)));
    while world.answer_call(yes) {
        world.run_until_idle();
    }
    let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    world.fail_host(0);
    world.run_until_idle();
    let refused = world.refused(client, Request::Create(by(urgent(5), "ours")));
    assert_eq!(refused.code, Code::NoPlugin);
    world.restart_host(0);
    world.run_until_idle();
    let mut notified = Vec::new();
    while let Some((_, call, _)) = world.calls.values().next() {
        notified.push(call.clone());
        world.answer_call(yes);
        world.run_until_idle();
    }
    let id = granted.spec;
    assert!(
        matches!(&notified[..], [
            ForeignCall::Schedule { spec: first, cpu: Some(1), priority: 44, .. },
            ForeignCall::Attach { spec: second }] if (*first, *second) == (id, id)),
        "{notified:?}"
    );
    // It is asked again.
    ask(&mut world, client, Request::Create(by(urgent(5), "ours")));
    while world.answer_call(yes) {
        world.run_until_idle();
    }
    assert!(matches!(last(&mut world, client), Some(Reply::Granted(_))));
}

#[test]
fn attack_10_a_host_that_starts_late_serves_later() {
    let mut world = ours_first();
    world.handle_input(Input::HostStarting { plugin: 0 });
    world.run_until_idle();
    let client = world.connect(1000);
    assert_eq!(world.create(client, urgent(5)).plugin, 1);
    assert!(world.calls.is_empty(), "it is not asked");
    world.handle_input(Input::HostServes { plugin: 0 });
    ask(&mut world, client, Request::Create(urgent(5)));
    while world.answer_call(yes) {
        world.run_until_idle();
    }
    let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
    assert_eq!(granted.plugin, 0);
    assert!(world.hosts.ended.is_empty(), "the starting host was not stopped");
}

#[test]
fn r18_an_answer_for_an_outdated_ledger_is_requested_once_more_and_then_used() {
    let mut world = ours_first();
    let (slow, fast) = (world.connect(1000), world.connect(1000));
    ask(&mut world, slow, Request::Create(urgent(5)));
    for _ in 0..2 {
        assert_eq!(last(&mut world, slow), None);
        // The ledger changes while the call is in flight.
        world.create(fast, by(urgent(5), "fp"));
        world.answer_call(yes);
        world.run_until_idle();
    }
    let Some(Reply::Granted(granted)) = last(&mut world, slow) else { panic!("granted") };
    assert_eq!(granted.plugin, 0);
}

#[test]
fn an_outdated_partial_offer_is_not_accepted() {
    // rm serves a task without a runtime in part; then the foreign plugin answers; meanwhile the
    // rules change.
    let mut world = world_of(setup(&["rm", "ours"], 2), 2);
    let client = world.connect(1000);
    let mut task = timed(0, 10_000);
    task.params.priority = None;
    ask(&mut world, client, Request::Create(task));
    let mut strict = world.setup().clone();
    strict.access = talea_core::setup::Access::Rules;
    world.reload(strict);
    world.answer_call(with(-1, 0, 0));
    world.run_until_idle();
    let Some(Reply::Refused(refusal)) = last(&mut world, client) else { panic!("refused") };
    assert_eq!(refusal.code, Code::NotAllowed);
    assert_eq!(world.broker.specs(), 0);
}

#[test]
fn a_hang_up_during_a_call_releases_the_whole_group() {
    let mut world = ours_first();
    let (client, other) = (world.connect(1000), world.connect(1000));
    let group = vec![by(urgent(5), "fp"), by(urgent(6), "fp"), by(urgent(7), "ours")];
    ask(&mut world, client, Request::CreateGroup(group));
    assert_eq!(world.broker.specs(), 0, "reserved specs are invisible");
    assert!(world.file.is_empty());
    world.close_connection(client);
    world.run_until_idle();
    world.answer_call(yes);
    world.run_until_idle();
    world.close_connection(other);
    world.run_until_idle();
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_change_that_waits_for_a_plugin_handles_the_end_of_its_spec() {
    let mut world = ours_first();
    let (client, root) = (world.connect(1000), world.connect(0));
    let granted = world.create(client, by(urgent(5), "fp"));
    let change = Request::Change { spec: granted.spec, task: by(urgent(6), "ours") };
    ask(&mut world, client, change);
    world.done(root, Request::Release(granted.spec));
    for _ in 0..2 {
        world.answer_call(yes);
        world.run_until_idle();
    }
    let Some(Reply::Refused(refusal)) = last(&mut world, client) else { panic!("refused") };
    assert_eq!(refusal.code, Code::NoSuchSpec);
    world.check_idle(false);
}

#[test]
fn explain_asks_foreign_plugins_too() {
    let mut world = ours_first();
    let client = world.connect(1000);
    ask(&mut world, client, Request::Explain(urgent(5)));
    assert_eq!(last(&mut world, client), None);
    world.answer_call(yes);
    world.run_until_idle();
    let Some(Reply::Explained { chosen, answers, .. }) = last(&mut world, client) else {
        panic!("explained")
    };
    assert_eq!((chosen, answers.len()), (Some(0), 2));
    assert_eq!((world.broker.specs(), world.calls.len()), (0, 0));
}

#[test]
fn stop_answers_requests_that_wait_for_a_plugin() {
    let mut world = ours_first();
    let (client, root) = (world.connect(1000), world.connect(0));
    ask(&mut world, client, Request::Create(urgent(5)));
    world.done(root, Request::Stop { release: true });
    let Some(Reply::Refused(refusal)) = last(&mut world, client) else { panic!("refused") };
    assert_eq!(refusal.code, Code::Stopping);
    assert!(world.exited);
}

#[test]
fn opposite_notifications_of_a_slow_plugin_cancel_each_other() {
    let mut world = world_of(setup(&["ours", "fp"], 2), 2);
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    ask(&mut world, client, Request::Create(urgent(5)));
    world.answer_call(yes);
    world.run_until_idle();
    let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
    // The notification of the schedule is still in flight.
    for _ in 0..400 {
        assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
        world.done(client, Request::Detach(granted.spec));
    }
    world.answer_call(yes);
    world.run_until_idle();
    assert!(world.calls.is_empty(), "no notification is left");
}

#[test]
fn attack_16_users_take_turns_at_a_slow_plugin() {
    let mut world = ours_first();
    let crowd: Vec<SessionId> = (0..10).map(|_| world.connect(1000)).collect();
    let honest = world.connect(1001);
    for &client in &crowd {
        ask(&mut world, client, Request::Create(by(urgent(5), "ours")));
    }
    ask(&mut world, honest, Request::Create(by(urgent(5), "ours")));
    // The first call of the crowd is in flight; the other user's is next.
    for _ in 0..2 {
        assert_eq!(last(&mut world, honest), None);
        world.answer_call(with(-1, 0, 0));
        world.run_until_idle();
    }
    assert!(last(&mut world, honest).is_some(), "one call of the crowd, then this one");
    let answered = crowd.iter().filter(|&&client| last(&mut world, client).is_some()).count();
    assert_eq!(answered, 1);
}
