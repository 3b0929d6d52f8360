//! Waiting for many descriptors, until an absolute time.
//!
//! `epoll_pwait2(2)` (Linux 5.11) takes nanoseconds; a wait that a signal, the freezer or a
//! debugger interrupts is continued to the same absolute time.

use crate::clock;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use talea_core::Time;

/// What to wait for. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(EventFlags);

impl Interest {
    /// Only errors and hang-ups.
    pub const NONE: Interest = Interest(EventFlags::empty());
    /// Something to read, or the peer closed its end.
    pub const READ: Interest = Interest(EventFlags::IN.union(EventFlags::RDHUP));
    /// Room to write.
    pub const WRITE: Interest = Interest(EventFlags::OUT);
    /// Both.
    pub const READ_WRITE: Interest = Interest(Interest::READ.0.union(Interest::WRITE.0));
    /// As [`Interest::READ`], but reported when something arrives and not as long as something is
    /// there (edge triggered). What is there when this is asked for counts as arrived; of two
    /// arrivals between two waits only one is reported.
    pub const ARRIVAL: Interest = Interest(Interest::READ.0.union(EventFlags::ET));
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number given when it was added.
    pub token: u64,
    flags: EventFlags,
}

impl Event {
    /// Reading will not block (also at the end of the stream).
    pub fn is_readable(self) -> bool {
        let end = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        self.flags.intersects(EventFlags::IN | end)
    }

    /// Writing will not block.
    pub fn is_writable(self) -> bool {
        self.flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR)
    }

    /// The other end is gone, or a pidfd's thread has ended.
    pub fn is_hangup(self) -> bool {
        self.flags.intersects(EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR)
    }
}

/// Room for the events of one wait; allocated once.
pub struct Events {
    slots: Vec<epoll::Event>,
    ready: usize,
}

impl Events {
    /// At most `capacity` events a wait, at least one.
    pub fn with_capacity(capacity: usize) -> Events {
        let none = epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        Events { slots: vec![none; capacity.max(1)], ready: 0 }
    }

    /// The event of the last wait, if it was the only one.
    #[inline]
    pub fn sole(&self) -> Option<Event> {
        (self.ready == 1).then(|| self.iter().next()).flatten()
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.slots[..self.ready]
            .iter()
            .map(|slot| Event { token: slot.data.u64(), flags: slot.flags })
    }
}

/// A set of watched descriptors, level triggered where not asked for arrivals.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches `fd`, reported as `token`. Closing the last copy of `fd` ends it.
    pub fn add(&self, fd: impl AsFd, interest: Interest, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(token), interest.0)?)
    }

    /// Changes what is watched.
    pub fn modify(&self, fd: impl AsFd, interest: Interest, token: u64) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, EventData::new_u64(token), interest.0)?)
    }

    /// Stops watching.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits until something is ready or the clock reaches `until` (`None`: for ever). Returns how
    /// many events there are; 0 means the time has come. A time that has passed makes it a poll.
    // Inlined for the reason that `seqpacket::recv` is.
    #[inline]
    pub fn wait(&self, events: &mut Events, until: Option<Time>) -> io::Result<usize> {
        events.ready = 0;
        loop {
            let left = until.map(|until| {
                let left = until.as_ns().saturating_sub(clock::now().as_ns());
                clock::timespec(Time::from_ns(left))
            });
            match epoll::wait(&self.0, &mut events.slots[..], left.as_ref()) {
                Ok(ready) => {
                    events.ready = ready;
                    return Ok(ready);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
