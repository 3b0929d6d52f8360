//! Connections, and the messages received from them.

use super::Daemon;
use super::threads::not_found;
use super::token::Token;
use crate::convert;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use talea_broker::input::{Caller, Errno, ThreadError, ThreadFacts};
use talea_broker::{Input, Peer, SessionId};
use talea_core::mutate;
use talea_core::{Monotonic, Span};
use talea_os::epoll::{Epoll, Events, Interest};
use talea_os::seqpacket::{self, Received};
use talea_os::{OpenError, Thread, Tid, clock, peer, proc};
use talea_proto::counters::RequestTimes;
use talea_proto::wire::decode_request;
use talea_proto::{Code, Field, Refusal, Request, SpecId, ThreadRef};

/// Period of the check whether suspended connections can be resumed.
const RESUME_CHECK_PERIOD: Span = Span::from_ns(1_000_000);

/// Number of successive checks with an unread message that mark a connection as pipelining. A
/// single check is not enough: a request that arrives at the moment of the check looks pipelined.
const MIN_PIPELINED_CHECKS: u32 = 8;

/// A connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) socket: OwnedFd,
    /// User of the connection.
    uid: u32,
    /// User whose share of each round serves the connection: for a subordinate user, its owner.
    share: u32,
    /// Whether thread ids have the same meaning in the peer's PID namespace; checked at the first
    /// use.
    same_namespace: Option<bool>,
    pub(super) is_reading: bool,
    /// Whether the connection is not read because too many of its user's descriptors are pending.
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

    fn is_watched(&self) -> bool {
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

    /// Begins to measure a request that was received in the round that began at `now`.
    fn received(&mut self, id: SessionId, now: Monotonic) {
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

    /// Suspends or resumes reading because of pending descriptors. The daemon reads a connection
    /// only if [`Sessions::set_reading`] permits this too.
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

    /// Removes a connection and stops watching it. Returns its user and its socket.
    fn remove(&mut self, id: SessionId, epoll: &Epoll) -> Option<(u32, OwnedFd)> {
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
        Some((session.uid, session.socket))
    }

    /// Removes all connections.
    pub(super) fn remove_all(&mut self, epoll: &Epoll) -> Vec<(u32, OwnedFd)> {
        let ids: Vec<u64> = self.open.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.remove(SessionId(id), epoll)).collect()
    }
}

/// Returns the thread that a request names, if any; for a group, that of its first task.
fn named_thread(request: &Request) -> Option<ThreadRef> {
    match request {
        Request::Attach { thread, .. } | Request::Nice { thread, .. } => Some(*thread),
        Request::Create(task) | Request::Explain(task) => task.thread,
        Request::CreateGroup(tasks) => tasks.first()?.thread,
        _ => None,
    }
}

/// Returns the process of a pidfd, with its credentials.
fn caller_of(pidfd: BorrowedFd<'_>) -> Result<Caller, ThreadError> {
    let failed = |error: io::Error| match error.raw_os_error() {
        Some(errno) if error.kind() != io::ErrorKind::NotFound => ThreadError::Kernel(Errno(errno)),
        _ => ThreadError::Gone,
    };
    let held = Thread::from_fd(pidfd.try_clone_to_owned().map_err(failed)?);
    let held = held.map_err(|error| not_found(&error))?;
    let process = held.tgid();
    let status = proc::status(process).map_err(failed)?;
    let pid_start = proc::stat(process).map_err(failed)?.start_ticks;
    // The files of /proc were those of this process only if it still exists.
    if !held.is_alive() {
        return Err(ThreadError::Gone);
    }
    let peer = Peer {
        pid: process.as_raw() as u32,
        pid_start,
        uid: status.uids.effective,
        gid: status.effective_group,
        groups: status.groups,
    };
    Ok(Caller { peer, uids: convert::uids_of(status.uids) })
}

impl Daemon {
    /// Handles one message of a ready connection. One message only: a client with many waits like
    /// all others.
    #[inline(never)]
    pub(super) fn session_ready(&mut self, now: Monotonic, id: u64, hung_up: bool) {
        self.session_ready_inline(now, id, hung_up);
    }

    /// Handles one message of a ready connection, in the caller's frame.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "see `Daemon::run`: a request is received and answered in its frame"
    )]
    pub(super) fn session_ready_inline(&mut self, now: Monotonic, id: u64, hung_up: bool) {
        let session_id = SessionId(id);
        let Some(session) = self.sessions.get(session_id) else { return };
        if !session.is_reading || session.is_suspended {
            // For a connection that is not read, epoll reports only its end. Unread messages are
            // dropped.
            if hung_up {
                self.hang_up(now, session_id);
            }
            return;
        }
        let uid = session.uid;
        if self.deferred_close.is_user_over_limit(uid) {
            return self.suspend_reading(now, session_id);
        }
        let mut received = match seqpacket::recv_all(&session.socket, &mut self.inbox[..]) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.hang_up(now, session_id),
        };
        for surplus in received.surplus.drain(..) {
            self.deferred_close.discard(uid, surplus);
        }
        if received.len == 0 {
            self.discard(uid, received.fd);
            return self.hang_up(now, session_id);
        }
        self.sessions.received(session_id, now);
        let input = if received.truncated {
            let asked = self.inbox.len() as u64 + 1;
            let refusal = Refusal {
                code: Code::Malformed,
                field: Field::Message,
                asked,
                limit: asked - 1,
                errno: 0,
                index: 0,
                rule: None,
                answers: Vec::new(),
            };
            self.discard(uid, received.fd);
            Input::Undecodable { session: session_id, seq: 0, refusal }
        } else {
            match decode_request(&self.inbox[..received.len]) {
                Ok((seq, request)) => {
                    if let Request::Change { spec, .. } = request
                        && uid != 0
                    {
                        self.refresh_thread_owner(now, spec);
                    }
                    self.survey_for(now, session_id, &request);
                    let (mut thread, mut caller) = (None, None);
                    if let Some(named) = named_thread(&request) {
                        thread = self.resolve_thread(session_id, uid, named.tid(), received);
                    } else {
                        if let (Request::ActFor { .. }, Some(fd)) = (&request, &received.fd) {
                            caller = Some(Box::new(caller_of(fd.as_fd())));
                        }
                        self.discard(uid, received.fd);
                    }
                    let entropy = match request {
                        Request::Create(_) | Request::CreateGroup(_) => {
                            self.allocate_records(now);
                            self.entropy.take()
                        }
                        _ => 0,
                    };
                    Input::Received { session: session_id, seq, request, thread, caller, entropy }
                }
                Err(garbled) => {
                    self.discard(uid, received.fd);
                    Input::Undecodable {
                        session: session_id,
                        seq: garbled.seq,
                        refusal: garbled.refusal,
                    }
                }
            }
        };
        self.broker.handle(now, input);
        self.run_effects_inline(now);
        self.threads.clear_fresh();
    }

    /// Discards an unused descriptor, if any.
    fn discard(&mut self, uid: u32, fd: Option<OwnedFd>) {
        if let Some(fd) = fd {
            self.deferred_close.discard(uid, fd);
        }
    }

    /// Handles the end of a connection, by the peer or by the daemon.
    pub(super) fn hang_up(&mut self, now: Monotonic, session: SessionId) {
        if self.close(session) {
            mutate!("life-hangup", self.broker.handle(now, Input::Disconnected { session }));

            self.run_effects(now);
        }
    }

    /// Closes a connection; the caller informs the broker. Returns `false` if it was closed before.
    pub(super) fn close(&mut self, session: SessionId) -> bool {
        let Some((uid, socket)) = self.sessions.remove(session, &self.epoll) else { return false };
        self.deferred_close.hang_up(uid, socket);
        true
    }

    /// Closes a connection that has sent nothing in time.
    pub(super) fn close_if_silent(&mut self, now: Monotonic, session: SessionId) {
        let is_silent = |open: &Session| !seqpacket::has_unread(&open.socket);
        if self.sessions.get(session).is_some_and(is_silent) && self.close(session) {
            self.broker.handle(now, Input::Disconnected { session });
        }
    }

    /// Suspends reading from a connection whose user sends descriptors faster than they can be
    /// closed.
    #[cold]
    fn suspend_reading(&mut self, now: Monotonic, session: SessionId) {
        let Some(uid) = self.sessions.uid(session.0) else { return };
        if self.rejected_limiter.allows(now) {
            self.log.warning(format_args!(
                "too many descriptors of user {uid} wait to be closed; the user's connections are not read until then"
            ));
        }
        self.sessions.set_suspended(session, true, &self.epoll);
        self.suspended.push(session);
    }

    /// Returns the time of the next check for suspended connections; `None` if there are none.
    pub(super) fn next_resume(&self) -> Option<Monotonic> {
        (!self.suspended.is_empty()).then(|| clock::now() + RESUME_CHECK_PERIOD)
    }

    /// Resumes the connections whose users' descriptors are closed.
    pub(super) fn resume_reading(&mut self) {
        let Daemon { suspended, sessions, deferred_close, epoll, .. } = self;
        suspended.retain(|&session| {
            let waits =
                sessions.uid(session.0).is_some_and(|uid| deferred_close.is_user_over_limit(uid));
            if !waits {
                sessions.set_suspended(session, false, epoll);
            }
            waits
        });
    }

    /// Returns the thread that a request names, by the passed descriptor or else by its id; `None`
    /// if the request has neither.
    fn resolve_thread(
        &mut self,
        session: SessionId,
        uid: u32,
        tid: Option<u32>,
        received: Received,
    ) -> Option<Result<ThreadFacts, ThreadError>> {
        let thread = match (received.fd, tid) {
            (Some(fd), _) => Thread::from_fd_unchecked(fd).map_err(|error| {
                let why = not_found(&error);
                if let OpenError::NotAPidfd(other) = error {
                    self.deferred_close.discard(uid, other);
                }
                why
            }),
            // A descriptor was sent, but the daemon had no free descriptor for it.
            (None, None) if received.surplus_fds => {
                Err(ThreadError::Kernel(Errno(rustix::io::Errno::MFILE.raw_os_error())))
            }
            (None, None) => return None,
            (None, Some(tid)) => self.resolve_tid(session, tid),
        };
        Some(thread.and_then(|thread| self.threads.hold_for_request(thread)))
    }

    /// Informs the broker if the credentials of this spec's thread have changed, by `setresuid` or
    /// a set-user-id program.
    fn refresh_thread_owner(&mut self, now: Monotonic, spec: SpecId) {
        if let Some(thread) = self.broker.thread_of(spec) {
            self.check_credentials(now, thread);
        }
    }

    fn resolve_tid(&mut self, session: SessionId, tid: u32) -> Result<Thread, ThreadError> {
        let session = self.sessions.open.get_mut(&session.0).ok_or(ThreadError::Gone)?;
        let socket = session.socket.as_fd();
        let same = match session.same_namespace {
            Some(same) => same,
            // Without a free descriptor the answer is not known; it is asked for again.
            None => peer::same_pid_namespace(socket)
                .map_err(|error| ThreadError::Kernel(Errno(error.raw_os_error().unwrap_or(0))))?,
        };
        session.same_namespace = Some(same);
        if mutate!("message-attach-namespace", !same, false) {
            return Err(ThreadError::TidNotAccepted);
        }
        let tid = i32::try_from(tid).ok().and_then(Tid::new).ok_or(ThreadError::Gone)?;
        Thread::open_unchecked(tid).map_err(|error| not_found(&error))
    }
}
