//! Queue of items from other threads for the event loop.
//!
//! The lock has priority inheritance, because an ordinary thread that adds an item may be preempted
//! for long. The receiver of a channel of the standard library waits in a loop for such a thread.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use talea_core::Monotonic;
use talea_os::clock;
use talea_os::pi_mutex::PiMutex;

/// Queue with a descriptor that is readable when an item was added.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    items: PiMutex<Vec<T>>,
    event: OwnedFd,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> io::Result<EventQueue<T>> {
        Ok(EventQueue { items: PiMutex::new(Vec::new()), event: event()? })
    }

    /// Adds an item.
    pub(crate) fn push(&self, item: T) {
        self.items.lock().push(item);
        notify(&self.event);
    }

    /// Returns the items that were added since the last call, oldest first.
    pub(crate) fn take(&self) -> Vec<T> {
        clear(&self.event);
        std::mem::take(&mut *self.items.lock())
    }

    /// Variant of [`EventQueue::take`] that waits for an item until `end`.
    pub(crate) fn take_until(&self, end: Monotonic) -> Vec<T> {
        // An error means that a signal handler has run.
        let _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], Some(&left(end)));
        self.take()
    }
}

impl<T> AsFd for EventQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Returns the time until `end`.
pub(crate) fn left(end: Monotonic) -> Timespec {
    let left = end.saturating_since(clock::now()).as_ns();
    Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 }
}

/// Creates an event descriptor.
pub(crate) fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes an event descriptor readable.
pub(crate) fn notify(event: &OwnedFd) {
    // A full counter is readable already.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Makes an event descriptor unreadable.
pub(crate) fn clear(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}
