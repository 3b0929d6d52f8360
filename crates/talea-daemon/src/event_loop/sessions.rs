//! Connections: their sockets, their shares, and the epoll set that watches each of them.

use super::token::Token;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use talea_broker::SessionId;
use talea_core::{Monotonic, mutate};
use talea_os::epoll::{Epoll, Events, Interest};
use talea_os::{clock, peer, seqpacket};
use talea_proto::counters::RequestTimes;

/// Number of successive checks with an unread message that mark a connection as pipelining. A
/// single check is not enough: a request that arrives at the moment of the check looks pipelined.
const MIN_PIPELINED_CHECKS: u32 = 8;

/// A connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) socket: OwnedFd,
    /// User of the connection.
    pub(super) uid: u32,
    /// Subject whose share of each round serves the connection, and which is charged for the
    /// descriptors that its client sends.
    pub(super) share: u32,
    /// Whether thread ids have the same meaning in the peer's PID namespace; checked at the first
    /// use.
    same_namespace: Option<bool>,
    pub(super) is_reading: bool,
    /// Whether the connection is not read: too many descriptors of its subject are pending.
    is_suspended: bool,
    /// Whether the connection is in its user's nested set.
    is_nested: bool,
    /// Number of successive checks that found an unread message.
    pipelined_checks: u32,
    /// Number of requests without a reply.
    unanswered: u32,
    /// Time from which the oldest of them is measured.
    since: Monotonic,
}

impl Session {
    /// Returns the interest of the connection in the main or the nested set.
    fn interest(&self, for_arrivals: bool) -> Interest {
        match (self.is_watched(), for_arrivals) {
            (false, _) => Interest::NONE,
            (true, false) => Interest::READ,
            (true, true) => Interest::ARRIVAL,
        }
    }

    /// Whether the daemon reads the connection.
    pub(super) fn is_watched(&self) -> bool {
        self.is_reading && !self.is_suspended
    }
}

/// Nested epoll set with connections of one user: the main set reports them as one event, so that a
/// round costs the same for any number of them.
#[derive(Debug)]
struct NestedSet {
    epoll: Epoll,
    connections: usize,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<u64, Session>,
    nested: BTreeMap<u32, NestedSet>,
    /// The edge-triggered connection, if any.
    edge_triggered: Option<u64>,
    /// Shares that are not served now (module `loop_priority`).
    held: Vec<u32>,
    /// Connections that are not read until their users' descriptors are closed.
    suspended: Vec<SessionId>,
    last: u64,
    /// Times of all requests.
    times: RequestTimes,
}

impl Sessions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Watches `socket` under a number that was never used before, and returns the number.
    pub(super) fn add(
        &mut self,
        socket: OwnedFd,
        (uid, share): (u32, u32),
        epoll: &Epoll,
    ) -> io::Result<SessionId> {
        let id = self.last + 1;
        let interest = if self.held.contains(&share) { Interest::NONE } else { Interest::READ };
        epoll.add(&socket, interest, Token::Session(id).pack())?;
        self.last = id;
        let session = Session {
            socket,
            uid,
            share,
            same_namespace: None,
            is_reading: true,
            is_suspended: false,
            is_nested: false,
            pipelined_checks: 0,
            unanswered: 0,
            since: Monotonic::ZERO,
        };
        self.open.insert(id, session);
        Ok(SessionId(id))
    }

    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        self.open.get(&id.0)
    }

    /// Returns the user of a connection, if it is open.
    pub(super) fn uid(&self, id: u64) -> Option<u32> {
        self.open.get(&id).map(|session| session.uid)
    }

    /// Returns the user whose share serves a connection, if it is open.
    pub(super) fn share(&self, id: u64) -> Option<u32> {
        self.open.get(&id).map(|session| session.share)
    }

    /// Whether thread ids have the same meaning in the PID namespace of the peer; `None` for a
    /// closed connection. After an error, such as too few descriptors, the next call asks again.
    pub(super) fn has_same_namespace(&mut self, id: SessionId) -> io::Result<Option<bool>> {
        let Some(session) = self.open.get_mut(&id.0) else { return Ok(None) };
        if session.same_namespace.is_none() {
            session.same_namespace = Some(peer::same_pid_namespace(session.socket.as_fd())?);
        }
        Ok(session.same_namespace)
    }

    /// Begins to measure a request that was received in the round that began at `now`.
    pub(super) fn received(&mut self, id: SessionId, now: Monotonic) {
        let Some(session) = self.open.get_mut(&id.0) else { return };
        if session.unanswered == 0 {
            session.since = now;
        }
        session.unanswered += 1;
    }

    /// Counts the time of a request that is answered now.
    pub(super) fn answered(&mut self, id: SessionId) {
        let Some(session) = self.open.get_mut(&id.0) else { return };
        let now = clock::now();
        self.times.add(now.as_ns().saturating_sub(session.since.as_ns()));
        session.since = now;
        session.unanswered = session.unanswered.saturating_sub(1);
    }

    /// Returns the times of all requests.
    pub(super) fn request_times(&self) -> RequestTimes {
        self.times
    }

    /// Starts or stops reading from a connection. No effect on a closed one.
    pub(super) fn set_reading(&mut self, id: SessionId, is_reading: bool, epoll: &Epoll) {
        if let Some(session) =
            self.open.get_mut(&id.0).filter(|session| session.is_reading != is_reading)
        {
            session.is_reading = is_reading;
            self.update_interest(id, epoll);
        }
    }

    /// Suspends reading because of pending descriptors, until [`Sessions::resume`]. The daemon
    /// reads a connection only if [`Sessions::set_reading`] permits this too.
    pub(super) fn suspend(&mut self, id: SessionId, epoll: &Epoll) {
        self.set_suspended(id, true, epoll);
        self.suspended.push(id);
    }

    #[inline]
    pub(super) fn has_suspended(&self) -> bool {
        !self.suspended.is_empty()
    }

    /// Resumes the suspended connections, unless `waits` holds for their user.
    pub(super) fn resume(&mut self, waits: impl Fn(u32) -> bool, epoll: &Epoll) {
        let mut suspended = std::mem::take(&mut self.suspended);
        suspended.retain(|&id| {
            let waits = self.share(id.0).is_some_and(&waits);
            if !waits {
                self.set_suspended(id, false, epoll);
            }
            waits
        });
        self.suspended = suspended;
    }

    fn set_suspended(&mut self, id: SessionId, is_suspended: bool, epoll: &Epoll) {
        if let Some(session) = self.open.get_mut(&id.0) {
            session.is_suspended = is_suspended;
            self.update_interest(id, epoll);
        }
    }

    /// Returns the edge-triggered connection.
    pub(super) fn edge_triggered(&self) -> Option<u64> {
        self.edge_triggered
    }

    /// Whether this connection seems to wait for each reply before its next request.
    pub(super) fn waits_for_replies(&self, id: u64) -> bool {
        self.open.get(&id).is_some_and(|session| {
            mutate!(
                "daemon-arrivals-ahead",
                !session.is_nested
                    && session.pipelined_checks < MIN_PIPELINED_CHECKS
                    && !seqpacket::has_unread(&session.socket),
                !session.is_nested && !seqpacket::has_unread(&session.socket)
            )
        })
    }

    /// Whether the edge-triggered connection has an unread message although it is read.
    pub(super) fn has_pipelined(&mut self) -> bool {
        let Some(session) = self.edge_triggered.and_then(|id| self.open.get_mut(&id)) else {
            return false;
        };
        let has_pipelined = session.is_watched() && seqpacket::has_unread(&session.socket);
        session.pipelined_checks = if has_pipelined { session.pipelined_checks + 1 } else { 0 };
        has_pipelined
    }

    /// Makes this connection, or none, the edge-triggered one.
    pub(super) fn set_edge_triggered(&mut self, id: Option<u64>, epoll: &Epoll) {
        for changed in [std::mem::replace(&mut self.edge_triggered, id), id].into_iter().flatten() {
            self.update_interest(SessionId(changed), epoll);
        }
    }

    fn update_interest(&self, id: SessionId, epoll: &Epoll) {
        let Some(session) = self.open.get(&id.0) else { return };
        let set = self.nested.get(&session.share).filter(|_| session.is_nested);
        // A nested set is held as a whole.
        let is_held = set.is_none() && self.held.contains(&session.share);
        let interest = session.interest(self.edge_triggered == Some(id.0));
        let interest = if is_held { Interest::NONE } else { interest };
        let set = set.map_or(epoll, |set| &set.epoll);
        // The socket is in the set, so this cannot fail.
        let _ = set.modify(&session.socket, interest, Token::Session(id.0).pack());
    }

    /// Stops watching the connections of these shares, and of no others. Linear in all connections.
    pub(super) fn hold_shares(&mut self, shares: Vec<u32>, epoll: &Epoll) {
        let mut changed = std::mem::replace(&mut self.held, shares);
        changed.extend(&self.held);
        for (share, set) in self.nested.iter().filter(|(share, _)| changed.contains(share)) {
            let is_held = self.held.contains(share);
            let interest = if is_held { Interest::NONE } else { Interest::READ };
            // The set is in the main set, so this cannot fail.
            let _ = epoll.modify(&set.epoll, interest, Token::NestedSet(*share).pack());
        }
        let is_direct = |session: &Session| !session.is_nested && changed.contains(&session.share);
        for (&id, _) in self.open.iter().filter(|(_, session)| is_direct(session)) {
            self.update_interest(SessionId(id), epoll);
        }
    }

    /// Moves the connection to its user's nested set, permanently.
    ///
    /// On an error, such as too few descriptors, the connection stays in the main set.
    pub(super) fn move_to_nested(&mut self, id: u64, epoll: &Epoll) -> io::Result<()> {
        let Some(session) = self.open.get_mut(&id).filter(|session| !session.is_nested) else {
            return Ok(());
        };
        let set = match self.nested.entry(session.share) {
            Entry::Occupied(set) => set.into_mut(),
            Entry::Vacant(place) => {
                let set = NestedSet { epoll: Epoll::new()?, connections: 0 };
                epoll.add(&set.epoll, Interest::READ, Token::NestedSet(session.share).pack())?;
                place.insert(set)
            }
        };
        set.epoll.add(&session.socket, session.interest(false), Token::Session(id).pack())?;
        set.connections += 1;
        session.is_nested = true;
        epoll.remove(&session.socket)
    }

    /// Returns the ready connections of a user's nested set, as far as there is room.
    pub(super) fn ready_in_nested(&self, share: u32, events: &mut Events) -> io::Result<usize> {
        self.nested.get(&share).map_or(Ok(0), |set| set.epoll.wait(events, Some(Monotonic::ZERO)))
    }

    /// Removes a connection and stops watching it. Returns its share and its socket.
    pub(super) fn remove(&mut self, id: SessionId, epoll: &Epoll) -> Option<(u32, OwnedFd)> {
        let session = self.open.remove(&id.0)?;
        // The socket is in one of the sets, so this cannot fail. Closing alone would not remove it
        // at once in every case.
        match self.nested.get_mut(&session.share).filter(|_| session.is_nested) {
            None => drop(epoll.remove(&session.socket)),
            Some(set) => {
                let _ = set.epoll.remove(&session.socket);
                set.connections -= 1;
                if set.connections == 0 {
                    let _ = epoll.remove(&set.epoll);
                    self.nested.remove(&session.share);
                }
            }
        }
        Some((session.share, session.socket))
    }

    /// Removes all connections.
    pub(super) fn remove_all(&mut self, epoll: &Epoll) -> Vec<(u32, OwnedFd)> {
        let ids: Vec<u64> = self.open.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.remove(SessionId(id), epoll)).collect()
    }
}
