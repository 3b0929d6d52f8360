//! The door: listeners, and what happens when there are no descriptors left.
//!
//! A connection that can't be accepted keeps its listener readable, and a loop that watches it
//! would spin (facts D3). So one descriptor is kept in reserve: it is given up to accept the caller
//! and hang up on it, which tells the caller at once, and is taken back. Where even that fails the
//! listener is not watched for a while.

use super::Server;
use super::token::Token;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use talea_broker::{Input, Peer};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_os::epoll::{Epoll, Interest};
use talea_os::seqpacket::Listener;
use talea_os::{peer, proc};

/// Callers that one round lets in from one listener: each costs more than a request, and nobody has
/// asked for it yet.
const CALLERS: usize = 1;
/// How long a listener rests that can't even be relieved.
const REST: Span = Span::from_ns(100_000_000);
/// The same while the caller that was hung up on still has the reserve's place.
const SHORT_REST: Span = Span::from_ns(1_000_000);

/// All listeners.
#[derive(Debug)]
pub(super) struct Door {
    listeners: Vec<Listener>,
    reserve: Option<File>,
    /// Until when nobody is let in.
    resting: Option<Time>,
}

impl Door {
    pub(super) fn closed() -> Door {
        Door { listeners: Vec::new(), reserve: None, resting: None }
    }

    pub(super) fn open(&mut self, listeners: Vec<Listener>, epoll: &Epoll) -> io::Result<()> {
        self.reserve = Some(spare()?);
        for (index, listener) in listeners.iter().enumerate() {
            epoll.add(listener, Interest::READ, Token::Listener(index as u64).pack())?;
        }
        self.listeners = listeners;
        Ok(())
    }

    pub(super) fn is_closed_for_ever(&self) -> bool {
        self.listeners.is_empty()
    }

    pub(super) fn retry_at(&self) -> Option<Time> {
        self.resting
    }

    /// Watches the listeners again when they have rested.
    pub(super) fn retry(&mut self, now: Time, epoll: &Epoll) {
        if self.resting.is_none_or(|until| until > now) {
            return;
        }
        self.resting = None;
        if self.reserve.is_none() {
            self.recover();
        }
        self.watch(Interest::READ, epoll);
    }

    fn rest(&mut self, now: Time, length: Span, epoll: &Epoll) {
        self.resting = Some(now + length);
        self.watch(Interest::NONE, epoll);
    }

    fn watch(&self, interest: Interest, epoll: &Epoll) {
        for (index, listener) in self.listeners.iter().enumerate() {
            // In the set since the start.
            let _ = epoll.modify(listener, interest, Token::Listener(index as u64).pack());
        }
    }

    /// Takes in one caller with the reserve's place, to hang up on it. `None` when there is no way
    /// to do that.
    fn turn_away(&mut self, index: usize) -> Option<OwnedFd> {
        self.reserve.take()?;
        let caller = self.listeners[index].accept();
        if !matches!(caller, Ok(Some(_))) {
            self.recover();
        }
        caller.ok().flatten()
    }

    /// Takes the reserve's place again; `false` when somebody else has it.
    fn recover(&mut self) -> bool {
        self.reserve = spare().ok();
        self.reserve.is_some()
    }
}

/// Any descriptor will do.
fn spare() -> io::Result<File> {
    File::open("/dev/null")
}

impl Server {
    /// Somebody wants to connect.
    pub(super) fn callers(&mut self, now: Time, index: u64) {
        let index = index as usize;
        if self.closing.is_overrun() {
            if self.turned_away.is_due(now) {
                self.log.error(
                    "nobody is let in: clients have sent too many descriptors that do not close",
                );
            }
            self.door.rest(now, REST, &self.epoll);
            return;
        }
        for _ in 0..CALLERS {
            let Some(listener) = self.door.listeners.get(index) else { return };
            match listener.accept() {
                Ok(None) => return,
                Ok(Some(socket)) => {
                    if let Err(error) = self.welcome(now, socket) {
                        self.log.debug(format_args!("a connection was lost at once: {error}"));
                    }
                }
                Err(error) => {
                    if self.turned_away.is_due(now) {
                        self.log.error(format_args!("connections are turned away: {error}"));
                    }
                    let full =
                        error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
                    let Some(caller) = mutate!(
                        "recovery-no-descriptors",
                        full.then(|| self.door.turn_away(index)),
                        (full && index > 1000).then(|| self.door.turn_away(index))
                    )
                    .flatten() else {
                        self.door.rest(now, REST, &self.epoll);
                        return;
                    };
                    let uid = peer::of(&caller).map_or(u32::MAX, |peer| peer.uid);
                    self.closing.hang_up(uid, caller);
                    if !self.door.recover() {
                        self.door.rest(now, SHORT_REST, &self.epoll);
                        return;
                    }
                }
            }
        }
    }

    /// A new connection: who is it?
    pub(super) fn welcome(&mut self, now: Time, socket: OwnedFd) -> io::Result<()> {
        let told = peer::of(&socket)?;
        let peer = Peer {
            pid: told.pid.map_or(0, |tid| tid.as_raw() as u32),
            // A process that has ended already has none, and its connection ends next.
            pid_start: told
                .pid
                .and_then(|tid| Some(proc::stat(tid).ok()?.start_ticks))
                .unwrap_or(0),
            uid: told.uid,
            gid: told.gid,
            groups: told.groups,
        };
        let session = self.sessions.add(socket, peer.uid, &self.epoll)?;
        self.tell(now, Input::Connected { session, peer });
        Ok(())
    }
}
