//! Deferred closing of descriptors that may block.
//!
//! A client can send any descriptor. Closing the last copy may block: for the peer of a lingering
//! TCP socket, for the process behind a file system, or for the release of gigabytes of memory. A
//! connection with unread messages may contain such descriptors. The event loop must not block, so
//! every descriptor except pidfds is closed by another thread.
//!
//! | state of a descriptor | transition | next state |
//! | --- | --- | --- |
//! | *open* | a pidfd, or a connection without unread messages | *closed* at once |
//! | *open* | any other descriptor: enqueue it and count it | *pending* |
//! | *pending* | a close thread drains and closes it | *closed*, counts decremented |
//!
//! Each descriptor is counted for its subject and in total. A subject with more than a quarter of
//! the maximum pending is *over limit*: its connections are not read. With more than half of the
//! maximum pending in total, so is each subject that has more than its part of this half. With more
//! than the maximum pending in total, only root can connect (module `accept`), and existing
//! connections are served: only clients that connect, send descriptors and leave get there. All end
//! when enough descriptors are closed.
//!
//! Threads are started on demand: a daemon with well-behaved clients has none. All pending
//! descriptors of one subject are in the queue of the same thread. A subject whose descriptors
//! block forever therefore blocks one thread, and delays only other subjects that send unrequested
//! descriptors.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use talea_core::mutate;
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, seqpacket};

/// Maximum number of close threads: if this many subjects have blocking descriptors, they delay the
/// others.
const THREADS: usize = 4;
/// Maximum number of pending descriptors; a quarter of them for each subject.
const MAX_PENDING: usize = 8192;

/// Maximum number of messages scanned before a connection is enqueued: a well-behaved client leaves
/// no more.
const MAX_MESSAGES_SCANNED: usize = 8;

/// A pending descriptor.
struct PendingClose {
    fd: OwnedFd,
    /// Whether this is a connection closed by the daemon, not a descriptor sent by a client.
    connection: bool,
    counts: [Arc<AtomicUsize>; 2],
}

/// A close thread and the number of its pending descriptors.
struct CloseThread {
    queue: Sender<PendingClose>,
    pending: Arc<AtomicUsize>,
}

/// Thread of a subject and the number of the subject's pending descriptors.
struct SubjectCloses {
    thread: usize,
    pending: Arc<AtomicUsize>,
}

/// The close threads, with the number of pending descriptors of each subject.
pub(super) struct DeferredClose {
    threads: Vec<CloseThread>,
    subjects: BTreeMap<u32, SubjectCloses>,
    /// Maximum number of pending descriptors in total.
    max_pending: usize,
}

impl DeferredClose {
    /// Creates an empty set. At most half of the daemon's descriptors may be pending.
    pub(super) fn new() -> DeferredClose {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let max_pending = limit.map_or(MAX_PENDING, |limit| MAX_PENDING.min(limit as usize / 2));
        DeferredClose { threads: Vec::new(), subjects: BTreeMap::new(), max_pending }
    }

    /// Closes a descriptor that a client of the subject has sent, directly or by a close thread.
    pub(super) fn discard(&mut self, subject: u32, fd: OwnedFd) {
        if mutate!("life-lingering-socket", !talea_os::thread::is_pidfd(&fd), false) {
            self.enqueue(subject, fd, false);
        }
    }

    /// Closes the connection of a client of the subject. The socket must not be watched any more.
    pub(super) fn hang_up(&mut self, subject: u32, socket: OwnedFd) {
        // After an error the content of the socket is unknown.
        if seqpacket::shutdown_and_drain(&socket, MAX_MESSAGES_SCANNED).unwrap_or(true) {
            self.enqueue(subject, socket, true);
        }
    }

    /// Whether too many descriptors of this subject are pending.
    #[inline]
    pub(super) fn is_subject_over_limit(&self, subject: u32) -> bool {
        self.subjects.get(&subject).is_some_and(|counted| self.is_over_part(counted))
    }

    #[cold]
    fn is_over_part(&self, counted: &SubjectCloses) -> bool {
        let pending = counted.pending.load(Ordering::Relaxed);
        let half = self.max_pending / 2;
        let over_part = self.total() > half && pending > half / self.subjects.len();
        pending > self.max_pending / 4 || mutate!("recovery-close-parts", over_part, false)
    }

    /// Whether too many descriptors are pending in total.
    pub(super) fn is_over_limit(&self) -> bool {
        self.total() > self.max_pending
    }

    fn total(&self) -> usize {
        self.threads.iter().map(|thread| thread.pending.load(Ordering::Relaxed)).sum()
    }

    fn enqueue(&mut self, subject: u32, fd: OwnedFd, connection: bool) {
        let Some(index) = self.thread_for(subject) else {
            // No thread can be started: the descriptor is closed here, even if that blocks.
            return;
        };
        let counted = self.subjects.get(&subject).expect("it was just inserted");
        let thread = &self.threads[index];
        let counts = [counted.pending.clone(), thread.pending.clone()];
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // The thread outlives this queue.
        let _ = thread.queue.send(PendingClose { fd, connection, counts });
    }

    /// Returns the thread for a subject: the one with its pending descriptors, else an idle one,
    /// else a new one, else the least loaded one. Returns `None` if no thread can be started.
    fn thread_for(&mut self, subject: u32) -> Option<usize> {
        let is_pending = |of: &SubjectCloses| of.pending.load(Ordering::Relaxed) > 0;
        if let Some(known) = self.subjects.get(&subject).filter(|known| is_pending(known)) {
            return Some(known.thread);
        }
        // Subjects without pending descriptors are removed, so the map stays small.
        self.subjects.retain(|_, known| is_pending(known));
        let pending = |index: &usize| self.threads[*index].pending.load(Ordering::Relaxed);
        let mut best = (0..self.threads.len()).min_by_key(pending);
        if self.threads.len() < THREADS
            && best.is_none_or(|index| pending(&index) > 0)
            && let Some(thread) = CloseThread::start()
        {
            best = Some(self.threads.len());
            self.threads.push(thread);
        }
        let thread = best?;
        self.subjects.insert(subject, SubjectCloses { thread, pending: Arc::default() });
        Some(thread)
    }
}

impl CloseThread {
    fn start() -> Option<CloseThread> {
        let (queue, todo) = channel::<PendingClose>();
        let thread = std::thread::Builder::new().name("closing".to_owned()).spawn(move || {
            // The daemon's real-time policy is not needed here: closing is not urgent.
            let _ = sched::set(Tid::current(), &Attr::plain(Policy::NORMAL));
            for PendingClose { fd, connection, counts } in todo {
                if connection {
                    drain(&fd);
                }
                close(fd);
                for count in counts {
                    count.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
        thread.ok()?;
        Some(CloseThread { queue, pending: Arc::default() })
    }
}

/// Receives the unread messages of a connection, so that each descriptor in them is closed like any
/// other.
fn drain(connection: &OwnedFd) {
    while seqpacket::shutdown_and_drain(connection, usize::MAX).unwrap_or(false) {
        match seqpacket::recv_all(connection, &mut [0; 1]) {
            Ok(received) => received.fd.into_iter().chain(received.surplus).for_each(close),
            Err(_) => break,
        }
    }
}

fn close(fd: OwnedFd) {
    // A lingering socket finishes in the background. For other descriptors this call fails without
    // effect.
    let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
    drop(fd);
}

#[cfg(test)]
mod tests {
    use super::{CloseThread, DeferredClose, SubjectCloses, channel};
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    /// Returns a set of at most 8,000 descriptors with these pending ones, by subject.
    fn with_pending(pending: &[(u32, usize)]) -> DeferredClose {
        let total = pending.iter().map(|&(_, count)| count).sum();
        let count = |count| Arc::new(AtomicUsize::new(count));
        let subjects = pending
            .iter()
            .map(|&(subject, of)| (subject, SubjectCloses { thread: 0, pending: count(of) }))
            .collect();
        let threads = vec![CloseThread { queue: channel().0, pending: count(total) }];
        DeferredClose { threads, subjects, max_pending: 8_000 }
    }

    #[test]
    fn subjects_with_many_pending_descriptors_stop_before_the_listeners() {
        let alone = with_pending(&[(1, 2_001), (2, 1_999)]);
        assert_eq!([1, 2, 3].map(|of| alone.is_subject_over_limit(of)), [true, false, false]);
        // 4 x 1,300 are more than half of the maximum; each of them has more than its part.
        let many = with_pending(&[(1, 1_300), (2, 1_300), (3, 1_300), (4, 1_300), (5, 10)]);
        let over = [1, 4, 5, 0].map(|of| many.is_subject_over_limit(of));
        assert_eq!(over, [true, true, false, false]);
        assert!(!many.is_over_limit());
        let few = with_pending(&[(1, 900), (2, 900), (3, 900), (4, 900), (5, 10)]);
        assert!((0..=5).all(|of| !few.is_subject_over_limit(of)));
    }
}
