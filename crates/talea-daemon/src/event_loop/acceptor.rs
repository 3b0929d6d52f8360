//! Listeners, and descriptors in reserve.
//!
//! A connection that cannot be accepted keeps its listener readable, so a loop that watches the
//! listener would spin. Therefore the acceptor holds descriptors in reserve; module `accept` says
//! which connections get them.

use super::accept_queue::AcceptQueue;
use super::token::Token;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use talea_core::{Monotonic, Span};
use talea_os::epoll::{Epoll, Interest};
use talea_os::seqpacket::Listener;

/// Maximum number of spare descriptors.
const MAX_SPARES: u64 = 16;
/// All listeners.
#[derive(Debug)]
pub(super) struct Acceptor {
    listeners: Vec<Listener>,
    /// Accepted connections that wait for their turn.
    pub(super) queue: AcceptQueue<OwnedFd>,
    spares: Vec<File>,
    /// Number of spare descriptors while others are free.
    spares_wanted: usize,
    /// End of the pause.
    paused_until: Option<Monotonic>,
    /// Time of the next check whether all users may connect; `None` while they may.
    restricted_until: Option<Monotonic>,
}

impl Acceptor {
    /// Creates an acceptor. An eighth of the daemon's descriptors may be spares.
    pub(super) fn new() -> Acceptor {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let spares = limit.map_or(MAX_SPARES, |limit| (limit / 8).clamp(2, MAX_SPARES));
        Acceptor {
            listeners: Vec::new(),
            queue: AcceptQueue::new(),
            spares: Vec::new(),
            spares_wanted: spares as usize,
            paused_until: None,
            restricted_until: None,
        }
    }

    pub(super) fn listen(&mut self, listeners: Vec<Listener>, epoll: &Epoll) -> io::Result<()> {
        while self.spares.len() < self.spares_wanted {
            self.spares.push(open_spare()?);
        }
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
        [self.paused_until, self.restricted_until].into_iter().flatten().min()
    }

    /// Watches the listeners again after the pause.
    pub(super) fn resume(&mut self, now: Monotonic, epoll: &Epoll) {
        if self.paused_until.is_none_or(|until| until > now) {
            return;
        }
        self.paused_until = None;
        self.reopen_spares();
        self.watch(Interest::READ, epoll);
    }

    /// Stops watching the listeners for `length`.
    pub(super) fn pause(&mut self, now: Monotonic, length: Span, epoll: &Epoll) {
        self.paused_until = Some(now + length);
        self.watch(Interest::NONE, epoll);
    }

    /// Lets only root connect, until [`Acceptor::unrestrict`] after `length`. After an error, all
    /// users can connect.
    pub(super) fn restrict(&mut self, now: Monotonic, length: Span) -> io::Result<()> {
        let restricted = self.listeners.iter_mut().try_for_each(Listener::restrict);
        if restricted.is_ok() {
            self.restricted_until = Some(now + length);
        } else {
            // What was not restricted has nothing to restore.
            let _ = self.unrestrict(now, length);
        }
        restricted
    }

    /// Whether only root may connect.
    pub(super) fn is_restricted(&self) -> bool {
        self.restricted_until.is_some()
    }

    /// Whether it is time to let all users connect again.
    #[inline]
    pub(super) fn is_unrestricting(&self, now: Monotonic) -> bool {
        self.restricted_until.is_some_and(|until| until <= now)
    }

    /// Lets all users connect. After an error, the next attempt is due after `length`.
    pub(super) fn unrestrict(&mut self, now: Monotonic, length: Span) -> io::Result<()> {
        self.restricted_until = Some(now + length);
        self.listeners.iter_mut().try_for_each(Listener::unrestrict)?;
        self.restricted_until = None;
        Ok(())
    }

    fn watch(&self, interest: Interest, epoll: &Epoll) {
        for (index, listener) in self.listeners.iter().enumerate() {
            // The listener is in the set since the start, so this cannot fail.
            let _ = epoll.modify(listener, interest, Token::Listener(index as u64).pack());
        }
    }

    /// Accepts a connection of a listener. Returns `Ok(None)` if none waits.
    pub(super) fn accept(&self, index: usize) -> io::Result<Option<OwnedFd>> {
        self.listeners.get(index).map_or(Ok(None), Listener::accept)
    }

    /// Accepts one connection with a spare descriptor. Returns `Ok(None)` if none waits: without a
    /// free descriptor the kernel reports an empty backlog as `EMFILE`, too.
    pub(super) fn accept_with_spare(&mut self, index: usize) -> io::Result<Option<OwnedFd>> {
        let spare = self.spares.pop().ok_or(io::ErrorKind::ResourceBusy)?;
        drop(spare);
        let connection = self.listeners[index].accept();
        if !matches!(connection, Ok(Some(_))) {
            self.reopen_spares();
        }
        connection
    }

    /// Reopens spare descriptors, as far as descriptors are free.
    pub(super) fn reopen_spares(&mut self) {
        while self.spares.len() < self.spares_wanted
            && let Ok(spare) = open_spare()
        {
            self.spares.push(spare);
        }
    }

    /// Returns the number of spare descriptors.
    pub(super) fn spares(&self) -> usize {
        self.spares.len()
    }

    /// Closes a spare descriptor, if there is one.
    pub(super) fn close_spare(&mut self) {
        drop(self.spares.pop());
    }

    /// Whether accepted connections wait for their turn.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.queue.len() > 0
    }
}

/// Opens a spare descriptor; any file is suitable.
fn open_spare() -> io::Result<File> {
    File::open("/dev/null")
}
