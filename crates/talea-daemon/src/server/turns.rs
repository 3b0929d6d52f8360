//! Whose turn it is: nobody's requests keep another user waiting for long.
//!
//! Model: a round first takes one message from each user that has something to say, then more from each, one a
//! connection, until that user has had its turn of the round. What is left is reported again by the next wait,
//! together with whoever has come meanwhile. So a request of somebody who has been quiet waits for about one
//! request and one turn of each other user, however many connections they have; and a crowd of one user that is alone
//! is served as fast as without turns.

use super::Server;
use talea_core::{Span, Time};
use talea_os::clock;

/// How long one user's requests may go on while others wait: many cheap ones, or one dear one.
const TURN: Span = Span::from_ns(30_000);

/// A connection that is ready.
#[derive(Clone, Copy, Debug)]
struct Ready {
    uid: u32,
    session: u64,
    hung_up: bool,
}

/// Room for one round's bookkeeping, kept from round to round.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Users that have been served in this round, in order, and for how long from their second message on.
    served: Vec<(u32, Span)>,
    /// Connections of users that have been served already.
    later: Vec<Ready>,
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
        let at = self.served.binary_search_by_key(&uid, |&(uid, _)| uid).expect("it was served first");
        &mut self.served[at].1
    }
}

impl Server {
    /// Serves a connection that is ready if its user has not been served in this round, else keeps it for later.
    pub(super) fn take_turn(&mut self, now: Time, session: u64, hung_up: bool) {
        let Some(uid) = self.sessions.uid(session) else { return };
        if self.turns.is_first(uid) {
            self.session_ready(now, session, hung_up);
        } else {
            self.turns.later.push(Ready { uid, session, hung_up });
        }
    }

    /// Serves those that were kept for later, as far as the turns of their users go.
    pub(super) fn finish_turns(&mut self, now: Time) {
        let count = self.turns.later.len();
        if count > 0 {
            // From another one each time: those at the end must not wait for those before them for ever.
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
                let done = clock::now();
                let used = self.turns.of(uid);
                *used = Span::from_ns(used.as_ns() + done.since(begun).as_ns());
                begun = done;
            }
        }
        self.turns.later.clear();
        self.turns.served.clear();
    }
}
