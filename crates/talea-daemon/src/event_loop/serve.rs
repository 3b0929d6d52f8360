//! Fair queueing between users, similar to deficit round robin (Shreedhar and Varghese 1996) with
//! time as the cost.
//!
//! | state of a ready connection in a round | condition | next state |
//! | --- | --- | --- |
//! | *ready* | first ready connection of its user | *served*, one message |
//! | *ready* | its user was already served in this round | *deferred* |
//! | *deferred* | its user has used less than one [`QUANTUM`] | *served*, its time is charged |
//! | *deferred* | its user has used up the quantum | *ready* in the next round |
//!
//! A round therefore first serves one message of each user, then further messages up to the quantum
//! of each user. A request of an idle user is delayed by about one request and one quantum of each
//! other user, independent of their numbers of connections. A single user with many connections is
//! served without loss of throughput.
//!
//! A subordinate user is served in the share of its owner.
//!
//! A thousand ready connections make `epoll_wait` itself slow. If more than [`MAX_DIRECT`]
//! connections of a user are ready at once, the excess is moved to a nested epoll set of that user,
//! which the main set reports as one event.

use super::Daemon;
use super::fair_queue::{BATCH, Ready};
use super::token::Token;
use crate::loop_priority::ShareChange;
use talea_core::{Monotonic, Span};
use talea_os::clock;

/// Maximum time that one user's requests take per round while others wait.
const QUANTUM: Span = Span::from_ns(30_000);

/// Maximum number of simultaneously ready connections of one user in the main set.
const MAX_DIRECT: usize = 32;
/// Maximum number of connections moved to nested sets per round: a move costs about as much as a
/// request.
const MAX_MOVES: usize = 32;
impl Daemon {
    /// Moves the excess connections of users with many ready connections to nested sets.
    fn nest_busy_users(&mut self) {
        let mut moves = MAX_MOVES;
        let mut of: (u32, usize) = (u32::MAX, 0);
        // Sorted by user; the first connections of each user stay in the main set.
        self.fair_queue.deferred.sort_unstable_by_key(|ready| (ready.uid, ready.session));
        for &Ready { uid, session, .. } in &self.fair_queue.deferred {
            of = if of.0 == uid { (uid, of.1 + 1) } else { (uid, 1) };
            if of.1 > MAX_DIRECT
                && moves > 0
                && self.sessions.move_to_nested(session, &self.epoll).is_ok()
            {
                moves -= 1;
            }
        }
    }

    /// Serves a ready connection if its user was not served in this round, else defers it.
    pub(super) fn serve_or_defer(&mut self, now: Monotonic, session: u64, hung_up: bool) {
        let Some(uid) = self.sessions.share(session) else { return };
        if self.fair_queue.first_in_round(uid) {
            let begun = clock::now();
            self.session_ready(now, session, hung_up);
            self.priority.charge_share(uid, begun, clock::now());
        } else {
            self.fair_queue.deferred.push(Ready { uid, session, hung_up });
        }
    }

    /// Serves one connection of a ready nested set if its user was not served in this round, and
    /// queues the set.
    pub(super) fn serve_or_defer_nested(&mut self, now: Monotonic, uid: u32) {
        if self.fair_queue.first_in_round(uid) {
            self.serve_nested(now, uid, 1);
        }
        self.fair_queue.nested_ready.push(uid);
    }

    /// Serves at most `most` connections of a nested set, within the user's quantum. Returns their
    /// number.
    fn serve_nested(&mut self, now: Monotonic, uid: u32, most: usize) -> usize {
        let Some(mut events) = self.fair_queue.batch.take() else { return 0 };
        // After a failed wait, the nested set is reported again.
        let _ = self.sessions.ready_in_nested(uid, &mut events);
        let (mut served, mut begun) = (0, clock::now());
        for event in events.iter().take(most) {
            let Token::Session(id) = Token::unpack(event.token) else { continue };
            self.session_ready(now, id, event.is_hangup());
            served += 1;
            begun = self.charge_time(uid, begun);
            if self.exit.is_some() || *self.fair_queue.used_by(uid) >= QUANTUM {
                break;
            }
        }
        self.fair_queue.batch = Some(events);
        served
    }

    /// Charges a round that has served this connection alone.
    #[inline]
    pub(super) fn charge_session(&mut self, begun: Monotonic, session: u64) {
        if let Some(share) = self.sessions.share(session) {
            self.priority.charge_share(share, begun, clock::now());
        }
    }

    /// Changes the shares that the loop serves.
    #[cold]
    pub(super) fn change_shares(&mut self, change: ShareChange) {
        self.polling.leave(&mut self.sessions, &self.epoll);
        let held = match change {
            ShareChange::Hold(shares) => shares,
            ShareChange::ServeAll => Vec::new(),
        };
        self.sessions.hold_shares(held, &self.epoll);
    }

    /// Charges the time since `begun` to a user and returns the current time.
    fn charge_time(&mut self, uid: u32, begun: Monotonic) -> Monotonic {
        let done = clock::now();
        self.priority.charge_share(uid, begun, done);
        let used = self.fair_queue.used_by(uid);
        *used = Span::from_ns(used.as_ns() + done.since(begun).as_ns());
        done
    }

    /// Serves the deferred connections and the ready nested sets within the quanta of their users.
    /// Then moves excess connections to nested sets and ends the round.
    pub(super) fn serve_deferred(&mut self, now: Monotonic) {
        let count = self.fair_queue.deferred.len();
        if count > 0 {
            // The start rotates, so the connections at the end are not starved by those before
            // them.
            let start = self.wakeups as usize % count;
            let mut begun = clock::now();
            for index in (start..count).chain(0..start) {
                let Ready { uid, session, hung_up } = self.fair_queue.deferred[index];
                if *self.fair_queue.used_by(uid) >= QUANTUM {
                    continue;
                }
                self.session_ready(now, session, hung_up);
                if self.exit.is_some() {
                    break;
                }
                begun = self.charge_time(uid, begun);
            }
        }
        while let Some(uid) = self.fair_queue.nested_ready.pop() {
            while self.exit.is_none()
                && *self.fair_queue.used_by(uid) < QUANTUM
                && self.serve_nested(now, uid, BATCH) > 0
            {}
        }
        if count > MAX_DIRECT {
            self.nest_busy_users();
        }
        self.fair_queue.end_round();
    }
}
