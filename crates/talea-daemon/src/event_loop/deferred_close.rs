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
//! Each descriptor is counted for its user and in total. A user with more than a quarter of the
//! maximum pending is *over limit*: the user's connections are not read. With more than the maximum
//! pending in total, no connection is accepted and existing ones are served. Both end when enough
//! descriptors are closed.
//!
//! Threads are started on demand: a daemon with well-behaved clients has none. All pending
//! descriptors of one user are in the queue of the same thread. A user whose descriptors block
//! forever therefore blocks one thread, and delays only other users that send unrequested
//! descriptors.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use talea_core::mutate;
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, seqpacket};

/// Maximum number of close threads: if this many users have blocking descriptors, they delay the
/// others.
const THREADS: usize = 4;
/// Maximum number of pending descriptors; a quarter of them for each user.
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

/// Thread of a user and the number of the user's pending descriptors.
struct UserCloses {
    thread: usize,
    pending: Arc<AtomicUsize>,
}

/// The close threads, with the number of pending descriptors of each user.
pub(super) struct DeferredClose {
    threads: Vec<CloseThread>,
    users: BTreeMap<u32, UserCloses>,
    /// Maximum number of pending descriptors in total.
    max_pending: usize,
}

impl DeferredClose {
    /// Creates an empty set. At most half of the daemon's descriptors may be pending.
    pub(super) fn new() -> DeferredClose {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let max_pending = limit.map_or(MAX_PENDING, |limit| MAX_PENDING.min(limit as usize / 2));
        DeferredClose { threads: Vec::new(), users: BTreeMap::new(), max_pending }
    }

    /// Closes a descriptor that a client of user `uid` has sent, directly or by a close thread.
    pub(super) fn discard(&mut self, uid: u32, fd: OwnedFd) {
        if mutate!("life-lingering-socket", !talea_os::thread::is_pidfd(&fd), false) {
            self.enqueue(uid, fd, false);
        }
    }

    /// Closes the connection of a client of user `uid`. The socket must not be watched any more.
    pub(super) fn hang_up(&mut self, uid: u32, socket: OwnedFd) {
        // After an error the content of the socket is unknown.
        if seqpacket::shutdown_and_drain(&socket, MAX_MESSAGES_SCANNED).unwrap_or(true) {
            self.enqueue(uid, socket, true);
        }
    }

    /// Whether too many descriptors of this user are pending.
    #[inline]
    pub(super) fn is_user_over_limit(&self, uid: u32) -> bool {
        self.users
            .get(&uid)
            .is_some_and(|user| user.pending.load(Ordering::Relaxed) > self.max_pending / 4)
    }

    /// Whether too many descriptors are pending in total.
    pub(super) fn is_over_limit(&self) -> bool {
        self.threads.iter().map(|thread| thread.pending.load(Ordering::Relaxed)).sum::<usize>()
            > self.max_pending
    }

    fn enqueue(&mut self, uid: u32, fd: OwnedFd, connection: bool) {
        let Some(index) = self.thread_for(uid) else {
            // No thread can be started: the descriptor is closed here, even if that blocks.
            return;
        };
        let user = self.users.get(&uid).expect("it was just inserted");
        let thread = &self.threads[index];
        let counts = [user.pending.clone(), thread.pending.clone()];
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // The thread outlives this queue.
        let _ = thread.queue.send(PendingClose { fd, connection, counts });
    }

    /// Returns the thread for a user: the one with pending descriptors of this user, else an idle
    /// one, else a new one, else the least loaded one. Returns `None` if no thread can be started.
    fn thread_for(&mut self, uid: u32) -> Option<usize> {
        if let Some(user) = self.users.get(&uid)
            && user.pending.load(Ordering::Relaxed) > 0
        {
            return Some(user.thread);
        }
        // Users without pending descriptors are removed, so the map stays small.
        self.users.retain(|_, user| user.pending.load(Ordering::Relaxed) > 0);
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
        self.users.insert(uid, UserCloses { thread, pending: Arc::default() });
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
