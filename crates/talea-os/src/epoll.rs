//! Waiting for many descriptors, until an absolute time.
//!
//! `epoll_pwait2(2)` (Linux 5.11) takes nanoseconds; a wait that a signal, the freezer or a debugger interrupts
//! is continued to the same absolute time.

use crate::clock;
use crate::sys::{check, check_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use talea_core::Time;

/// What to wait for. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Only errors and hang-ups.
    pub const NONE: Interest = Interest(0);
    /// Something to read, or the peer closed its end.
    pub const READ: Interest = Interest((libc::EPOLLIN | libc::EPOLLRDHUP) as u32);
    /// Room to write.
    pub const WRITE: Interest = Interest(libc::EPOLLOUT as u32);
    /// Both.
    pub const READ_WRITE: Interest = Interest(Interest::READ.0 | Interest::WRITE.0);
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number given when it was added.
    pub token: u64,
    bits: u32,
}

impl Event {
    /// Reading will not block (also at the end of the stream).
    pub fn is_readable(self) -> bool {
        self.bits & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    /// Writing will not block.
    pub fn is_writable(self) -> bool {
        self.bits & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    /// The other end is gone, or a pidfd's thread has ended.
    pub fn is_hangup(self) -> bool {
        self.bits & (libc::EPOLLHUP | libc::EPOLLRDHUP | libc::EPOLLERR) as u32 != 0
    }
}

/// Room for the events of one wait; allocated once.
pub struct Events {
    slots: Vec<libc::epoll_event>,
    ready: usize,
}

impl Events {
    /// At most `capacity` events a wait, at least one.
    pub fn with_capacity(capacity: usize) -> Events {
        Events { slots: vec![libc::epoll_event { events: 0, u64: 0 }; capacity.max(1)], ready: 0 }
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.slots[..self.ready].iter().map(|slot| Event { token: slot.u64, bits: slot.events })
    }
}

/// A set of watched descriptors, level triggered.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: takes an integer; a non-negative return is a fresh descriptor that nobody else owns.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: as above.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `fd`, reported as `token`. Closing the last copy of `fd` ends it.
    pub fn add(&self, fd: impl AsFd, interest: Interest, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_fd(), interest, token)
    }

    /// Changes what is watched.
    pub fn modify(&self, fd: impl AsFd, interest: Interest, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd.as_fd(), interest, token)
    }

    /// Stops watching.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd.as_fd(), Interest::NONE, 0)
    }

    fn control(&self, verb: i32, fd: BorrowedFd, interest: Interest, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.0, u64: token };
        // SAFETY: `event` is valid for the call; both descriptors are open while borrowed.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), verb, fd.as_raw_fd(), &raw mut event) })?;
        Ok(())
    }

    /// Waits until something is ready or the clock reaches `until` (`None`: for ever). Returns how many events
    /// there are; 0 means the time has come. A time that has passed makes it a poll.
    pub fn wait(&self, events: &mut Events, until: Option<Time>) -> io::Result<usize> {
        events.ready = 0;
        loop {
            let left = until.map(|until| {
                let now = clock::now();
                clock::timespec(Time::from_ns(until.as_ns().saturating_sub(now.as_ns())))
            });
            let timeout = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: `slots` has room for as many events as its length says; `timeout` is null or valid; no
            // signal mask is passed.
            let returned = check_long(unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    self.0.as_raw_fd(),
                    events.slots.as_mut_ptr(),
                    events.slots.len() as libc::c_int,
                    timeout,
                    std::ptr::null::<libc::sigset_t>(),
                    0usize,
                )
            });
            match returned {
                Ok(ready) => {
                    events.ready = ready as usize;
                    return Ok(events.ready);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
