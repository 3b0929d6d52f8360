//! Whose turn it is: nobody's requests keep another user waiting for long.
//!
//! Model: a round first takes one message from each user that has something to say, then more from
//! each, one a connection, until that user has had its turn of the round. What is left is reported
//! again by the next wait, together with whoever has come meanwhile. So a request of somebody who
//! has been quiet waits for about one request and one turn of each other user, however many
//! connections they have; and a crowd of one user that is alone is served as fast as without turns.
//!
//! A thousand connections that are ready make a wait long before anybody is served. Whoever has had
//! too many ready at once has them moved to a set of their own, of which the wait sees one.

use super::Server;
use super::token::Token;
use talea_core::{Span, Time};
use talea_os::clock;
use talea_os::epoll::Events;

/// How long one user's requests may go on while others wait: many cheap ones, or one dear one.
const TURN: Span = Span::from_ns(30_000);

/// Connections of one user that may be ready at once before they become a crowd.
const CROWD: usize = 32;
/// Connections that one round moves to a crowd: each costs about as much as a request.
const MOVES: usize = 32;
/// Connections of a crowd that are looked at together.
const GLANCE: usize = 8;

/// A connection that is ready.
#[derive(Clone, Copy, Debug)]
struct Ready {
    uid: u32,
    session: u64,
    hung_up: bool,
}

/// Room for one round's bookkeeping, kept from round to round.
pub(super) struct Turns {
    /// Users that have been served in this round, in order, and for how long from their second
    /// message on.
    served: Vec<(u32, Span)>,
    /// Connections of users that have been served already.
    later: Vec<Ready>,
    /// Users whose crowds have something to say.
    crowds: Vec<u32>,
    /// Those of a crowd that do; absent while they are served.
    glance: Option<Events>,
}

impl Default for Turns {
    fn default() -> Turns {
        let glance = Some(Events::with_capacity(GLANCE));
        Turns { served: Vec::new(), later: Vec::new(), crowds: Vec::new(), glance }
    }
}

impl Turns {
    /// Whether `uid` is here for the first time in this round.
    fn is_first(&mut self, uid: u32) -> bool {
        match self.served.binary_search_by_key(&uid, |&(uid, _)| uid) {
            Ok(_) => false,
            Err(at) => {
                self.served.insert(at, (uid, Span::ZERO));
                true
            }
        }
    }

    /// How long `uid` has been served.
    fn of(&mut self, uid: u32) -> &mut Span {
        let at =
            self.served.binary_search_by_key(&uid, |&(uid, _)| uid).expect("it was served first");
        &mut self.served[at].1
    }
}

impl Server {
    /// Moves connections of users who had very many ready at once.
    fn form_crowds(&mut self) {
        let mut moves = MOVES;
        let mut of: (u32, usize) = (u32::MAX, 0);
        // In the order of users; the first ones of each stay where they are.
        self.turns.later.sort_unstable_by_key(|ready| (ready.uid, ready.session));
        for &Ready { uid, session, .. } in &self.turns.later {
            of = if of.0 == uid { (uid, of.1 + 1) } else { (uid, 1) };
            if of.1 > CROWD && moves > 0 && self.sessions.join_crowd(session, &self.epoll).is_ok() {
                moves -= 1;
            }
        }
    }

    /// Serves a connection that is ready if its user has not been served in this round, else keeps
    /// it for later.
    pub(super) fn take_turn(&mut self, now: Time, session: u64, hung_up: bool) {
        let Some(uid) = self.sessions.uid(session) else { return };
        if self.turns.is_first(uid) {
            self.session_ready(now, session, hung_up);
        } else {
            self.turns.later.push(Ready { uid, session, hung_up });
        }
    }

    /// The same for a crowd of which somebody is ready.
    pub(super) fn take_turn_of_crowd(&mut self, now: Time, uid: u32) {
        if self.turns.is_first(uid) {
            self.serve_crowd(now, uid, 1);
        }
        self.turns.crowds.push(uid);
    }

    /// Serves so many of a crowd, as far as its user's turn goes; how many it were.
    fn serve_crowd(&mut self, now: Time, uid: u32, most: usize) -> usize {
        let Some(mut events) = self.turns.glance.take() else { return 0 };
        // A crowd that can't be waited for is reported again.
        let _ = self.sessions.ready_in_crowd(uid, &mut events);
        let (mut served, mut begun) = (0, clock::now());
        for event in events.iter().take(most) {
            let Token::Session(id) = Token::unpack(event.token) else { continue };
            self.session_ready(now, id, event.is_hangup());
            served += 1;
            begun = self.book(uid, begun);
            if self.ending.is_some() || *self.turns.of(uid) >= TURN {
                break;
            }
        }
        self.turns.glance = Some(events);
        served
    }

    /// A user has been served since `begun`; what time it is.
    fn book(&mut self, uid: u32, begun: Time) -> Time {
        let done = clock::now();
        let used = self.turns.of(uid);
        *used = Span::from_ns(used.as_ns() + done.since(begun).as_ns());
        done
    }

    /// Serves those that were kept for later, as far as the turns of their users go.
    pub(super) fn finish_turns(&mut self, now: Time) {
        let count = self.turns.later.len();
        if count > 0 {
            // From another one each time: those at the end must not wait for those before them for
            // ever.
            let start = self.wakeups as usize % count;
            let mut begun = clock::now();
            for index in (start..count).chain(0..start) {
                let Ready { uid, session, hung_up } = self.turns.later[index];
                if *self.turns.of(uid) >= TURN {
                    continue;
                }
                self.session_ready(now, session, hung_up);
                if self.ending.is_some() {
                    break;
                }
                begun = self.book(uid, begun);
            }
        }
        while let Some(uid) = self.turns.crowds.pop() {
            while self.ending.is_none()
                && *self.turns.of(uid) < TURN
                && self.serve_crowd(now, uid, GLANCE) > 0
            {}
        }
        if count > CROWD {
            self.form_crowds();
        }
        self.turns.later.clear();
        self.turns.served.clear();
    }
}
