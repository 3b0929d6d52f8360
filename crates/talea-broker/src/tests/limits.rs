//! Quotas and rates (facts D4): what one user may hold and ask, and that others do not feel it.

use super::stage::{MS, Words, setup, urgent, world, world_of};
use crate::input::{Input, LogEvent};
use talea_core::Span;
use talea_core::setup::Quota;
use talea_proto::message::SpecId;
use talea_proto::{Code, Field, Reply, Request, VERSION};

fn quota(change: impl FnOnce(&mut Quota)) -> talea_core::setup::Setup {
    let mut setup = setup(&["edf", "rm", "fp", "rr"], 2);
    change(&mut setup.quota);
    setup
}

#[test]
fn retif_d4_specs_of_a_user_and_in_all_are_bounded_and_come_free_again() {
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
fn retif_d4_connections_are_bounded_and_whoever_is_too_many_hears_why() {
    let mut world = world_of(
        quota(|quota| {
            quota.sessions_per_user = 2;
            quota.sessions = 3;
        }),
        2,
    );
    let kept = [world.connect(1000), world.connect(1000)];
    world.kernel.spawn(500, 1000);
    let flood: Vec<_> = (0..200).map(|_| world.dial(500, 1000, &[])).collect();
    world.settle();
    let open = flood.iter().filter(|session| world.lines.contains_key(session)).count();
    assert_eq!(open, 64, "only so many wait to be told");
    world.send(flood[0], Request::Hello { min: VERSION, max: VERSION }, None);
    world.settle();
    assert!(!world.lines.contains_key(&flood[0]));
    let refused = world.log.iter().any(|event| {
        matches!(event, LogEvent::Refused { refusal, .. }
            if refusal.code == Code::Quota && refusal.field == Field::Sessions && refusal.limit == 2)
    });
    assert!(refused);
    // Others get in up to the total, root beyond it.
    world.connect(1001);
    let roots = [world.connect(0), world.connect(0)];
    assert_eq!(world.broker.sessions(), 5);
    world.hang_up(kept[0]);
    for session in flood.into_iter().chain(roots) {
        world.hang_up(session);
    }
    world.settle();
    world.connect(1000);
}

#[test]
fn retif_d4_who_asks_too_fast_is_answered_and_then_not_read_from() {
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
    world.settle();
    let answered = world.lines[&greedy].replies.len();
    assert!((9..=11).contains(&answered), "{answered} answers at once");
    assert!(!world.lines[&greedy].armed);
    assert_eq!(world.lines[&root].replies.len(), 1000, "root is exempt");
    assert!(matches!(world.call(honest, Request::Status), Reply::Status(_)));

    // Served on as fast as the rate allows, with one wake-up each.
    let before = world.lines[&greedy].replies.len();
    for _ in 0..100 {
        world.advance(Span::from_ns(10 * MS));
        world.settle();
    }
    let served = world.lines[&greedy].replies.len() - before;
    assert!((99..=101).contains(&served), "{served} in a second");
    let limited =
        world.log.iter().filter(|event| matches!(event, LogEvent::RateLimited { uid: 1000 }));
    assert!(limited.count() <= 2, "once a second");
    world.hang_up(greedy);
    world.settle();
    assert_eq!(world.broker.next_wakeup(), None);
}

#[test]
fn retif_d4_a_group_is_as_many_requests_as_it_has_tasks() {
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
    world.settle();
    let at_once = world.lines[&greedy].replies.len();
    assert!((2..=3).contains(&at_once), "{at_once} groups at once");
    for _ in 0..200 {
        world.advance(Span::from_ns(10 * MS));
        world.settle();
    }
    let served = world.lines[&greedy].replies.len() - at_once;
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
        world.settle();
    }
    let served: usize = sessions.iter().map(|session| world.lines[session].replies.len()).sum();
    // The burst, one each before it is held back, and a second's worth.
    assert!(served <= 10 + 20 + 101, "{served} answers");
}

#[test]
fn a_driver_that_reads_on_meets_a_bound_and_not_our_memory() {
    let mut world = world_of(setup(&["ours", "fp"], 2), 2);
    let client = world.connect(1000);
    for seq in 10..40 {
        let request = Request::Create(urgent(5));
        world.lines.get_mut(&client).unwrap().outstanding.insert(seq, request.clone());
        world.tell(Input::Asked { session: client, seq, request, thread: None, entropy: 1 });
    }
    while world.obey_one() {}
    let replies = &world.lines[&client].replies;
    assert_eq!(replies.len(), 25, "one is with the plugin, four wait");
    assert!(replies.iter().all(|(_, _, reply)| {
        matches!(reply, Reply::Refused(refusal) if refusal.code == Code::Busy)
    }));
    world.advance(Span::from_ns(60 * MS));
    world.settle();
    assert_eq!(world.lines[&client].replies.len(), 30);
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
    // Ids far beyond what a float can hold stay apart.
    let mut record = world.broker.record(0).expect("the second one is there");
    record.spec = SpecId(1 << 53);
    world.file.insert(0, record);
    world.restart();
    world.settle();
    let client = world.connect(1000);
    let ids: Vec<_> = (0..3).map(|_| world.create(client, urgent(5)).spec.0).collect();
    assert_eq!(ids, [(1 << 53) + 1, (1 << 53) + 2, (1 << 53) + 3]);
}
