//! Channels compared with a reference model of two lists.

use super::super::{Event, Handled, SchedulerSpec, TaskId, TaskSpec, Tree};
use super::{Channel, Traffic};
use crate::rng::Rng;
use crate::sched::PolicySpec;
use crate::{Span, Time};
use alloc::vec::Vec;

fn channel(room: usize, tokens: u32, is_signal: bool) -> Channel {
    Channel {
        from: 0,
        to: 1,
        tokens,
        is_signal,
        deadlines: alloc::vec![Time::NEVER; room],
        first: 0,
        stored: 0,
        visible: 0,
        claimed: 0,
        traffic: Traffic::default(),
    }
}

#[test]
fn y10_random_pushes_pops_and_activations_equal_a_reference_model() {
    let mut rng = Rng::new(1);
    let mut random = |below: u64| rng.below(below);
    for case in 0..200 {
        let (room, tokens) = (1 + random(6) as usize, 1 + random(3) as u32);
        let mut channel = channel(room, tokens.min(room as u32), false);
        let tokens = channel.tokens as usize;
        // (deadline, whether an activation has claimed it).
        let (mut pending, mut stored) = (Vec::<u64>::new(), Vec::<(u64, bool)>::new());
        for step in 0..300 {
            match random(4) {
                0 => {
                    let fits = pending.len() + stored.len() < room;
                    assert_eq!(channel.push(Time::from_ns(step)), fits);
                    if fits {
                        pending.push(step);
                    }
                }
                1 => {
                    assert_eq!(channel.publish(Time::from_ns(step)), !pending.is_empty());
                    stored.extend(pending.drain(..).map(|deadline| (deadline, false)));
                }
                2 => {
                    assert_eq!(channel.pop(), !stored.is_empty(), "case {case}");
                    if !stored.is_empty() {
                        stored.remove(0);
                    }
                }
                _ => {
                    let free = stored.iter().filter(|token| !token.1).count();
                    assert_eq!(channel.can_activate(), free >= tokens, "case {case}");
                    if free >= tokens {
                        let mut latest = 0;
                        for token in stored.iter_mut().filter(|token| !token.1).take(tokens) {
                            token.1 = true;
                            latest = token.0;
                        }
                        assert_eq!(channel.claim(), Time::from_ns(latest));
                    }
                }
            }
            assert_eq!(
                (channel.visible as usize, channel.stored as usize),
                (stored.len(), stored.len() + pending.len())
            );
            assert!(channel.claimed <= channel.visible);
        }
        let traffic = channel.traffic;
        assert_eq!(traffic.pushed - traffic.popped, channel.stored.into());
    }
}

#[test]
fn y9_an_activation_removes_its_signals() {
    let mut channel = channel(4, 2, true);
    for deadline in 1..=4 {
        assert!(channel.publish(Time::from_ns(deadline)));
        assert_eq!(channel.can_activate(), deadline % 2 == 0);
        if channel.can_activate() {
            assert_eq!(channel.claim(), Time::from_ns(deadline));
        }
    }
    assert_eq!((channel.stored, channel.traffic.popped), (0, 4));
}

#[test]
fn y10_a_full_or_empty_channel_is_reported() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", Span::from_ns(100)));
    let sink = tree.task(Tree::ROOT, TaskSpec::node("sink"));
    let channel = tree.channel(source, sink, 1);
    let mut engine = tree.build().expect("a tree");
    let mut to_update = |now: u64, event| {
        let now = Time::from_ns(now);
        let answer = engine.handle(now, event);
        while engine.poll(now).is_some() {}
        answer
    };
    let _ = to_update(0, Event::Arrived { task: TaskId(0), arrival: Time::ZERO });
    assert_eq!(to_update(1, Event::Pushed { channel }), Handled::Done);
    assert_eq!(to_update(1, Event::Pushed { channel }), Handled::Full);
    let _ = to_update(2, Event::Completed { task: TaskId(0) });
    assert_eq!(to_update(3, Event::Popped { channel }), Handled::Done);
    assert_eq!(to_update(3, Event::Popped { channel }), Handled::Empty);
}
