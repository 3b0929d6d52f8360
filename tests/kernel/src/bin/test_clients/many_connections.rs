//! Many connections of one user that misbehave in the same way at once.
//!
//! Model: one epoll set. A writable connection is sent a message, and everything that arrives is
//! read, unless the kind does not read. A closed connection is reopened at once. So the swarm loads
//! the daemon as much as the daemon permits, and consumes no CPU time while the daemon does not
//! serve it. Any delay of the honest client is therefore caused by the daemon.

use crate::{PATIENCE, number};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use talea_core::{Params, Priority, Span};
use talea_os::epoll::{Epoll, Events, Interest};
use talea_os::{clock, seqpacket};
use talea_proto::message::{Name, Owner};
use talea_proto::{GROUP_MAX, MESSAGE_MAX, Request, SpecId, Task, ThreadRef, VERSION};

/// Behaviour of the members of a swarm.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Request the daemon's counters, and read the replies.
    Status,
    /// Request the daemon's counters, and never read.
    Mute,
    /// Send invalid bytes.
    Garbage,
    /// Create specs and keep them.
    Create,
    /// Request the maximum number of specs in one message.
    Group,
    /// Attach an own thread to a spec that does not exist.
    Attach,
    /// Connect and disconnect repeatedly.
    Visit,
    /// Connect and send nothing.
    Idle,
    /// Connect and send nothing, without reconnecting after a refusal.
    Guest,
}

#[derive(Default)]
struct Counts {
    opened: u64,
    failed: u64,
    sent: u64,
    received: u64,
    hangups: u64,
}

pub(crate) fn run(words: &[&str], stop: &AtomicBool, ready: impl FnOnce()) -> io::Result<String> {
    let [path, count, kind] = *words else { return Err(io::ErrorKind::InvalidInput.into()) };
    let kind = match kind {
        "status" => Kind::Status,
        "mute" => Kind::Mute,
        "garbage" => Kind::Garbage,
        "create" => Kind::Create,
        "group" => Kind::Group,
        "attach" => Kind::Attach,
        "visit" => Kind::Visit,
        "idle" => Kind::Idle,
        "guest" => Kind::Guest,
        _ => return Err(io::Error::other(format!("unknown kind {kind}"))),
    };
    let mut swarm = Swarm::new(Path::new(path), number(count)?, kind)?;
    for index in 0..swarm.members.len() {
        swarm.open(index)?;
    }
    ready();
    let mut events = Events::with_capacity(256);
    while !stop.load(Ordering::Relaxed) {
        if kind == Kind::Visit {
            for index in 0..swarm.members.len().min(64) {
                swarm.members[index] = None;
                swarm.open(index)?;
            }
            continue;
        }
        let until = clock::now() + Span::from_ns(20_000_000);
        swarm.epoll.wait(&mut events, Some(until))?;
        let due: Vec<_> = events.iter().collect();
        for event in due {
            let index = event.token as usize;
            if kind == Kind::Mute && event.is_hangup() {
                swarm.reconnect(index)?;
            } else if (kind == Kind::Mute || !event.is_readable() || swarm.read(index)?)
                && event.is_writable()
                && kind != Kind::Idle
            {
                swarm.write(index)?;
            }
        }
    }
    let alive = swarm.members.iter().flatten().count();
    let Counts { opened, failed, sent, received, hangups } = swarm.counts;
    Ok(format!(
        "alive={alive} opened={opened} failed={failed} sent={sent} received={received} hangups={hangups}"
    ))
}

struct Swarm<'a> {
    path: &'a Path,
    kind: Kind,
    epoll: Epoll,
    members: Vec<Option<OwnedFd>>,
    /// Message that each member repeats.
    message: Vec<u8>,
    pidfd: OwnedFd,
    buffer: Vec<u8>,
    counts: Counts,
}

impl Swarm<'_> {
    fn new(path: &Path, count: usize, kind: Kind) -> io::Result<Swarm<'_>> {
        Ok(Swarm {
            path,
            kind,
            epoll: Epoll::new()?,
            members: (0..count).map(|_| None).collect(),
            message: message(kind),
            pidfd: crate::fd_passing::thread_pidfd(talea_os::Tid::current().as_raw())?,
            buffer: vec![0; MESSAGE_MAX],
            counts: Counts::default(),
        })
    }

    /// Connects a member and sends `Hello` without waiting for the reply, which the member reads
    /// like the others.
    fn open(&mut self, index: usize) -> io::Result<()> {
        let socket = match seqpacket::connect(self.path, PATIENCE) {
            Ok(socket) => socket,
            Err(error) => {
                self.counts.failed += 1;
                // A swarm that can't connect retries, but not faster than a connection takes.
                std::thread::sleep(Duration::from_millis(1));
                return match error.kind() {
                    io::ErrorKind::TimedOut => Err(error),
                    _ => Ok(()),
                };
            }
        };
        self.counts.opened += 1;
        rustix::io::ioctl_fionbio(&socket, true)?;
        if self.kind != Kind::Visit {
            let mut hello = [0; 64];
            let length = Request::Hello { min: VERSION, max: VERSION }.encode(1, &mut hello);
            let _ = seqpacket::send(&socket, &hello[..length], None);
            let interest = match self.kind {
                Kind::Idle | Kind::Guest => Interest::READ,
                Kind::Mute => Interest::WRITE,
                _ => Interest::READ_WRITE,
            };
            self.epoll.add(&socket, interest, index as u64)?;
        }
        self.members[index] = Some(socket);
        Ok(())
    }

    /// Receives one message; returns `false` if the connection was closed or does not exist.
    fn read(&mut self, index: usize) -> io::Result<bool> {
        let Some(socket) = &self.members[index] else { return Ok(false) };
        let received = seqpacket::recv(socket, &mut self.buffer);
        match received {
            Ok(received) if received.len > 0 => {
                self.counts.received += 1;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            _ => self.reconnect(index).map(|()| false),
        }
    }

    /// Counts a connection that the daemon has closed, and reopens it unless the member is a guest.
    fn reconnect(&mut self, index: usize) -> io::Result<()> {
        self.counts.hangups += 1;
        self.members[index] = None;
        if self.kind == Kind::Guest { Ok(()) } else { self.open(index) }
    }

    fn write(&mut self, index: usize) -> io::Result<()> {
        let Some(socket) = &self.members[index] else { return Ok(()) };
        let fd = (self.kind == Kind::Attach).then(|| self.pidfd.as_fd());
        match seqpacket::send(socket, &self.message, fd) {
            Ok(()) => self.counts.sent += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return self.reconnect(index),
        }
        Ok(())
    }
}

fn message(kind: Kind) -> Vec<u8> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let params = Params {
        period: Some(Span::from_ns(1_000_000_000)),
        priority: Some(Priority(1)),
        ..Params::default()
    };
    let task = Task { params, plugin: Name::new("rm"), owner: Owner::Session, ..Task::default() };
    let request = match kind {
        Kind::Create => Request::Create(task),
        Kind::Group => Request::CreateGroup(vec![task; GROUP_MAX]),
        Kind::Attach => Request::Attach { spec: SpecId(1), thread: ThreadRef::Pidfd },
        Kind::Garbage => {
            bytes.truncate(300);
            bytes.fill(0xA5);
            return bytes;
        }
        Kind::Status | Kind::Mute | Kind::Visit | Kind::Idle | Kind::Guest => Request::Status,
    };
    let length = request.encode(7, &mut bytes);
    bytes.truncate(length);
    bytes
}
