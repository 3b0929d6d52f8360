//! Edge-triggered epoll for a single busy connection.
//!
//! Level triggering costs one extra `epoll_wait` per message: the kernel checks the socket once
//! more and finds it empty. A client that waits for each reply before its next request never has a
//! second message in its socket. Such a connection is switched to edge triggering, which reports
//! arrivals only.
//!
//! State *level*: all connections are level-triggered. State *edge*: one connection is
//! edge-triggered and the poll timer is armed.
//!
//! | state | condition | next state |
//! | --- | --- | --- |
//! | *level* | one connection alone was active in [`MIN_ROUNDS`] rounds | *edge* |
//! | | within one [`POLL_PERIOD`], and waits for replies | |
//! | *edge* | another connection or source is active | *level* |
//! | *edge* | timer: the connection was active, nothing is unread | *edge*, timer rearmed |
//! | *edge* | timer: the connection was idle or has an unread message | *level* |
//!
//! Invariant: no request is lost. If a client sends a request before the previous reply, two
//! messages may arrive before the first one is reported, and then no edge reports the second one.
//! The poll timer finds it. A request is therefore delayed by at most two timer periods. A
//! connection with unread messages at several successive checks is excluded from edge triggering.

use super::sessions::Sessions;
use super::token::Token;
use std::io;
use talea_core::mutate;
use talea_core::{Monotonic, Span};
use talea_os::epoll::{Epoll, Events, Interest};
use talea_os::timerfd::TimerFd;

/// Minimum number of successive rounds with a single active connection.
const MIN_ROUNDS: u32 = 16;
/// Period of the poll timer, and maximum duration of those rounds.
const POLL_PERIOD: Span = Span::from_ns(20_000_000);

/// Successive rounds in which one connection alone was active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SoleActivity {
    id: u64,
    rounds: u32,
    since: Monotonic,
}

impl SoleActivity {
    /// Returns the streak after one more round in which `id` was active.
    fn extended(run: Option<SoleActivity>, id: u64, now: Monotonic) -> SoleActivity {
        let continues = |run: &SoleActivity| {
            mutate!(
                "daemon-arrivals-run",
                run.id == id && now.since(run.since) <= POLL_PERIOD,
                now.since(run.since) <= POLL_PERIOD
            )
        };
        let run = run.filter(continues).unwrap_or(SoleActivity { id, rounds: 0, since: now });
        SoleActivity { rounds: run.rounds + 1, ..run }
    }
}

/// State of the switch between level and edge triggering. The edge-triggered connection itself is
/// in `Sessions`.
#[derive(Debug)]
pub(super) struct AdaptivePolling {
    streak: Option<SoleActivity>,
    /// Whether the edge-triggered connection was active since the last expiry of the poll timer.
    was_active: bool,
    /// Poll timer.
    poll_timer: TimerFd,
}

impl AdaptivePolling {
    /// Creates the state *level*.
    pub(super) fn new(epoll: &Epoll) -> io::Result<AdaptivePolling> {
        let poll_timer = TimerFd::new()?;
        epoll.add(&poll_timer, Interest::ARRIVAL, Token::PollTimer.pack())?;
        Ok(AdaptivePolling { streak: None, was_active: false, poll_timer })
    }

    /// Records the activity of this round. Returns the connection if it is the only active source.
    #[inline]
    pub(super) fn note_active(
        &mut self,
        now: Monotonic,
        events: &Events,
        sessions: &mut Sessions,
        epoll: &Epoll,
    ) -> Option<u64> {
        if let Some(event) = events.single()
            && !event.is_hangup()
            && let Token::Session(id) = Token::unpack(event.token)
        {
            if sessions.edge_triggered() == Some(id) {
                self.was_active = true;
            } else {
                mutate!("daemon-arrivals-beside", self.leave(sessions, epoll));

                self.streak = Some(SoleActivity::extended(self.streak, id, now));
            }
            return Some(id);
        }
        if events.iter().any(|event| Token::unpack(event.token) != Token::PollTimer) {
            self.streak = None;
            self.leave(sessions, epoll);
        }
        None
    }

    /// Switches to edge triggering if the streak is long enough. Called after the message was
    /// served.
    #[inline]
    pub(super) fn consider(&mut self, sessions: &mut Sessions, epoll: &Epoll) {
        if let Some(SoleActivity { id, rounds: MIN_ROUNDS.., .. }) = self.streak {
            self.streak = None;
            self.enter(id, sessions, epoll);
        }
    }

    #[cold]
    fn enter(&mut self, id: u64, sessions: &mut Sessions, epoll: &Epoll) {
        if sessions.waits_for_replies(id) {
            sessions.set_edge_triggered(Some(id), epoll);
            self.was_active = true;
            self.poll_timer.set(POLL_PERIOD);
        }
    }

    /// Handles the expiry of the poll timer.
    pub(super) fn on_timer(&mut self, sessions: &mut Sessions, epoll: &Epoll) {
        let was_active = std::mem::take(&mut self.was_active);
        if sessions.has_pipelined() || !was_active {
            mutate!("daemon-arrivals-beat", self.leave(sessions, epoll));
        } else {
            self.poll_timer.set(POLL_PERIOD);
        }
    }

    /// Returns to level triggering.
    pub(super) fn leave(&mut self, sessions: &mut Sessions, epoll: &Epoll) {
        if sessions.edge_triggered().is_some() {
            sessions.set_edge_triggered(None, epoll);
            self.was_active = false;
            self.poll_timer.set(Span::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streak_ends_with_another_connection_or_after_one_period() {
        let at = |ns| Monotonic::from_ns(ns);
        let first = SoleActivity::extended(None, 1, at(5));
        assert_eq!(first, SoleActivity { id: 1, rounds: 1, since: at(5) });
        let second = SoleActivity::extended(Some(first), 1, at(6));
        assert_eq!(second, SoleActivity { id: 1, rounds: 2, since: at(5) });
        assert_eq!(
            SoleActivity::extended(Some(second), 2, at(7)),
            SoleActivity { id: 2, rounds: 1, since: at(7) }
        );
        let last = at(5) + POLL_PERIOD;
        assert_eq!(
            SoleActivity::extended(Some(second), 1, last),
            SoleActivity { id: 1, rounds: 3, since: at(5) }
        );
        let late = last + Span::from_ns(1);
        assert_eq!(
            SoleActivity::extended(Some(second), 1, late),
            SoleActivity { id: 1, rounds: 1, since: late }
        );
    }
}
