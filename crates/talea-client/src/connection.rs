//! Connection to the daemon through one socket. A request and its reply have one deadline.
//!
//! Invariants. A reply is accepted only for the request whose number it carries. The reply to an
//! abandoned request is discarded when it arrives, and the specs that it grants are released,
//! because no caller knows them.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use talea_core::mutate;
use talea_os::seqpacket;
use talea_proto::message::Token;
use talea_proto::wire::decode_reply;
use talea_proto::{MESSAGE_MAX, Refusal, Reply, Request, SpecId};

/// Maximum number of abandoned requests that a connection remembers.
const ABANDONED_MAX: usize = 64;

/// Connected socket with its buffer.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    buffer: Box<[u8; MESSAGE_MAX]>,
    seq: u32,
    /// Current time-out of the socket. `default_timeout` is the time-out between calls.
    socket_timeout: Duration,
    default_timeout: Duration,
    /// Numbers of create requests that the caller abandoned without a reply.
    abandoned: Vec<u32>,
    /// Specs that the daemon granted to abandoned requests.
    unclaimed: Vec<SpecId>,
    seed: Seed,
}

/// Secret from which the tokens of a connection's grants derive.
#[derive(Debug)]
enum Seed {
    /// Not sent yet.
    Unsent,
    /// The daemon does not know the request.
    Unknown,
    /// The daemon uses the secret.
    Shared(Token),
}

/// Reason why an exchange failed.
#[derive(Debug)]
pub(crate) enum ConnectionError {
    /// The client did not send the request, so the daemon has not received it.
    NotSent(io::Error),
    /// The connection ended after the request was sent.
    Lost(io::Error),
    /// The deadline passed.
    TimedOut,
    /// The daemon sent an unsolicited refusal, because it will not serve this connection.
    Rejected(Box<Refusal>),
    /// The client could not decode the reply.
    Undecodable(Refusal),
}

impl Connection {
    /// Connects within `now`; later waits last for at most `timeout`.
    pub(crate) fn open(path: &Path, timeout: Duration, now: Duration) -> io::Result<Connection> {
        let socket = seqpacket::connect(path, now)?;
        Ok(Connection {
            socket,
            buffer: Box::new([0; MESSAGE_MAX]),
            seq: 0,
            socket_timeout: now,
            default_timeout: timeout,
            abandoned: Vec::new(),
            unclaimed: Vec::new(),
            seed: Seed::Unsent,
        })
    }

    /// Sends `request` with `fd`, and waits for its reply.
    pub(crate) fn exchange(
        &mut self,
        request: &Request,
        fd: Option<BorrowedFd>,
        deadline: Instant,
    ) -> Result<Reply, ConnectionError> {
        self.reset_timeout(deadline)?;
        // Number 0 is for the daemon's unsolicited messages.
        self.seq = self.seq.checked_add(1).unwrap_or(1);
        let len = request.encode(self.seq, &mut self.buffer[..]);
        self.send(len, fd, deadline)?;
        let reply = self.receive(deadline);
        let grants = matches!(request, Request::Create(_) | Request::CreateGroup(_));
        if grants && matches!(reply, Err(ConnectionError::TimedOut)) {
            if self.abandoned.len() == ABANDONED_MAX {
                self.abandoned.remove(0);
            }
            self.abandoned.push(self.seq);
        }
        reply
    }

    /// Sends the seed of the tokens, if not sent before.
    pub(crate) fn send_seed(&mut self, deadline: Instant) -> Result<(), ConnectionError> {
        if !matches!(self.seed, Seed::Unsent) {
            return Ok(());
        }
        let secret = random().map_err(|error| ConnectionError::NotSent(error.into()))?;
        let library = library().map_err(|error| ConnectionError::NotSent(error.into()))?;
        let seed = Token::new(library, secret);
        self.seed = match self.exchange(&Request::Seed(seed), None, deadline)? {
            Reply::Done => Seed::Shared(seed),
            _ => Seed::Unknown,
        };
        Ok(())
    }

    /// Returns the token of the grant of the last request; of a group, the first one.
    pub(crate) fn last_token(&self) -> Option<Token> {
        match self.seed {
            Seed::Shared(seed) => Some(Token::derived(seed, self.seq)),
            Seed::Unsent | Seed::Unknown => None,
        }
    }

    /// Returns a spec granted to an abandoned request.
    pub(crate) fn pop_unclaimed(&mut self) -> Option<SpecId> {
        self.unclaimed.pop()
    }

    fn send(
        &mut self,
        len: usize,
        fd: Option<BorrowedFd>,
        deadline: Instant,
    ) -> Result<(), ConnectionError> {
        loop {
            match seqpacket::send(&self.socket, &self.buffer[..len], fd) {
                // The daemon has stopped reading and its queue is full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_writable(deadline)?;
                }
                sent => return sent.map_err(ConnectionError::NotSent),
            }
        }
    }

    /// Waits until the socket is writable, or until a signal handler has run.
    fn wait_writable(&self, deadline: Instant) -> Result<(), ConnectionError> {
        let left = remaining(deadline)?;
        let left = Timespec::try_from(left).map_err(|_| ConnectionError::TimedOut)?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(ConnectionError::NotSent(error.into())),
        }
    }

    fn receive(&mut self, deadline: Instant) -> Result<Reply, ConnectionError> {
        loop {
            match rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((_, 0)) => return Err(ConnectionError::Lost(Errno::CONNRESET.into())),
                Ok((len, _)) => match decode_reply(&self.buffer[..len]) {
                    Ok((seq, reply)) if seq == self.seq => return Ok(reply),
                    Ok((0, Reply::Refused(refusal))) => {
                        return Err(ConnectionError::Rejected(refusal));
                    }
                    Ok((seq, reply)) => self.discard(seq, reply),
                    Err(error) => return Err(ConnectionError::Undecodable(error.refusal)),
                },
                // A signal handler ran. The kernel would start the whole wait again.
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    return mutate!(
                        "recovery-client-timeout",
                        Err(ConnectionError::TimedOut),
                        self.receive(deadline + self.default_timeout)
                    );
                }
                Err(error) => return Err(ConnectionError::Lost(error.into())),
            }
            self.set_timeout(deadline)?;
        }
    }

    /// Discards a late reply, but remembers the specs that the reply grants.
    fn discard(&mut self, seq: u32, reply: Reply) {
        let Some(at) = self.abandoned.iter().position(|&abandoned| abandoned == seq) else {
            return;
        };
        self.abandoned.remove(at);
        match reply {
            Reply::Granted(granted) => self.unclaimed.push(granted.spec),
            Reply::GrantedGroup(group) => {
                self.unclaimed.extend(group.iter().map(|granted| granted.spec));
            }
            _ => {}
        }
    }

    /// Prepares the time-out for a request. The default time-out serves the usual case without a
    /// system call.
    fn reset_timeout(&mut self, deadline: Instant) -> Result<(), ConnectionError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left < self.default_timeout * 7 / 8 {
            return self.set_timeout(deadline);
        }
        if self.socket_timeout != self.default_timeout {
            seqpacket::set_timeout(&self.socket, self.default_timeout)
                .map_err(ConnectionError::NotSent)?;
            self.socket_timeout = self.default_timeout;
        }
        Ok(())
    }

    /// Sets the socket's time-out so that the next wait ends at `deadline`.
    fn set_timeout(&mut self, deadline: Instant) -> Result<(), ConnectionError> {
        let left = remaining(deadline)?;
        seqpacket::set_timeout(&self.socket, left).map_err(ConnectionError::Lost)?;
        self.socket_timeout = left;
        Ok(())
    }
}

/// Returns the number of this copy of the library. A process may contain several copies, for
/// example a preloaded one, and the daemon must not take the grants of one for those of another.
fn library() -> Result<u64, Errno> {
    static LIBRARY: OnceLock<u64> = OnceLock::new();
    if let Some(&library) = LIBRARY.get() {
        return Ok(library);
    }
    // Zero stands for a client without a library.
    let number = random()?.max(1);
    Ok(*LIBRARY.get_or_init(|| mutate!("recovery-client-library", number, 1)))
}

fn random() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    // The kernel's pool is ready long before a program asks, and fills so few bytes at once.
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Returns the time until `deadline`. If no time is left, returns [`ConnectionError::TimedOut`].
fn remaining(deadline: Instant) -> Result<Duration, ConnectionError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ConnectionError::TimedOut) } else { Ok(left) }
}
