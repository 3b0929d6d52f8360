//! Calls that wait for the host of a foreign plugin.
//!
//! The calls of one user keep their order, and the users take turns: the next call is the first one
//! of the user whose last turn is the oldest. Of users with the same turn, the one with the older
//! call is first. A call has a target, by which the caller finds it again.
//!
//! While a call that changes the plugin's tasks waits ([`CallKind::Tasks`]), the notifications come
//! first, oldest first, without regard to turns. So the plugin answers each question with its
//! present tasks. A notification follows from an answered question or from the end of a spec, so a
//! user cannot repeat it without turns.
//!
//! Each operation is O(log calls): a host that returns or is slow has a call for each of its specs.

use std::collections::{BTreeMap, BTreeSet};
use talea_core::mutate;

/// Precedence of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A question.
    Question,
    /// A notification that does not change the tasks of the plugin.
    Notice,
    /// A notification that changes the tasks of the plugin.
    Tasks,
}

/// Waiting calls of type `C`, with targets of type `T`.
#[derive(Debug)]
pub(crate) struct CallQueue<T, C> {
    /// Calls by number; a later call has a greater number.
    calls: BTreeMap<u64, Waiting<T, C>>,
    by_user: BTreeSet<(u32, u64)>,
    by_target: BTreeSet<(T, u64)>,
    /// Numbers of the notifications.
    notices: BTreeSet<u64>,
    /// Numbers of the notifications that change the tasks of the plugin.
    changes: BTreeSet<u64>,
    /// Users with a call: the last turn, the number of the first call, the user.
    order: BTreeSet<(u64, u64, u32)>,
    /// Number of the last turn of each user since the host was idle.
    turns: BTreeMap<u32, u64>,
    turn: u64,
    next_number: u64,
}

#[derive(Debug)]
struct Waiting<T, C> {
    uid: u32,
    target: T,
    call: C,
}

impl<T, C> Default for CallQueue<T, C> {
    fn default() -> CallQueue<T, C> {
        CallQueue {
            calls: BTreeMap::new(),
            by_user: BTreeSet::new(),
            by_target: BTreeSet::new(),
            notices: BTreeSet::new(),
            changes: BTreeSet::new(),
            order: BTreeSet::new(),
            turns: BTreeMap::new(),
            turn: 0,
            next_number: 0,
        }
    }
}

impl<T: Copy + Ord, C> CallQueue<T, C> {
    /// Adds a call on behalf of a user.
    pub(crate) fn push(&mut self, uid: u32, kind: CallKind, target: T, call: C) {
        let number = self.next_number;
        self.next_number += 1;
        self.update(uid, |queue| {
            queue.by_user.insert((uid, number));
            queue.by_target.insert((target, number));
            if kind != CallKind::Question {
                queue.notices.insert(number);
            }
            if kind == CallKind::Tasks {
                queue.changes.insert(number);
            }
            queue.calls.insert(number, Waiting { uid, target, call });
        });
    }

    /// Removes the next call.
    pub(crate) fn pop(&mut self) -> Option<C> {
        let is_changed = mutate!("plugin-foreign-notices", !self.changes.is_empty(), false);
        let notice = self.notices.first().copied().filter(|_| is_changed);
        let next = notice.or(self.order.first().map(|&(_, number, _)| number));
        let Some(number) = mutate!("plugin-foreign-turns", next, self.calls.keys().next().copied())
        else {
            // No call waits or is in flight.
            self.turns.clear();
            return None;
        };
        let uid = self.calls[&number].uid;
        self.turn += 1;
        let turn = self.turn;
        self.update(uid, |queue| {
            queue.turns.insert(uid, turn);
            queue.remove_unordered(number)
        })
    }

    /// Returns the last call with this target, with its number.
    pub(crate) fn last_of(&self, target: T) -> Option<(u64, &C)> {
        let &(_, number) = self.by_target.range((target, 0)..=(target, u64::MAX)).next_back()?;
        Some((number, &self.calls[&number].call))
    }

    /// Removes the call with this number.
    pub(crate) fn remove(&mut self, number: u64) -> Option<C> {
        let uid = self.calls.get(&number)?.uid;
        self.update(uid, |queue| queue.remove_unordered(number))
    }

    /// Iterates over the calls with their numbers, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &C)> {
        self.calls.iter().map(|(&number, waiting)| (number, &waiting.call))
    }

    /// Returns all calls, oldest first.
    pub(crate) fn into_calls(self) -> impl Iterator<Item = C> {
        self.calls.into_values().map(|waiting| waiting.call)
    }

    /// Removes a call without an update of `order`.
    fn remove_unordered(&mut self, number: u64) -> Option<C> {
        let Waiting { uid, target, call } = self.calls.remove(&number)?;
        self.by_user.remove(&(uid, number));
        self.by_target.remove(&(target, number));
        self.notices.remove(&number);
        self.changes.remove(&number);
        Some(call)
    }

    /// Changes the calls or the turn of a user, and updates `order`.
    fn update<R>(&mut self, uid: u32, change: impl FnOnce(&mut CallQueue<T, C>) -> R) -> R {
        if let Some(place) = self.place_of(uid) {
            self.order.remove(&place);
        }
        let result = change(self);
        self.order.extend(self.place_of(uid));
        result
    }

    fn place_of(&self, uid: u32) -> Option<(u64, u64, u32)> {
        let &(_, first) = self.by_user.range((uid, 0)..=(uid, u64::MAX)).next()?;
        Some((self.turns.get(&uid).copied().unwrap_or(0), first, uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Reference model: one list, which each operation searches.
    #[derive(Default)]
    struct Plain {
        calls: VecDeque<(u32, u64, u32, CallKind)>,
        turns: BTreeMap<u32, u64>,
        turn: u64,
    }

    impl Plain {
        fn pop(&mut self) -> Option<u32> {
            if self.calls.is_empty() {
                self.turns.clear();
            }
            let is_changed = self.calls.iter().any(|call| call.3 == CallKind::Tasks);
            let notice = self.calls.iter().position(|call| call.3 != CallKind::Question);
            let turn = |uid| self.turns.get(uid).copied().unwrap_or(0);
            let places = self.calls.iter().enumerate();
            let (_, by_turn) = places.map(|(at, (uid, ..))| (turn(uid), at)).min()?;
            let at = notice.filter(|_| is_changed).unwrap_or(by_turn);
            let (uid, _, call, _) = self.calls.remove(at)?;
            self.turn += 1;
            self.turns.insert(uid, self.turn);
            Some(call)
        }
    }

    #[test]
    fn the_queue_equals_a_plain_list_under_random_calls() {
        let (mut queue, mut plain) = (CallQueue::default(), Plain::default());
        let mut seed = 3_u64;
        let mut random = move |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let (mut emptied, mut longest) = (0, 0);
        for step in 0..40_000_u32 {
            // The queue grows and shrinks in turns.
            let growth = if step / 500 % 2 == 0 { 5 } else { 1 };
            let target = random(12);
            match random(9) {
                0 => {
                    let last = plain.calls.iter().rposition(|&(_, other, ..)| other == target);
                    let number = queue.last_of(target).map(|(number, _)| number);
                    assert_eq!(
                        number.and_then(|number| queue.remove(number)),
                        last.and_then(|at| plain.calls.remove(at)).map(|(_, _, call, _)| call)
                    );
                }
                value if value <= growth => {
                    let uid = (target % 4) as u32;
                    let kinds = [CallKind::Question, CallKind::Notice, CallKind::Tasks];
                    let kind = kinds[random(8).saturating_sub(5) as usize];
                    queue.push(uid, kind, target, step);
                    plain.calls.push_back((uid, target, step, kind));
                }
                _ => {
                    let next = plain.pop();
                    assert_eq!(queue.pop(), next);
                    emptied += u32::from(next.is_none());
                }
            }
            let calls = queue.iter().map(|(_, &call)| call);
            assert!(calls.eq(plain.calls.iter().map(|&(_, _, call, _)| call)));
            longest = longest.max(plain.calls.len());
        }
        assert!(emptied > 100 && longest > 50, "{emptied} times empty, {longest} calls at most");
    }
}
