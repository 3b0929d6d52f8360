//! Closing what may take its time.
//!
//! A client can send any descriptor, and whoever closes the last copy may have to wait: for the
//! peer of a TCP socket that lingers, for the program behind a file system, for gigabytes of memory
//! to be given back. A connection in which something lies unread may have such descriptors in it.
//! The loop must not be the one that waits, so what is no pidfd is closed here.
//!
//! Model: a few threads that do nothing else, started when they are needed for the first time; a
//! daemon whose clients behave has none. All that is one user's goes to the same thread, so a user
//! who makes it wait for ever keeps that one from others who send what nobody asked for, and nobody
//! else from anything.
//!
//! Bounds: a user of whom too much waits is not read from until it is done; when too much waits
//! altogether nobody new is let in, and whoever is connected is served.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use talea_core::mutate;
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, seqpacket};

/// Most threads that close: so many users who make theirs wait for ever delay the others.
const THREADS: usize = 4;
/// Most descriptors that may wait to be closed; a quarter of them for each user.
const MOST: usize = 8192;

/// Messages that are looked through before a connection is handed over: what an honest client can
/// have left.
const GLANCE: usize = 8;

/// One descriptor on its way out.
struct Leaving {
    fd: OwnedFd,
    /// A connection of ours that we have hung up on, not something that was sent to us.
    connection: bool,
    counts: [Arc<AtomicUsize>; 2],
}

/// A thread, and how much it has still to do.
struct Closer {
    work: Sender<Leaving>,
    waiting: Arc<AtomicUsize>,
}

/// Where a user's descriptors go, and how many of them wait.
struct Account {
    closer: usize,
    waiting: Arc<AtomicUsize>,
}

/// All that is being closed elsewhere.
pub(super) struct Closing {
    closers: Vec<Closer>,
    users: BTreeMap<u32, Account>,
    /// Most that may wait altogether.
    most: usize,
}

impl Closing {
    /// Nothing yet. At most half of our descriptors may wait to be closed.
    pub(super) fn new() -> Closing {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = limit.map_or(MOST, |limit| MOST.min(limit as usize / 2));
        Closing { closers: Vec::new(), users: BTreeMap::new(), most }
    }

    /// Closes a descriptor that came from a client of user `uid`, here or elsewhere.
    pub(super) fn discard(&mut self, uid: u32, fd: OwnedFd) {
        if mutate!("life-lingering-socket", !talea_os::thread::is_pidfd(&fd), false) {
            self.hand_over(uid, fd, false);
        }
    }

    /// Hangs up on a client of user `uid`. The socket must not be watched any more.
    pub(super) fn hang_up(&mut self, uid: u32, socket: OwnedFd) {
        // An error leaves in doubt what lies in it.
        if seqpacket::finish(&socket, GLANCE).unwrap_or(true) {
            self.hand_over(uid, socket, true);
        }
    }

    /// Whether so much of this user waits that nothing more is wanted from them.
    #[inline]
    pub(super) fn is_overrun_by(&self, uid: u32) -> bool {
        self.users
            .get(&uid)
            .is_some_and(|user| user.waiting.load(Ordering::Relaxed) > self.most / 4)
    }

    /// Whether so much waits altogether that nobody new is wanted.
    pub(super) fn is_overrun(&self) -> bool {
        self.closers.iter().map(|closer| closer.waiting.load(Ordering::Relaxed)).sum::<usize>()
            > self.most
    }

    fn hand_over(&mut self, uid: u32, fd: OwnedFd, connection: bool) {
        let Some(index) = self.closer_of(uid) else {
            // Not even a thread can be had: then it is closed here, for better or worse.
            return;
        };
        let user = self.users.get(&uid).expect("it was just entered");
        let closer = &self.closers[index];
        let counts = [user.waiting.clone(), closer.waiting.clone()];
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // The thread ends after us.
        let _ = closer.work.send(Leaving { fd, connection, counts });
    }

    /// The thread that closes for a user: the one that has something of theirs already, else the
    /// idlest, else a new one.
    fn closer_of(&mut self, uid: u32) -> Option<usize> {
        if let Some(user) = self.users.get(&uid)
            && user.waiting.load(Ordering::Relaxed) > 0
        {
            return Some(user.closer);
        }
        // Whoever has nothing left is forgotten: users come and go.
        self.users.retain(|_, user| user.waiting.load(Ordering::Relaxed) > 0);
        let waiting = |index: &usize| self.closers[*index].waiting.load(Ordering::Relaxed);
        let mut best = (0..self.closers.len()).min_by_key(waiting);
        if self.closers.len() < THREADS
            && best.is_none_or(|index| waiting(&index) > 0)
            && let Some(closer) = Closer::start()
        {
            best = Some(self.closers.len());
            self.closers.push(closer);
        }
        let closer = best?;
        self.users.insert(uid, Account { closer, waiting: Arc::default() });
        Some(closer)
    }
}

impl Closer {
    fn start() -> Option<Closer> {
        let (work, todo) = channel::<Leaving>();
        let thread = std::thread::Builder::new().name("closing".to_owned()).spawn(move || {
            // What the daemon is to others we are not: giving memory back is nobody's urgent
            // business.
            let _ = sched::set(Tid::current(), &Attr::plain(Policy::NORMAL));
            for Leaving { fd, connection, counts } in todo {
                if connection {
                    empty(&fd);
                }
                let_go(fd);
                for count in counts {
                    count.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
        thread.ok()?;
        Some(Closer { work, waiting: Arc::default() })
    }
}

/// Takes out what lies unread in a connection, so that each descriptor in it is let go like any
/// other.
fn empty(connection: &OwnedFd) {
    while seqpacket::finish(connection, usize::MAX).unwrap_or(false) {
        match seqpacket::recv_all(connection, &mut [0; 1]) {
            Ok(received) => received.fd.into_iter().chain(received.surplus).for_each(let_go),
            Err(_) => break,
        }
    }
}

fn let_go(fd: OwnedFd) {
    // A socket that would linger goes on by itself. What is no socket says so.
    let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
    drop(fd);
}
