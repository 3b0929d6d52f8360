//! Waits for many descriptors until an absolute time.
//!
//! `epoll_pwait2(2)` (Linux 5.11) takes nanoseconds. A wait that a signal, the freezer or a
//! debugger interrupts is continued to the same absolute time.

use crate::clock;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use talea_core::Monotonic;

/// Set of events to wait for. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(EventFlags);

impl Interest {
    /// Only errors and hang-ups.
    pub const NONE: Interest = Interest(EventFlags::empty());
    /// Data to read, or the peer closed its end.
    pub const READ: Interest = Interest(EventFlags::IN.union(EventFlags::RDHUP));
    /// Space to write.
    pub const WRITE: Interest = Interest(EventFlags::OUT);
    /// Data to read or space to write.
    pub const READ_WRITE: Interest = Interest(Interest::READ.0.union(Interest::WRITE.0));
    /// Edge-triggered variant of [`Interest::READ`]: reported on each arrival, not for as long as
    /// there is unread data. Data that is unread when the watch starts counts as arrived. Two
    /// arrivals between two waits are reported once.
    pub const ARRIVAL: Interest = Interest(Interest::READ.0.union(EventFlags::ET));
}

/// Descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Token passed to [`Epoll::add`].
    pub token: u64,
    flags: EventFlags,
}

impl Event {
    /// Whether reading does not block (also at the end of the stream).
    pub fn is_readable(self) -> bool {
        let end = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        self.flags.intersects(EventFlags::IN | end)
    }

    /// Whether writing does not block.
    pub fn is_writable(self) -> bool {
        self.flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR)
    }

    /// Whether the other end is closed, or the thread of a pidfd has ended.
    pub fn is_hangup(self) -> bool {
        self.flags.intersects(EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR)
    }
}

/// Buffer for the events of one wait. Its memory is allocated once.
pub struct Events {
    slots: Vec<epoll::Event>,
    ready: usize,
}

impl Events {
    /// Creates a buffer for at most `capacity` events per wait, at least one.
    pub fn with_capacity(capacity: usize) -> Events {
        let none = epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        Events { slots: vec![none; capacity.max(1)], ready: 0 }
    }

    /// Returns the event of the last wait if there was exactly one.
    #[inline]
    pub fn single(&self) -> Option<Event> {
        (self.ready == 1).then(|| self.iter().next()).flatten()
    }

    /// Iterates over the events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.slots[..self.ready]
            .iter()
            .map(|slot| Event { token: slot.data.u64(), flags: slot.flags })
    }
}

/// Set of watched descriptors, level-triggered except for [`Interest::ARRIVAL`].
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// Creates an empty set.
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches `fd` and reports it as `token`. Closing the last copy of `fd` ends the watch.
    pub fn add(&self, fd: impl AsFd, interest: Interest, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(token), interest.0)?)
    }

    /// Changes the interest and the token of `fd`.
    pub fn modify(&self, fd: impl AsFd, interest: Interest, token: u64) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, EventData::new_u64(token), interest.0)?)
    }

    /// Stops watching `fd`.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits until a descriptor is ready or `until` has passed (`None`: no time limit). Returns the
    /// number of events; 0 means that `until` has passed. With a time in the past the call is a
    /// poll.
    // Inlined for the reason that `seqpacket::recv` is.
    #[inline]
    pub fn wait(&self, events: &mut Events, until: Option<Monotonic>) -> io::Result<usize> {
        events.ready = 0;
        loop {
            let left =
                until.map(|until| clock::timespec_of_span(until.saturating_since(clock::now())));
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
