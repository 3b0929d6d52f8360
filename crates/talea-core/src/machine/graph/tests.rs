//! A channel against a plain twin: three lists.

use super::super::{Event, Handled, NodeId, SchedulerSpec, TaskId, TaskSpec, Tree};
use super::{Channel, Traffic};
use crate::sched::Policy;
use crate::{Span, Time};
use alloc::vec::Vec;

fn channel(room: usize, tokens: u32, is_signal: bool) -> Channel {
    Channel {
        from: 0,
        to: 1,
        tokens,
        is_signal,
        ring: alloc::vec![Time::NEVER; room],
        first: 0,
        stored: 0,
        visible: 0,
        claimed: 0,
        traffic: Traffic::default(),
        id: (NodeId(0), NodeId(1)),
    }
}

#[test]
fn y10_random_pushes_pops_and_activations_equal_plain_lists() {
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for case in 0..200 {
        let (room, tokens) = (1 + random(6) as usize, 1 + random(3) as u32);
        let mut channel = channel(room, tokens.min(room as u32), false);
        let tokens = channel.tokens as usize;
        // (deadline, whether an activation has taken it).
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
                    assert_eq!(channel.is_enough(), free >= tokens, "case {case}");
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
fn y9_a_signal_is_gone_when_it_has_activated_somebody() {
    let mut channel = channel(4, 2, true);
    for deadline in 1..=4 {
        assert!(channel.publish(Time::from_ns(deadline)));
        assert_eq!(channel.is_enough(), deadline % 2 == 0);
        if channel.is_enough() {
            assert_eq!(channel.claim(), Time::from_ns(deadline));
        }
    }
    assert_eq!((channel.stored, channel.traffic.popped), (0, 4));
}

#[test]
fn y10_whoever_finds_a_channel_full_or_empty_is_told_so() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
    let source = tree.task(Tree::ROOT, TaskSpec::new("source", Span::from_ns(100)));
    let sink = tree.task(Tree::ROOT, TaskSpec::node("sink"));
    let channel = tree.channel(source, sink, 1);
    let mut machine = tree.build().expect("a tree");
    let mut tell = |now: u64, event| {
        let now = Time::from_ns(now);
        let answer = machine.handle(now, event);
        while machine.poll(now).is_some() {}
        answer
    };
    let _ = tell(0, Event::Arrived { task: TaskId(0), arrival: Time::ZERO });
    assert_eq!(tell(1, Event::Pushed { channel }), Handled::Done);
    assert_eq!(tell(1, Event::Pushed { channel }), Handled::Full);
    let _ = tell(2, Event::Completed { task: TaskId(0) });
    assert_eq!(tell(3, Event::Popped { channel }), Handled::Done);
    assert_eq!(tell(3, Event::Popped { channel }), Handled::Empty);
}
