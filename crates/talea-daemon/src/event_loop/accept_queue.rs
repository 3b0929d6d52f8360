//! Accepted connections that wait for their turn, by user.
//!
//! The kernel's backlog is one queue for all users, so a user that connects endlessly delays all
//! others. The daemon therefore accepts connections faster than it adds them to the broker, and
//! adds them in turns: one connection of each user after the other, root first. A subordinate user
//! has the turn of its owner.
//!
//! | state of an accepted connection | condition | next state |
//! | --- | --- | --- |
//! | *waiting* | the turn of its user, whose connect rate permits it | *added* |
//! | *waiting* | the queue is full, and its user's queue is the longest | *dropped*, newest first |
//!
//! Adding a connection costs [`CONNECT_PRICE`] ordinary requests. The connect rate of a user is its
//! request rate divided by this price, by the generic cell rate algorithm as in the broker's
//! `users.rs`. Root is exempt.
//!
//! Dropping from the longest queue is buffer stealing: McKenney, *Stochastic fairness queueing*,
//! INFOCOM 1990, section 3.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use talea_core::setup::Quota;
use talea_core::{Monotonic, Span, mutate};

/// Cost of adding a connection, in ordinary requests.
const CONNECT_PRICE: u64 = 4;
/// User number of root.
const ROOT: u32 = 0;
const SECOND_NS: u64 = 1_000_000_000;

/// Waiting connections of one user.
#[derive(Debug)]
struct UserQueue<C> {
    waiting: VecDeque<C>,
    /// Theoretical arrival time of the user's next connection.
    arrival_time: Monotonic,
}

/// All waiting connections.
#[derive(Debug)]
pub(super) struct AcceptQueue<C> {
    users: BTreeMap<u32, UserQueue<C>>,
    length: usize,
    /// User of the last turn.
    last: u32,
}

impl<C> AcceptQueue<C> {
    pub(super) fn new() -> AcceptQueue<C> {
        AcceptQueue { users: BTreeMap::new(), length: 0, last: ROOT }
    }

    /// Returns the number of waiting connections.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns the number of waiting connections of a user.
    pub(super) fn len_of(&self, user: u32) -> usize {
        self.users.get(&user).map_or(0, |queue| queue.waiting.len())
    }

    /// Adds a connection to the queue of its user.
    pub(super) fn push(&mut self, user: u32, connection: C) {
        let queue = self.users.entry(user).or_insert_with(|| UserQueue {
            waiting: VecDeque::new(),
            arrival_time: Monotonic::ZERO,
        });
        queue.waiting.push_back(connection);
        self.length += 1;
    }

    /// Removes and returns the connection whose turn it is, with its user; `None` if no user with a
    /// waiting connection is within its rate.
    pub(super) fn pop(&mut self, now: Monotonic, quota: &Quota) -> Option<(u32, C)> {
        let is_ready = |&(&user, queue): &(&u32, &UserQueue<C>)| {
            !queue.waiting.is_empty() && due(user, queue, quota) <= now
        };
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        let to = (Bound::Unbounded, Bound::Included(self.last));
        let turn = mutate!(
            "daemon-accept-turns",
            self.users
                .range(ROOT..=ROOT)
                .chain(self.users.range(after))
                .chain(self.users.range(to))
                .find(is_ready),
            self.users.iter().find(is_ready)
        );
        let user = *turn?.0;
        self.last = user;
        let queue = self.users.get_mut(&user).expect("it was just found");
        let price = Span::from_ns(interval(quota).saturating_mul(CONNECT_PRICE));
        queue.arrival_time = queue.arrival_time.max(now).saturating_add(price);
        self.length -= 1;
        let connection = queue.waiting.pop_front().expect("it is ready");
        self.forget_idle(now);
        Some((user, connection))
    }

    /// Returns the time of the next turn; `None` if no connection waits.
    pub(super) fn next_turn(&self, quota: &Quota) -> Option<Monotonic> {
        let waiting = self.users.iter().filter(|(_, queue)| !queue.waiting.is_empty());
        waiting.map(|(&user, queue)| due(user, queue, quota)).min()
    }

    /// Removes and returns the newest connection of the longest queue, with its user. Connections
    /// of root are never dropped.
    pub(super) fn drop_from_longest(&mut self) -> Option<(u32, C)> {
        let others = self.users.iter_mut().filter(|&(&user, _)| user != ROOT);
        let (&user, queue) = others.max_by_key(|(_, queue)| queue.waiting.len())?;
        let connection = queue.waiting.pop_back()?;
        self.length -= 1;
        Some((user, connection))
    }

    /// Removes a user without waiting connections whose rate is not in use. One call for each turn
    /// bounds the map by the number of users that connect within one burst.
    fn forget_idle(&mut self, now: Monotonic) {
        let is_idle = |queue: &UserQueue<C>| queue.waiting.is_empty() && queue.arrival_time <= now;
        let mut two = self.users.range((Bound::Excluded(self.last), Bound::Unbounded)).take(2);
        if let Some(user) = two.find(|(_, queue)| is_idle(queue)).map(|(&user, _)| user) {
            self.users.remove(&user);
        } else if self.users.first_key_value().is_some_and(|(_, queue)| is_idle(queue)) {
            self.users.pop_first();
        }
    }
}

fn interval(quota: &Quota) -> u64 {
    SECOND_NS.div_ceil(u64::from(quota.requests_per_second.max(1)))
}

/// Returns the time at which the user's next connection is within its rate.
fn due<C>(user: u32, queue: &UserQueue<C>, quota: &Quota) -> Monotonic {
    let ahead = interval(quota).saturating_mul(u64::from(quota.burst.max(1)));
    let due = Monotonic::from_ns(queue.arrival_time.as_ns().saturating_sub(ahead));
    if user == ROOT { Monotonic::ZERO } else { due }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn quota(requests_per_second: u32, burst: u32) -> Quota {
        Quota { requests_per_second, burst, ..Quota::default() }
    }

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(ms * MS)
    }

    #[test]
    fn attack_12_users_take_turns_and_root_is_first() {
        let (mut queue, quota) = (AcceptQueue::new(), quota(1_000_000, 1_000_000));
        for number in 0..100 {
            queue.push(7, number);
        }
        queue.push(5, 0);
        queue.push(9, 0);
        queue.push(9, 1);
        queue.push(0, 0);
        let mut order = Vec::new();
        while let Some(connection) = queue.pop(at(1), &quota) {
            order.push(connection);
        }
        assert_eq!(order[..7], [(0, 0), (5, 0), (7, 0), (9, 0), (7, 1), (9, 1), (7, 2)]);
        assert_eq!((order.len(), queue.len()), (104, 0));
        assert_eq!(queue.next_turn(&quota), None);
    }

    #[test]
    fn attack_12_a_user_above_its_rate_waits_and_others_do_not() {
        // 250 connections a second, 10 at once.
        let (mut queue, quota) = (AcceptQueue::new(), quota(1_000, 40));
        for number in 0..100 {
            queue.push(7, number);
        }
        let served = (0..100).filter(|_| queue.pop(at(5), &quota).is_some()).count();
        assert_eq!(served, 11);
        assert_eq!(queue.next_turn(&quota), Some(at(9)));
        queue.push(8, 0);
        queue.push(0, 0);
        assert_eq!(queue.next_turn(&quota), Some(at(0)));
        assert_eq!(queue.pop(at(5), &quota), Some((0, 0)));
        assert_eq!(queue.pop(at(5), &quota), Some((8, 0)));
        assert_eq!(queue.pop(at(5), &quota), None);
        assert_eq!(queue.pop(at(9), &quota), Some((7, 11)));
        assert_eq!(queue.pop(at(9), &quota), None);
    }

    #[test]
    fn the_longest_queue_is_dropped_from_and_root_never_is() {
        let mut queue = AcceptQueue::new();
        for number in 0..5 {
            queue.push(0, number);
        }
        for number in 0..3 {
            queue.push(7, number);
        }
        queue.push(8, 0);
        assert_eq!(queue.drop_from_longest(), Some((7, 2)));
        assert_eq!(queue.drop_from_longest(), Some((7, 1)));
        assert!(queue.drop_from_longest().is_some() && queue.drop_from_longest().is_some());
        assert_eq!(queue.drop_from_longest(), None);
        assert_eq!((queue.len(), queue.len_of(0), queue.len_of(7)), (5, 5, 0));
    }

    #[test]
    fn users_that_no_longer_connect_are_forgotten() {
        let (mut queue, quota) = (AcceptQueue::new(), quota(1_000, 40));
        for user in 1..=1_000 {
            queue.push(user, ());
            queue.pop(at(u64::from(user) * 10), &quota);
        }
        assert!(queue.users.len() < 10, "{}", queue.users.len());
    }
}
