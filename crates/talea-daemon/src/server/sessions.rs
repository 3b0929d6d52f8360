//! Connections, and what is read from them.

use super::Server;
use super::threads::not_found;
use super::token::Token;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use talea_broker::input::{Errno, ThreadError, ThreadFacts};
use talea_broker::{Input, SessionId};
use talea_core::Time;
use talea_os::epoll::{Epoll, Interest};
use talea_os::seqpacket::{self, Received};
use talea_os::{Thread, Tid, peer};
use talea_proto::wire::decode_request;
use talea_proto::{Code, Field, Refusal, Request};

/// One connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) socket: OwnedFd,
    /// Whose turns it takes.
    uid: u32,
    /// Whether bare thread ids mean the same there; asked when one is first used.
    same_namespace: Option<bool>,
    pub(super) armed: bool,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<u64, Session>,
    last: u64,
}

impl Sessions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Watches `socket` and gives it a number that no other connection has had.
    pub(super) fn add(&mut self, socket: OwnedFd, uid: u32, epoll: &Epoll) -> io::Result<SessionId> {
        let id = self.last + 1;
        epoll.add(&socket, Interest::READ, Token::Session(id).pack())?;
        self.last = id;
        self.open.insert(id, Session { socket, uid, same_namespace: None, armed: true });
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
        let Some(session) = self.open.get_mut(&id.0).filter(|session| session.armed != armed) else { return };
        session.armed = armed;
        let interest = if armed { Interest::READ } else { Interest::NONE };
        // It is in the set and needs no memory there.
        let _ = epoll.modify(&session.socket, interest, Token::Session(id.0).pack());
    }

    /// Closes a connection, which also takes it out of the epoll set.
    pub(super) fn close(&mut self, id: SessionId) -> bool {
        self.open.remove(&id.0).is_some()
    }
}

impl Server {
    /// A connection has something to say. One message, so that a client with many waits like everybody else.
    pub(super) fn session_ready(&mut self, now: Time, id: u64, hung_up: bool) {
        let session_id = SessionId(id);
        let Some(session) = self.sessions.get(session_id) else { return };
        if !session.armed {
            // Only the end is reported of a connection that is not read; what it had still to say dies with it.
            if hung_up {
                self.hang_up(now, session_id);
            }
            return;
        }
        let received = match seqpacket::recv(&session.socket, &mut self.inbox[..]) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.hang_up(now, session_id),
        };
        if received.len == 0 {
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
            Input::Garbled { session: session_id, seq: 0, refusal }
        } else {
            match decode_request(&self.inbox[..received.len]) {
                Ok((seq, request)) => {
                    let thread = match request {
                        Request::Attach { tid, .. } => self.named_thread(session_id, tid, received),
                        _ => None,
                    };
                    let entropy = match request {
                        Request::Create(_) | Request::CreateGroup(_) => self.entropy.take(),
                        _ => 0,
                    };
                    Input::Asked { session: session_id, seq, request, thread, entropy }
                }
                Err(garbled) => {
                    Input::Garbled { session: session_id, seq: garbled.seq, refusal: garbled.refusal }
                }
            }
        };
        self.tell(now, input);
    }

    /// A connection has ended, or we end it because its reader does not read.
    pub(super) fn hang_up(&mut self, now: Time, session: SessionId) {
        if self.sessions.close(session) {
            self.broker.handle(now, Input::Hungup { session });
            self.obey(now);
        }
    }

    /// The thread that an attach names: by the descriptor that came along, else by its number.
    fn named_thread(
        &mut self,
        session: SessionId,
        tid: Option<u32>,
        received: Received,
    ) -> Option<Result<ThreadFacts, ThreadError>> {
        let thread = match (received.fd, tid) {
            (Some(fd), _) => Thread::from_fd(fd).map_err(|error| not_found(&error)),
            // It was sent and could not be taken in.
            (None, None) if received.surplus_fds => {
                Err(ThreadError::Kernel(Errno(rustix::io::Errno::MFILE.raw_os_error())))
            }
            (None, None) => return None,
            (None, Some(tid)) => self.numbered_thread(session, tid),
        };
        Some(thread.and_then(|thread| self.threads.hold(thread)))
    }

    fn numbered_thread(&mut self, session: SessionId, tid: u32) -> Result<Thread, ThreadError> {
        let session = self.sessions.open.get_mut(&session.0).ok_or(ThreadError::Gone)?;
        let socket = session.socket.as_fd();
        if !*session.same_namespace.get_or_insert_with(|| peer::same_pid_namespace(socket)) {
            return Err(ThreadError::BareTid);
        }
        let tid = i32::try_from(tid).ok().and_then(Tid::new).ok_or(ThreadError::Gone)?;
        Thread::open(tid).map_err(|error| not_found(&error))
    }
}
