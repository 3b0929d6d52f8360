//! Foreign plugins: they may hang, lie and die while everybody else is served (checklist R18).

use super::stage::{MS, Words, by, setup, timed, urgent, world_of};
use crate::input::{ForeignAnswer, ForeignQuestion, LogEvent, SessionId};
use crate::sim::World;
use talea_core::Span;
use talea_proto::refusal::{Reason, Said};
use talea_proto::{Code, Reply, Request};

#[expect(clippy::unnecessary_wraps, reason = "an answer, as opposed to a time-out")]
fn yes(question: &ForeignQuestion) -> Option<ForeignAnswer> {
    let ForeignQuestion::Accept { epoch, .. } = question else {
        return Some(ForeignAnswer { epoch: 0, verdict: 1, cpu: 0, priority: 0 });
    };
    Some(ForeignAnswer { epoch: *epoch, verdict: 1, cpu: 1, priority: 44 })
}

fn with(
    verdict: i32,
    cpu: i32,
    priority: i32,
) -> impl Fn(&ForeignQuestion) -> Option<ForeignAnswer> {
    move |question| {
        let mut answer = yes(question)?;
        (answer.verdict, answer.cpu, answer.priority) = (verdict, cpu, priority);
        Some(answer)
    }
}

fn last(world: &mut World, session: SessionId) -> Option<Reply> {
    world.lines.get_mut(&session).unwrap().replies.pop_back().map(|(_, _, reply)| reply)
}

fn ask(world: &mut World, session: SessionId, request: Request) {
    world.send(session, request, None);
    world.settle();
}

fn ours_first() -> World {
    world_of(setup(&["ours", "fp"], 2), 2)
}

#[test]
fn r18_a_foreign_plugin_accepts_places_and_is_told_what_becomes_of_it() {
    let mut world = ours_first();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    ask(&mut world, client, Request::Create(urgent(5)));
    assert_eq!(last(&mut world, client), None, "it waits for the plugin");
    world.answer_one(yes);
    world.settle();
    let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
    assert_eq!((granted.plugin, granted.cpu, granted.priority), (0, Some(1), 44));
    let told =
        |world: &World| world.questions.values().next().map(|(_, question, _)| question.clone());
    assert!(matches!(told(&world), Some(ForeignQuestion::Schedule { cpu: 1, priority: 44, .. })));
    world.answer_one(yes);
    world.settle();
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    assert!(matches!(told(&world), Some(ForeignQuestion::Attach { .. })));
    world.answer_one(yes);
    world.done(client, Request::Release(granted.spec));
    assert!(matches!(told(&world), Some(ForeignQuestion::Detach { .. })));
    world.answer_one(yes);
    world.settle();
    assert!(matches!(told(&world), Some(ForeignQuestion::Release { .. })));
    world.answer_one(yes);
    world.settle();
    assert_eq!(told(&world), None);
    world.check_quiet(false);
}

#[test]
fn r18_while_a_plugin_thinks_others_are_served_and_its_asker_is_not_read_from() {
    let mut world = ours_first();
    let (slow, fast) = (world.connect(1000), world.connect(1000));
    ask(&mut world, slow, Request::Create(urgent(5)));
    assert!(!world.lines[&slow].armed);
    ask(&mut world, slow, Request::Status);
    let granted = world.create(fast, by(urgent(5), "fp"));
    world.done(fast, Request::Release(granted.spec));
    // The books have changed meanwhile, so it is asked once more.
    for _ in 0..2 {
        world.answer_one(with(-1, 0, 0));
        world.settle();
    }
    let replies: Vec<_> =
        world.lines.get_mut(&slow).unwrap().replies.drain(..).map(|(_, _, reply)| reply).collect();
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
    world.answer_one(yes);
    world.answer_one(yes);
    world.settle();
    let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    world.answer_one(yes);
    let given = world.attr_of(tid);

    // live twin: the C plugin that sleeps in accept.
    ask(&mut world, client, Request::Create(urgent(6)));
    ask(&mut world, other, Request::Create(urgent(7)));
    world.advance(Span::from_ns(50 * MS));
    world.settle();
    for session in [client, other] {
        let Some(Reply::Granted(granted)) = last(&mut world, session) else { panic!("granted") };
        assert_eq!(granted.plugin, 1, "the next plugin serves it");
    }
    assert!(
        world
            .log
            .iter()
            .any(|event| matches!(event, LogEvent::PluginOut { name, .. } if name == "ours"))
    );
    assert_eq!(world.attr_of(tid), given);
    let Reply::Plugin(info) = world.call(client, Request::Plugin(0)) else { panic!("a plugin") };
    assert!(info.out_of_service);
    let refusal = world.refused(client, Request::Create(by(urgent(5), "ours")));
    assert!(
        matches!(refusal.answers[0].verdict, Said::No(no) if no.reason == Reason::OutOfService)
    );
    world.done(client, Request::Release(granted.spec));
    world.check_quiet(false);
}

#[test]
fn r18_a_plugin_that_lies_is_out_of_service_and_nobody_gets_what_it_said() {
    // A CPU that is not its own, a priority above its band, a verdict that does not exist.
    // live twin: the C plugin that lies.
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
        world.answer_one(lie);
        world.settle();
        let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
        assert_eq!(granted.plugin, 1);
        assert!(world.log.iter().any(|event| matches!(event, LogEvent::PluginLied { .. })));
        assert!(world.log.iter().any(|event| matches!(event, LogEvent::PluginOut { .. })));
    }
}

#[test]
fn r18_a_plugin_whose_host_dies_lets_everybody_go_on() {
    // live twin: the C plugin that crashes.
    let mut world = world_of(setup(&["ours", "ours2", "fp"], 2), 2);
    let clients: Vec<_> = (0..4).map(|_| world.connect(1000)).collect();
    for &client in &clients {
        ask(&mut world, client, Request::Create(urgent(5)));
    }
    world.plugin_down(0);
    world.settle();
    // All four are with the second plugin now, one at a time.
    for &client in &clients {
        assert_eq!(last(&mut world, client), None);
        world.answer_one(with(-1, 0, 0));
        world.settle();
        let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
        assert_eq!(granted.plugin, 2);
    }
    world.plugin_down(0);
    world.settle();
    world.check_quiet(false);
}

#[test]
fn r18_an_answer_on_old_books_is_asked_for_once_more_and_then_taken() {
    let mut world = ours_first();
    let (slow, fast) = (world.connect(1000), world.connect(1000));
    ask(&mut world, slow, Request::Create(urgent(5)));
    for _ in 0..2 {
        assert_eq!(last(&mut world, slow), None);
        // The books change while the plugin thinks.
        world.create(fast, by(urgent(5), "fp"));
        world.answer_one(yes);
        world.settle();
    }
    let Some(Reply::Granted(granted)) = last(&mut world, slow) else { panic!("granted") };
    assert_eq!(granted.plugin, 0);
}

#[test]
fn a_partial_offer_that_no_longer_holds_is_not_taken() {
    // rm serves a task without runtime in part; then the foreign plugin is heard; meanwhile the
    // rules change.
    let mut world = world_of(setup(&["rm", "ours"], 2), 2);
    let client = world.connect(1000);
    let mut task = timed(0, 10_000);
    task.params.priority = None;
    ask(&mut world, client, Request::Create(task));
    let mut strict = world.setup().clone();
    strict.access = talea_core::setup::Access::Rules;
    world.reload(strict);
    world.answer_one(with(-1, 0, 0));
    world.settle();
    let Some(Reply::Refused(refusal)) = last(&mut world, client) else { panic!("refused") };
    assert_eq!(refusal.code, Code::NotAllowed);
    assert_eq!(world.broker.specs(), 0);
}

#[test]
fn a_hang_up_while_a_plugin_thinks_takes_the_whole_group_back() {
    let mut world = ours_first();
    let (client, other) = (world.connect(1000), world.connect(1000));
    let group = vec![by(urgent(5), "fp"), by(urgent(6), "fp"), by(urgent(7), "ours")];
    ask(&mut world, client, Request::CreateGroup(group));
    assert_eq!(world.broker.specs(), 0, "nobody sees what is only reserved");
    assert!(world.file.is_empty());
    world.hang_up(client);
    world.settle();
    world.answer_one(yes);
    world.settle();
    world.hang_up(other);
    world.settle();
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_change_that_waits_for_a_plugin_meets_the_end_of_its_spec() {
    let mut world = ours_first();
    let (client, root) = (world.connect(1000), world.connect(0));
    let granted = world.create(client, by(urgent(5), "fp"));
    let change = Request::Change { spec: granted.spec, task: by(urgent(6), "ours") };
    ask(&mut world, client, change);
    world.done(root, Request::Release(granted.spec));
    for _ in 0..2 {
        world.answer_one(yes);
        world.settle();
    }
    let Some(Reply::Refused(refusal)) = last(&mut world, client) else { panic!("refused") };
    assert_eq!(refusal.code, Code::NoSuchSpec);
    world.check_quiet(false);
}

#[test]
fn explain_asks_foreign_plugins_too() {
    let mut world = ours_first();
    let client = world.connect(1000);
    ask(&mut world, client, Request::Explain(urgent(5)));
    assert_eq!(last(&mut world, client), None);
    world.answer_one(yes);
    world.settle();
    let Some(Reply::Explained { chosen, answers, .. }) = last(&mut world, client) else {
        panic!("explained")
    };
    assert_eq!((chosen, answers.len()), (Some(0), 2));
    assert_eq!((world.broker.specs(), world.questions.len()), (0, 0));
}

#[test]
fn stop_answers_those_who_wait_for_a_plugin() {
    let mut world = ours_first();
    let (client, root) = (world.connect(1000), world.connect(0));
    ask(&mut world, client, Request::Create(urgent(5)));
    world.done(root, Request::Stop { release: true });
    let Some(Reply::Refused(refusal)) = last(&mut world, client) else { panic!("refused") };
    assert_eq!(refusal.code, Code::Stopping);
    assert!(world.exited);
}

#[test]
fn what_a_slow_plugin_has_not_heard_of_is_not_told_twice() {
    let mut world = world_of(setup(&["ours", "fp"], 2), 2);
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    ask(&mut world, client, Request::Create(urgent(5)));
    world.answer_one(yes);
    world.settle();
    let Some(Reply::Granted(granted)) = last(&mut world, client) else { panic!("granted") };
    // The plugin is still being told of the schedule.
    for _ in 0..400 {
        assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
        world.done(client, Request::Detach(granted.spec));
    }
    world.answer_one(yes);
    world.settle();
    assert!(world.questions.is_empty(), "nothing is left to tell");
}
