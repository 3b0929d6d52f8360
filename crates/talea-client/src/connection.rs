//! One socket to the daemon: a request out, its reply in, both before a deadline.
//!
//! Invariants. A reply is only taken for the request whose number it carries. The reply to a
//! request that was given up on is thrown away when it comes, and what it granted is given back,
//! because nobody knows of it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use talea_core::mutate;
use talea_os::seqpacket;
use talea_proto::wire::decode_reply;
use talea_proto::{MESSAGE_MAX, Refusal, Reply, Request, SpecId};

/// How many requests that were given up on are remembered.
const ABANDONED_MAX: usize = 64;

/// A connected socket with its buffer.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    buffer: Box<[u8; MESSAGE_MAX]>,
    seq: u32,
    /// The time-out that the socket has now, and should have between calls.
    armed: Duration,
    usual: Duration,
    /// Creates without a reply so far.
    abandoned: Vec<u32>,
    /// Granted to nobody.
    orphans: Vec<SpecId>,
}

/// Why an exchange came to nothing.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The request did not leave: the daemon has not seen it.
    NotSent(io::Error),
    /// The connection ended after the request had left.
    Lost(io::Error),
    /// The deadline passed.
    TimedOut,
    /// The daemon spoke without being asked, to say that it will not serve this connection.
    Rejected(Box<Refusal>),
    /// The reply could not be understood.
    Garbled(Refusal),
}

impl Connection {
    pub(crate) fn open(path: &Path, timeout: Duration) -> io::Result<Connection> {
        let socket = seqpacket::connect(path, timeout)?;
        Ok(Connection {
            socket,
            buffer: Box::new([0; MESSAGE_MAX]),
            seq: 0,
            armed: timeout,
            usual: timeout,
            abandoned: Vec::new(),
            orphans: Vec::new(),
        })
    }

    /// Sends `request`, with `fd` beside it, and waits for its reply.
    pub(crate) fn exchange(
        &mut self,
        request: &Request,
        fd: Option<BorrowedFd>,
        deadline: Instant,
    ) -> Result<Reply, Broken> {
        self.settle(deadline)?;
        // Number 0 is the daemon's own, for what it says unasked.
        self.seq = self.seq.checked_add(1).unwrap_or(1);
        let len = request.encode(self.seq, &mut self.buffer[..]);
        self.send(len, fd, deadline)?;
        let reply = self.receive(deadline);
        let grants = matches!(request, Request::Create(_) | Request::CreateGroup(_));
        if grants && matches!(reply, Err(Broken::TimedOut)) {
            if self.abandoned.len() == ABANDONED_MAX {
                self.abandoned.remove(0);
            }
            self.abandoned.push(self.seq);
        }
        reply
    }

    /// What was granted to requests that nobody waits for any more.
    pub(crate) fn take_orphan(&mut self) -> Option<SpecId> {
        self.orphans.pop()
    }

    fn send(
        &mut self,
        len: usize,
        fd: Option<BorrowedFd>,
        deadline: Instant,
    ) -> Result<(), Broken> {
        loop {
            match seqpacket::send(&self.socket, &self.buffer[..len], fd) {
                // The daemon has stopped reading and its queue is full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.await_room(deadline)?
                }
                sent => return sent.map_err(Broken::NotSent),
            }
        }
    }

    /// Waits until the socket takes more, or until a signal handler has run.
    fn await_room(&self, deadline: Instant) -> Result<(), Broken> {
        let left = left_until(deadline)?;
        let left = Timespec::try_from(left).map_err(|_| Broken::TimedOut)?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Broken::NotSent(error.into())),
        }
    }

    fn receive(&mut self, deadline: Instant) -> Result<Reply, Broken> {
        loop {
            match rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((_, 0)) => return Err(Broken::Lost(Errno::CONNRESET.into())),
                Ok((len, _)) => match decode_reply(&self.buffer[..len]) {
                    Ok((seq, reply)) if seq == self.seq => return Ok(reply),
                    Ok((0, Reply::Refused(refusal))) => return Err(Broken::Rejected(refusal)),
                    Ok((seq, reply)) => self.discard(seq, reply),
                    Err(garbled) => return Err(Broken::Garbled(garbled.refusal)),
                },
                // A signal handler ran. The kernel would start the whole wait again.
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    return mutate!(
                        "recovery-client-timeout",
                        Err(Broken::TimedOut),
                        self.receive(deadline + self.usual)
                    );
                }
                Err(error) => return Err(Broken::Lost(error.into())),
            }
            self.arm(deadline)?;
        }
    }

    /// A reply that comes too late.
    fn discard(&mut self, seq: u32, reply: Reply) {
        let Some(at) = self.abandoned.iter().position(|&abandoned| abandoned == seq) else {
            return;
        };
        self.abandoned.remove(at);
        match reply {
            Reply::Granted(granted) => self.orphans.push(granted.spec),
            Reply::GrantedGroup(group) => {
                self.orphans.extend(group.iter().map(|granted| granted.spec))
            }
            _ => {}
        }
    }

    /// Before a request: the socket's usual time-out serves the usual case without a system call.
    fn settle(&mut self, deadline: Instant) -> Result<(), Broken> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left < self.usual * 7 / 8 {
            return self.arm(deadline);
        }
        if self.armed != self.usual {
            seqpacket::set_timeout(&self.socket, self.usual).map_err(Broken::NotSent)?;
            self.armed = self.usual;
        }
        Ok(())
    }

    /// Lets the next wait last until `deadline`.
    fn arm(&mut self, deadline: Instant) -> Result<(), Broken> {
        let left = left_until(deadline)?;
        seqpacket::set_timeout(&self.socket, left).map_err(Broken::Lost)?;
        self.armed = left;
        Ok(())
    }
}

/// What is left of the time; nothing is a time-out.
fn left_until(deadline: Instant) -> Result<Duration, Broken> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Broken::TimedOut) } else { Ok(left) }
}
