//! Acceptor: listeners, and the behaviour when no descriptors are left.
//!
//! A connection that cannot be accepted keeps its listener readable, so a loop that watches the
//! listener would spin. Therefore the acceptor holds one descriptor in reserve.
//!
//! | state | transition | next state |
//! | --- | --- | --- |
//! | *listening* | a connection is accepted | *listening* |
//! | *listening* | EMFILE: close the reserve, accept, hang up, reopen it | *listening* |
//! | *listening* | EMFILE, the reserve cannot be reopened | *paused*, [`SHORT_PAUSE`] |
//! | *listening* | other error, or too many pending closes | *paused*, [`PAUSE`] |
//! | *paused*: the listeners are not watched | the pause expires | *listening* |

use super::Daemon;
use super::token::Token;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use talea_broker::{Input, Peer};
use talea_core::mutate;
use talea_core::{Monotonic, Span};
use talea_os::epoll::{Epoll, Interest};
use talea_os::seqpacket::Listener;
use talea_os::{peer, proc};

/// Maximum number of connections accepted from one listener per round: an accept costs more than a
/// request.
const MAX_ACCEPTS: usize = 1;
/// Pause of the listeners when the reserve does not help.
const PAUSE: Span = Span::from_ns(100_000_000);
/// Pause of the listeners while the rejected connection still uses the reserve's descriptor.
const SHORT_PAUSE: Span = Span::from_ns(1_000_000);

/// All listeners.
#[derive(Debug)]
pub(super) struct Acceptor {
    listeners: Vec<Listener>,
    reserve: Option<File>,
    /// End of the pause.
    paused_until: Option<Monotonic>,
}

impl Acceptor {
    pub(super) fn new() -> Acceptor {
        Acceptor { listeners: Vec::new(), reserve: None, paused_until: None }
    }

    pub(super) fn listen(&mut self, listeners: Vec<Listener>, epoll: &Epoll) -> io::Result<()> {
        self.reserve = Some(open_reserve()?);
        for (index, listener) in listeners.iter().enumerate() {
            epoll.add(listener, Interest::READ, Token::Listener(index as u64).pack())?;
        }
        self.listeners = listeners;
        Ok(())
    }

    pub(super) fn has_no_listener(&self) -> bool {
        self.listeners.is_empty()
    }

    pub(super) fn resume_at(&self) -> Option<Monotonic> {
        self.paused_until
    }

    /// Watches the listeners again after the pause.
    pub(super) fn resume(&mut self, now: Monotonic, epoll: &Epoll) {
        if self.paused_until.is_none_or(|until| until > now) {
            return;
        }
        self.paused_until = None;
        if self.reserve.is_none() {
            self.reopen_reserve();
        }
        self.watch(Interest::READ, epoll);
    }

    fn pause(&mut self, now: Monotonic, length: Span, epoll: &Epoll) {
        self.paused_until = Some(now + length);
        self.watch(Interest::NONE, epoll);
    }

    fn watch(&self, interest: Interest, epoll: &Epoll) {
        for (index, listener) in self.listeners.iter().enumerate() {
            // The listener is in the set since the start, so this cannot fail.
            let _ = epoll.modify(listener, interest, Token::Listener(index as u64).pack());
        }
    }

    /// Accepts one connection with the reserve's descriptor, to hang up on it; `None` if that
    /// fails.
    fn accept_with_reserve(&mut self, index: usize) -> Option<OwnedFd> {
        self.reserve.take()?;
        let connection = self.listeners[index].accept();
        if !matches!(connection, Ok(Some(_))) {
            self.reopen_reserve();
        }
        connection.ok().flatten()
    }

    /// Reopens the reserve; `false` if no descriptor is free.
    fn reopen_reserve(&mut self) -> bool {
        self.reserve = open_reserve().ok();
        self.reserve.is_some()
    }
}

/// Opens a descriptor for the reserve; any file is suitable.
fn open_reserve() -> io::Result<File> {
    File::open("/dev/null")
}

impl Daemon {
    /// Accepts connections from a ready listener.
    pub(super) fn accept_ready(&mut self, now: Monotonic, index: u64) {
        let index = index as usize;
        if self.deferred_close.is_over_limit() {
            if self.rejected_limiter.allows(now) {
                self.log.error(
                    "no connection is accepted: too many descriptors sent by clients wait to be closed",
                );
            }
            self.acceptor.pause(now, PAUSE, &self.epoll);
            return;
        }
        for _ in 0..MAX_ACCEPTS {
            let Some(listener) = self.acceptor.listeners.get(index) else { return };
            match listener.accept() {
                Ok(None) => return,
                Ok(Some(socket)) => {
                    if let Err(error) = self.add_connection(now, socket) {
                        self.log.debug(format_args!("a new connection was lost: {error}"));
                    }
                }
                Err(error) => {
                    if self.rejected_limiter.allows(now) {
                        self.log.error(format_args!(
                            "connections are rejected: accept failed: {error}"
                        ));
                    }
                    let full =
                        error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
                    let Some(connection) = mutate!(
                        "recovery-no-descriptors",
                        full.then(|| self.acceptor.accept_with_reserve(index)),
                        (full && index > 1000).then(|| self.acceptor.accept_with_reserve(index))
                    )
                    .flatten() else {
                        self.acceptor.pause(now, PAUSE, &self.epoll);
                        return;
                    };
                    let uid = peer::credentials(&connection).map_or(u32::MAX, |peer| peer.uid);
                    self.deferred_close.hang_up(uid, connection);
                    if !self.acceptor.reopen_reserve() {
                        self.acceptor.pause(now, SHORT_PAUSE, &self.epoll);
                        return;
                    }
                }
            }
        }
    }

    /// Adds a new connection, and passes the credentials of its peer to the broker.
    pub(super) fn add_connection(&mut self, now: Monotonic, socket: OwnedFd) -> io::Result<()> {
        let credentials = peer::credentials(&socket)?;
        let peer = Peer {
            pid: credentials.pid.map_or(0, |tid| tid.as_raw() as u32),
            // An exited process has no start time; the end of its connection follows.
            pid_start: credentials
                .pid
                .and_then(|tid| Some(proc::stat(tid).ok()?.start_ticks))
                .unwrap_or(0),
            uid: credentials.uid,
            gid: credentials.gid,
            groups: credentials.groups,
        };
        let session = self.sessions.add(socket, peer.uid, &self.epoll)?;
        self.handle_input(now, Input::Connected { session, peer });
        Ok(())
    }
}
