//! Messages received from connections, and the ends of connections.

use super::Daemon;
use super::sessions::Session;
use super::threads::not_found;
use crate::convert;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use talea_broker::input::{Caller, Errno, ThreadError, ThreadFacts};
use talea_broker::{Input, Peer, SessionId};
use talea_core::{Monotonic, Span, mutate};
use talea_os::seqpacket::{self, Received};
use talea_os::{OpenError, Thread, Tid, clock, proc};
use talea_proto::wire::decode_request;
use talea_proto::{Code, Field, Refusal, Request, SpecId, ThreadRef};

/// Period of the check whether suspended connections can be resumed.
const RESUME_CHECK_PERIOD: Span = Span::from_ns(1_000_000);

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
        let mut handle = || self.handle_message(now, id, hung_up);
        mutate!("rows-cost-request", handle(), clock::slowed(3, handle));
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `Daemon::run`")]
    fn handle_message(&mut self, now: Monotonic, id: u64, hung_up: bool) {
        let session_id = SessionId(id);
        let Some(session) = self.sessions.get(session_id) else { return };
        if !session.is_watched() {
            // For a connection that is not read, epoll reports only its end. Unread messages are
            // dropped.
            if hung_up {
                self.hang_up(now, session_id);
            }
            return;
        }
        let (uid, share) = (session.uid, session.share);
        if self.deferred_close.is_subject_over_limit(share) {
            return self.suspend_reading(now, session_id);
        }
        let mut received = match seqpacket::recv_all(&session.socket, &mut self.buffers.inbox[..]) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.hang_up(now, session_id),
        };
        for surplus in received.surplus.drain(..) {
            self.deferred_close.discard(share, surplus);
        }
        if received.len == 0 {
            self.discard(share, received.fd);
            return self.hang_up(now, session_id);
        }
        self.sessions.received(session_id, now);
        let input = if received.truncated {
            let asked = self.buffers.inbox.len() as u64 + 1;
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
            self.discard(share, received.fd);
            Input::Undecodable { session: session_id, seq: 0, refusal }
        } else {
            match decode_request(&self.buffers.inbox[..received.len]) {
                Ok((seq, request)) => {
                    if let Request::Change { spec, .. } = request
                        && uid != 0
                    {
                        self.refresh_thread_owner(now, spec);
                    }
                    self.survey_for(now, session_id, &request);
                    let (mut thread, mut caller) = (None, None);
                    if let Some(named) = named_thread(&request) {
                        thread = self.resolve_thread(session_id, share, named.tid(), received);
                    } else {
                        if let (Request::ActFor { .. }, Some(fd)) = (&request, &received.fd) {
                            caller = Some(Box::new(caller_of(fd.as_fd())));
                        }
                        self.discard(share, received.fd);
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
                    self.discard(share, received.fd);
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
    fn discard(&mut self, share: u32, fd: Option<OwnedFd>) {
        if let Some(fd) = fd {
            self.deferred_close.discard(share, fd);
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
        let Some((share, socket)) = self.sessions.remove(session, &self.epoll) else {
            return false;
        };
        self.deferred_close.hang_up(share, socket);
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
        if self.limiters.rejected.allows(now) {
            self.log.warning(format_args!(
                "too many descriptors of user {uid} wait to be closed; the user's connections are not read until then"
            ));
        }
        self.sessions.suspend(session, &self.epoll);
    }

    /// Returns the time of the next check for suspended connections; `None` if there are none.
    pub(super) fn next_resume(&self) -> Option<Monotonic> {
        self.sessions.has_suspended().then(|| clock::now() + RESUME_CHECK_PERIOD)
    }

    /// Resumes the connections whose users' descriptors are closed.
    pub(super) fn resume_reading(&mut self) {
        let deferred_close = &self.deferred_close;
        self.sessions.resume(|share| deferred_close.is_subject_over_limit(share), &self.epoll);
    }

    /// Returns the thread that a request names, by the passed descriptor or else by its id; `None`
    /// if the request has neither.
    fn resolve_thread(
        &mut self,
        session: SessionId,
        share: u32,
        tid: Option<u32>,
        received: Received,
    ) -> Option<Result<ThreadFacts, ThreadError>> {
        let thread = match (received.fd, tid) {
            (Some(fd), _) => Thread::from_fd_unchecked(fd).map_err(|error| {
                let why = not_found(&error);
                if let OpenError::NotAPidfd(other) = error {
                    self.deferred_close.discard(share, other);
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
        let same = self
            .sessions
            .has_same_namespace(session)
            .map_err(|error| ThreadError::Kernel(Errno(error.raw_os_error().unwrap_or(0))))?
            .ok_or(ThreadError::Gone)?;
        if mutate!("message-attach-namespace", !same, false) {
            return Err(ThreadError::TidNotAccepted);
        }
        let tid = i32::try_from(tid).ok().and_then(Tid::new).ok_or(ThreadError::Gone)?;
        Thread::open_unchecked(tid).map_err(|error| not_found(&error))
    }
}
