//! Connections, and what is read from them.

use super::Server;
use super::threads::not_found;
use super::token::Token;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use talea_broker::input::{Errno, ThreadError, ThreadFacts};
use talea_broker::{Input, SessionId};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_os::epoll::{Epoll, Events, Interest};
use talea_os::seqpacket::{self, Received};
use talea_os::{OpenError, Thread, Tid, clock, peer};
use talea_proto::wire::decode_request;
use talea_proto::{Code, Field, Refusal, Request, SpecId};

/// How often it is seen whether somebody who is held back can be heard again.
const HEARING: Span = Span::from_ns(1_000_000);

/// So many sightings in a row make a connection one that asks ahead. More than one, because a
/// request that comes in the moment of the look is taken for one that was there before.
const AHEAD: u32 = 8;

/// One connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) socket: OwnedFd,
    /// Whose turns it takes.
    uid: u32,
    /// Whether bare thread ids mean the same there; asked when one is first used.
    same_namespace: Option<bool>,
    pub(super) armed: bool,
    /// Whether it is not read because too much of its user's waits to be closed.
    held_back: bool,
    /// Whether it is watched through its user's crowd.
    in_crowd: bool,
    /// How often in a row it was found to have asked before it was answered.
    ahead: u32,
}

impl Session {
    /// What to watch it for, on its own or through its user's crowd.
    fn interest(&self, for_arrivals: bool) -> Interest {
        match (self.is_read(), for_arrivals) {
            (false, _) => Interest::NONE,
            (true, false) => Interest::READ,
            (true, true) => Interest::ARRIVAL,
        }
    }

    fn is_read(&self) -> bool {
        self.armed && !self.held_back
    }
}

/// Connections of one user that had something to say all at once: the loop's own set reports them
/// as one, so that a round costs the same however many they are.
#[derive(Debug)]
struct Crowd {
    epoll: Epoll,
    members: usize,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<u64, Session>,
    crowds: BTreeMap<u32, Crowd>,
    /// The one that is watched for arrivals, if one is.
    alone: Option<u64>,
    last: u64,
}

impl Sessions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Watches `socket` and gives it a number that no other connection has had.
    pub(super) fn add(
        &mut self,
        socket: OwnedFd,
        uid: u32,
        epoll: &Epoll,
    ) -> io::Result<SessionId> {
        let id = self.last + 1;
        epoll.add(&socket, Interest::READ, Token::Session(id).pack())?;
        self.last = id;
        let session = Session {
            socket,
            uid,
            same_namespace: None,
            armed: true,
            held_back: false,
            in_crowd: false,
            ahead: 0,
        };
        self.open.insert(id, session);
        Ok(SessionId(id))
    }

    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        self.open.get(&id.0)
    }

    /// Whose a connection is.
    pub(super) fn uid(&self, id: u64) -> Option<u32> {
        self.open.get(&id).map(|session| session.uid)
    }

    /// Reads from a connection, or does not. A closed one has no more to say either way.
    pub(super) fn arm(&mut self, id: SessionId, armed: bool, epoll: &Epoll) {
        if let Some(session) = self.open.get_mut(&id.0).filter(|session| session.armed != armed) {
            session.armed = armed;
            self.watch_again(id, epoll);
        }
    }

    /// The same for another reason: it is read when neither speaks against it.
    fn hold_back(&mut self, id: SessionId, held_back: bool, epoll: &Epoll) {
        if let Some(session) = self.open.get_mut(&id.0) {
            session.held_back = held_back;
            self.watch_again(id, epoll);
        }
    }

    /// The connection that is watched for arrivals.
    pub(super) fn alone(&self) -> Option<u64> {
        self.alone
    }

    /// Whether this connection seems to wait for each answer before it asks again.
    pub(super) fn awaits_answers(&self, id: u64) -> bool {
        self.open.get(&id).is_some_and(|session| {
            mutate!(
                "daemon-arrivals-ahead",
                !session.in_crowd
                    && session.ahead < AHEAD
                    && !seqpacket::has_unread(&session.socket),
                !session.in_crowd && !seqpacket::has_unread(&session.socket)
            )
        })
    }

    /// Whether something lies unread in the connection that is watched for arrivals, although it is
    /// read.
    pub(super) fn has_asked_ahead(&mut self) -> bool {
        let Some(session) = self.alone.and_then(|id| self.open.get_mut(&id)) else { return false };
        let ahead = session.is_read() && seqpacket::has_unread(&session.socket);
        session.ahead = if ahead { session.ahead + 1 } else { 0 };
        ahead
    }

    /// From now on watches this connection for arrivals, or none.
    pub(super) fn watch_arrivals(&mut self, id: Option<u64>, epoll: &Epoll) {
        for changed in [std::mem::replace(&mut self.alone, id), id].into_iter().flatten() {
            self.watch_again(SessionId(changed), epoll);
        }
    }

    fn watch_again(&self, id: SessionId, epoll: &Epoll) {
        let Some(session) = self.open.get(&id.0) else { return };
        let crowd = self.crowds.get(&session.uid).filter(|_| session.in_crowd);
        let set = crowd.map_or(epoll, |crowd| &crowd.epoll);
        // It is in the set and needs no memory there.
        let _ = set.modify(
            &session.socket,
            session.interest(self.alone == Some(id.0)),
            Token::Session(id.0).pack(),
        );
    }

    /// From now on this connection is one of its user's crowd, for the rest of its life.
    ///
    /// An error, such as too few descriptors, leaves it where it is.
    pub(super) fn join_crowd(&mut self, id: u64, epoll: &Epoll) -> io::Result<()> {
        let Some(session) = self.open.get_mut(&id).filter(|session| !session.in_crowd) else {
            return Ok(());
        };
        let crowd = match self.crowds.entry(session.uid) {
            Entry::Occupied(crowd) => crowd.into_mut(),
            Entry::Vacant(place) => {
                let crowd = Crowd { epoll: Epoll::new()?, members: 0 };
                epoll.add(&crowd.epoll, Interest::READ, Token::Crowd(session.uid).pack())?;
                place.insert(crowd)
            }
        };
        crowd.epoll.add(&session.socket, session.interest(false), Token::Session(id).pack())?;
        crowd.members += 1;
        session.in_crowd = true;
        epoll.remove(&session.socket)
    }

    /// Those of a user's crowd that have something to say, as many as there is room for.
    pub(super) fn ready_in_crowd(&self, uid: u32, events: &mut Events) -> io::Result<usize> {
        self.crowds.get(&uid).map_or(Ok(0), |crowd| crowd.epoll.wait(events, Some(Time::ZERO)))
    }

    /// Forgets a connection and stops watching it: whose it is, and its socket.
    fn take(&mut self, id: SessionId, epoll: &Epoll) -> Option<(u32, OwnedFd)> {
        let session = self.open.remove(&id.0)?;
        // In one of the sets since it was added, so this can't fail. Closing would do as much, but
        // not at once everywhere.
        match self.crowds.get_mut(&session.uid).filter(|_| session.in_crowd) {
            None => drop(epoll.remove(&session.socket)),
            Some(crowd) => {
                let _ = crowd.epoll.remove(&session.socket);
                crowd.members -= 1;
                if crowd.members == 0 {
                    let _ = epoll.remove(&crowd.epoll);
                    self.crowds.remove(&session.uid);
                }
            }
        }
        Some((session.uid, session.socket))
    }

    /// The same with all of them.
    pub(super) fn take_all(&mut self, epoll: &Epoll) -> Vec<(u32, OwnedFd)> {
        let ids: Vec<u64> = self.open.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.take(SessionId(id), epoll)).collect()
    }
}

impl Server {
    /// A connection has something to say. One message, so that a client with many waits like
    /// everybody else.
    #[inline(never)]
    pub(super) fn session_ready(&mut self, now: Time, id: u64, hung_up: bool) {
        self.session_ready_inline(now, id, hung_up);
    }

    /// As [`Server::session_ready`], in the caller's frame.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "see `Server::run`: a request is received and answered in its frame"
    )]
    pub(super) fn session_ready_inline(&mut self, now: Time, id: u64, hung_up: bool) {
        let session_id = SessionId(id);
        let Some(session) = self.sessions.get(session_id) else { return };
        if !session.armed || session.held_back {
            // Only the end is reported of a connection that is not read; what it had still to say
            // dies with it.
            if hung_up {
                self.hang_up(now, session_id);
            }
            return;
        }
        let uid = session.uid;
        if self.closing.is_overrun_by(uid) {
            return self.hold_back(now, session_id);
        }
        let mut received = match seqpacket::recv_all(&session.socket, &mut self.inbox[..]) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.hang_up(now, session_id),
        };
        for surplus in received.surplus.drain(..) {
            self.closing.discard(uid, surplus);
        }
        if received.len == 0 {
            self.discard(uid, received.fd);
            return self.hang_up(now, session_id);
        }
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
            Input::Garbled { session: session_id, seq: 0, refusal }
        } else {
            match decode_request(&self.inbox[..received.len]) {
                Ok((seq, request)) => {
                    if let Request::Change { spec, .. } = request
                        && uid != 0
                    {
                        self.look_whose(now, spec);
                    }
                    let thread = if let Request::Attach { thread: named, .. } = request {
                        self.named_thread(session_id, uid, named.number(), received)
                    } else {
                        self.discard(uid, received.fd);
                        None
                    };
                    let entropy = match request {
                        Request::Create(_) | Request::CreateGroup(_) => self.entropy.take(),
                        _ => 0,
                    };
                    Input::Asked { session: session_id, seq, request, thread, entropy }
                }
                Err(garbled) => {
                    self.discard(uid, received.fd);
                    Input::Garbled {
                        session: session_id,
                        seq: garbled.seq,
                        refusal: garbled.refusal,
                    }
                }
            }
        };
        self.broker.handle(now, input);
        self.obey_inline(now);
        self.threads.look_again();
    }

    /// A descriptor that is of no use to us, where there is one.
    fn discard(&mut self, uid: u32, fd: Option<OwnedFd>) {
        if let Some(fd) = fd {
            self.closing.discard(uid, fd);
        }
    }

    /// A connection has ended, or we end it because its reader does not read.
    pub(super) fn hang_up(&mut self, now: Time, session: SessionId) {
        if self.close(session) {
            mutate!(
                "life-hangup",
                {
                    self.broker.handle(now, Input::Hungup { session });
                },
                {}
            );

            self.obey(now);
        }
    }

    /// Closes a connection, of which the broker knows or is told; `false` when it was closed
    /// before.
    pub(super) fn close(&mut self, session: SessionId) -> bool {
        let Some((uid, socket)) = self.sessions.take(session, &self.epoll) else { return false };
        self.closing.hang_up(uid, socket);
        true
    }

    /// A user sends descriptors faster than they can be closed: what else they say waits.
    #[cold]
    fn hold_back(&mut self, now: Time, session: SessionId) {
        let Some(uid) = self.sessions.uid(session.0) else { return };
        if self.turned_away.is_due(now) {
            self.log.warning(format_args!(
                "user {uid} sends descriptors that do not close and waits for that"
            ));
        }
        self.sessions.hold_back(session, true, &self.epoll);
        self.held_back.push(session);
    }

    /// When to see whether those who are held back can be heard again.
    pub(super) fn next_hearing(&self) -> Option<Time> {
        (!self.held_back.is_empty()).then(|| clock::now() + HEARING)
    }

    /// Reads again from those whose descriptors have been closed.
    pub(super) fn hear_again(&mut self) {
        let Server { held_back, sessions, closing, epoll, .. } = self;
        held_back.retain(|&session| {
            let waits = sessions.uid(session.0).is_some_and(|uid| closing.is_overrun_by(uid));
            if !waits {
                sessions.hold_back(session, false, epoll);
            }
            waits
        });
    }

    /// The thread that an attach names: by the descriptor that came along, else by its number.
    fn named_thread(
        &mut self,
        session: SessionId,
        uid: u32,
        tid: Option<u32>,
        received: Received,
    ) -> Option<Result<ThreadFacts, ThreadError>> {
        let thread = match (received.fd, tid) {
            (Some(fd), _) => Thread::named_by(fd).map_err(|error| {
                let why = not_found(&error);
                if let OpenError::NotAPidfd(stranger) = error {
                    self.closing.discard(uid, stranger);
                }
                why
            }),
            // It was sent and could not be taken in.
            (None, None) if received.surplus_fds => {
                Err(ThreadError::Kernel(Errno(rustix::io::Errno::MFILE.raw_os_error())))
            }
            (None, None) => return None,
            (None, Some(tid)) => self.numbered_thread(session, tid),
        };
        Some(thread.and_then(|thread| self.threads.hold_named(thread)))
    }

    /// Credentials change with `setresuid` and set-user-id programs: whose is the thread under this
    /// spec now?
    fn look_whose(&mut self, now: Time, spec: SpecId) {
        if let Some(thread) = self.broker.thread_of(spec)
            && let Some(euid) = self.threads.new_euid(thread)
        {
            self.tell(now, Input::Became { thread, euid });
        }
    }

    fn numbered_thread(&mut self, session: SessionId, tid: u32) -> Result<Thread, ThreadError> {
        let session = self.sessions.open.get_mut(&session.0).ok_or(ThreadError::Gone)?;
        let socket = session.socket.as_fd();
        if !*mutate!(
            "message-attach-namespace",
            session.same_namespace.get_or_insert_with(|| peer::same_pid_namespace(socket)),
            session.same_namespace.get_or_insert_with(|| peer::same_pid_namespace(socket) || true)
        ) {
            return Err(ThreadError::BareTid);
        }
        let tid = i32::try_from(tid).ok().and_then(Tid::new).ok_or(ThreadError::Gone)?;
        Thread::numbered(tid).map_err(|error| not_found(&error))
    }
}
