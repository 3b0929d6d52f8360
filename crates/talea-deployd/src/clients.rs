//! Connections of administrators' programs.
//!
//! Only root and the user of this process connect: the socket has mode 0600, and the kernel's
//! report about the peer is checked besides.

use crate::log::log;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use talea_core::{Monotonic, Span, mutate};
use talea_deploy::text::frames::{Assembly, MAX_PACKET, packets};
use talea_deploy::text::message::Answer;
use talea_os::clock;
use talea_os::peer;
use talea_os::seqpacket::{self, Listener};

/// Maximum number of connections. A further one closes the oldest.
pub(crate) const MAX_CLIENTS: usize = 64;
/// Pause after a connection that can neither be accepted nor closed.
const PAUSE: Duration = Duration::from_millis(10);
/// Minimum time between two lines about connections that are not accepted.
const LOG_PERIOD: Span = Span::from_ns(60_000_000_000);

/// Connections by their numbers.
#[derive(Debug)]
pub(crate) struct Clients {
    listener: Listener,
    open: BTreeMap<u64, Client>,
    next: u64,
    /// Descriptor that makes room for a connection which is closed at once.
    spare: Option<File>,
    /// Time of the last line about such a connection.
    logged: Option<Monotonic>,
}

#[derive(Debug)]
struct Client {
    socket: OwnedFd,
    assembly: Assembly,
    /// Packets of answers, in order.
    unsent: VecDeque<Vec<u8>>,
}

impl Clients {
    pub(crate) fn new(listener: Listener) -> Clients {
        Clients { listener, open: BTreeMap::new(), next: 0, spare: spare(), logged: None }
    }

    /// Returns the listener, for `epoll`.
    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Accepts the next connection. Returns its number and its socket.
    pub(crate) fn accept(&mut self) -> io::Result<Option<(u64, BorrowedFd<'_>)>> {
        let exhausted = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
        let accepted = match self.listener.accept() {
            Err(error) if exhausted.contains(&error.raw_os_error()) => {
                mutate!("deployd-spare", self.refuse(&error));
                return Ok(None);
            }
            accepted => accepted?,
        };
        let Some(socket) = accepted else { return Ok(None) };
        let uid = peer::user(&socket)?;
        let own = rustix::process::geteuid().as_raw();
        if uid != 0 && uid != own {
            return Ok(None);
        }
        if self.open.len() >= MAX_CLIENTS {
            // The oldest connection makes room: a client that hangs blocks no other one.
            self.open.pop_first();
        }
        let number = self.next;
        self.next += 1;
        self.open.insert(
            number,
            Client { socket, assembly: Assembly::default(), unsent: VecDeque::new() },
        );
        Ok(self.open.get(&number).map(|client| (number, client.socket.as_fd())))
    }

    /// Closes the next connection, for want of a descriptor. A listener with a waiting connection
    /// stays readable, so the loop would otherwise never wait again.
    fn refuse(&mut self, error: &io::Error) {
        drop(self.spare.take());
        let is_closed = self.listener.accept().is_ok();
        self.spare = spare();
        if !is_closed {
            // The limit is below the number of the spare descriptor.
            std::thread::sleep(PAUSE);
        }
        let now = clock::now();
        if self.logged.is_none_or(|at| now.saturating_since(at) >= LOG_PERIOD) {
            log(&format!("a connection is not accepted: {error}"));
            self.logged = Some(now);
        }
    }

    /// Receives packets of a connection. Returns a message if it is complete. A connection that has
    /// ended, or that sends no packets of a message, is closed.
    pub(crate) fn receive(&mut self, number: u64) -> Option<String> {
        let mut packet = vec![0; MAX_PACKET];
        loop {
            let client = self.open.get_mut(&number)?;
            match seqpacket::recv(&client.socket, &mut packet) {
                Ok(received) if received.len > 0 && !received.truncated => {
                    match client.assembly.push(&packet[..received.len]) {
                        Ok(None) => {}
                        Ok(Some(message)) => return Some(message),
                        Err(_) => break,
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                _ => break,
            }
        }
        self.open.remove(&number);
        None
    }

    /// Answers a request. [`Clients::send`] sends the answer.
    pub(crate) fn answer(&mut self, number: u64, answer: &Answer) {
        if let Some(client) = self.open.get_mut(&number) {
            client.unsent.extend(packets(&answer.to_text()));
        }
    }

    /// Sends what a connection can take. Returns its socket and whether packets are left; `None` if
    /// it has ended.
    pub(crate) fn send(&mut self, number: u64) -> Option<(BorrowedFd<'_>, bool)> {
        let client = self.open.get_mut(&number)?;
        while let Some(packet) = client.unsent.front() {
            match seqpacket::send(&client.socket, packet, None) {
                Ok(()) => drop(client.unsent.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.open.remove(&number);
                    return None;
                }
            }
        }
        let client = self.open.get(&number)?;
        Some((client.socket.as_fd(), !client.unsent.is_empty()))
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}
