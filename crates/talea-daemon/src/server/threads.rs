//! The threads and processes that the daemon holds by pidfd.
//!
//! Invariant: a thread is held from the request that named it until the broker forgets it, and its number
//! ([`ThreadId`]) is never given out again, so an effect that comes late finds nothing instead of a stranger.

use crate::convert;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use talea_broker::input::{Errno, ProcessId, ThreadError, ThreadFacts, ThreadId};
use talea_core::{Attr, Span, Time};
use talea_os::epoll::{Epoll, Interest};
use talea_os::thread::{Identity, Restored};
use talea_os::{ApplyError, OpenError, Snapshot, Thread, Tid};

use super::token::Token;

/// A held thread.
#[derive(Debug)]
struct Held {
    thread: Thread,
    /// All that the kernel knew when the thread was named; the broker keeps the part that it needs.
    before: Snapshot,
    watched: bool,
    /// Whether it has been given anything yet.
    touched: bool,
}

/// What became of an order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// This, now.
    Done(Result<(), Errno>),
    /// The thread would come to harm: the order must be given again at this time.
    NotBefore(Time),
}

/// A thread that has overdrawn a deadline budget is kept waiting so long, at most, for its next one.
const LONGEST_WAIT: Span = Span::from_ns(500_000_000);

/// All held threads.
#[derive(Debug, Default)]
pub(super) struct Threads {
    held: BTreeMap<ThreadId, Held>,
    last: u64,
}

impl Threads {
    /// Holds `thread` and tells what it is.
    pub(super) fn hold(&mut self, thread: Thread) -> Result<ThreadFacts, ThreadError> {
        let start = thread.start_ticks().map_err(|error| convert::thread_error(&error))?;
        let before = thread.snapshot().map_err(|error| match error {
            ApplyError::Gone => ThreadError::Gone,
            ref other => ThreadError::Kernel(convert::errno(other)),
        })?;
        self.last += 1;
        let id = ThreadId(self.last);
        let facts = ThreadFacts {
            thread: id,
            tid: thread.tid().as_raw() as u32,
            tgid: thread.tgid().as_raw() as u32,
            euid: thread.uids().effective,
            start,
            inode: thread.inode(),
            attr: convert::attr_of(&before),
        };
        self.held.insert(id, Held { thread, before, watched: false, touched: false });
        Ok(facts)
    }

    /// Holds the thread that a record of an earlier daemon names, if it still lives.
    pub(super) fn reopen(&mut self, tid: u32, inode: u64, start: u64) -> Option<ThreadFacts> {
        let tid = Tid::new(i32::try_from(tid).ok()?)?;
        let thread = Thread::reopen(&Identity { tid, inode, start_ticks: start }).ok()?;
        self.hold(thread).ok()
    }

    /// Has the end of the thread reported.
    pub(super) fn watch(&mut self, id: ThreadId, epoll: &Epoll) -> io::Result<()> {
        let Some(held) = self.held.get_mut(&id).filter(|held| !held.watched) else { return Ok(()) };
        epoll.add(&held.thread, Interest::READ, Token::Thread(id.0).pack())?;
        held.watched = true;
        Ok(())
    }

    /// The end has been reported: it is not again.
    pub(super) fn ended(&mut self, id: ThreadId, epoll: &Epoll) {
        if let Some(held) = self.held.get_mut(&id).filter(|held| held.watched) {
            held.watched = false;
            // Its descriptor is open, so this can't fail.
            let _ = epoll.remove(&held.thread);
        }
    }

    /// Closes what is held of the thread and ends watching it.
    ///
    /// Closing alone would not end it: the descriptor came from a client that may hold on to the same open file,
    /// and then its entry would stay in the set, to be reported for ever once the thread has ended.
    pub(super) fn forget(&mut self, id: ThreadId, epoll: &Epoll) {
        self.ended(id, epoll);
        self.held.remove(&id);
    }

    /// Gives the thread its attributes.
    ///
    /// Only a thread's first order may be put off: it is somebody's attach, and only they wait for it. While a
    /// change waits for the kernel nobody else is served, so a change is refused instead.
    pub(super) fn apply(&mut self, now: Time, id: ThreadId, attr: &Attr) -> Applied {
        let Some(held) = self.held.get_mut(&id) else { return Applied::Done(Err(GONE)) };
        match held.thread.apply(&convert::kernel_attr(attr), convert::affinity(attr)) {
            Ok(()) => {
                held.touched = true;
                Applied::Done(Ok(()))
            }
            Err(ApplyError::TooSoon { until })
                if !held.touched && until <= now.saturating_add(LONGEST_WAIT) =>
            {
                Applied::NotBefore(until)
            }
            Err(error) => Applied::Done(Err(convert::errno(&error))),
        }
    }

    /// Puts the thread back to `attr`; exactly, if that is what it was when it was named.
    pub(super) fn restore(&self, id: ThreadId, attr: &Attr) -> Result<Restored, Errno> {
        let held = self.held.get(&id).ok_or(GONE)?;
        let snapshot = if convert::attr_of(&held.before) == *attr {
            held.before
        } else {
            let now = held.thread.snapshot().map_err(|error| convert::errno(&error))?;
            let nice = match attr.policy {
                talea_core::Policy::Other { nice } | talea_core::Policy::Batch { nice } => nice.into(),
                // A hidden nice value is not in the record: what it has is the best guess.
                _ => now.nice,
            };
            let affinity = convert::affinity(attr).copied().unwrap_or(now.affinity);
            Snapshot { attr: convert::kernel_attr(attr), nice, affinity }
        };
        held.thread.restore(&snapshot).map_err(|error| convert::errno(&error))
    }
}

const GONE: Errno = Errno(3);

/// Processes whose end somebody wants to know.
#[derive(Debug, Default)]
pub(super) struct Processes {
    by_token: HashMap<u64, ProcessId>,
    held: HashMap<ProcessId, (u64, OwnedFd)>,
    /// Those that have ended, in order, and when that is passed on.
    departed: VecDeque<(Time, ProcessId)>,
    last: u64,
}

impl Processes {
    /// Has the end of `process` reported; `false` when it has ended already.
    pub(super) fn watch(&mut self, process: ProcessId, epoll: &Epoll) -> io::Result<bool> {
        if self.held.contains_key(&process) {
            return Ok(true);
        }
        let Some(fd) = open(process)? else { return Ok(false) };
        self.last += 1;
        epoll.add(fd.as_fd(), Interest::READ, Token::Process(self.last).pack())?;
        self.by_token.insert(self.last, process);
        self.held.insert(process, (self.last, fd));
        Ok(true)
    }

    /// A process has ended: it is not reported again, and its end is passed on at `due` unless it is forgotten before.
    pub(super) fn ended(&mut self, token: u64, due: Time, epoll: &Epoll) {
        let Some(process) = self.by_token.remove(&token) else { return };
        if let Some((_, fd)) = self.held.get(&process) {
            // In the set until now, so this can't fail.
            let _ = epoll.remove(fd);
        }
        self.departed.push_back((due, process));
    }

    /// When the next end is to be passed on.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.departed.front().map(|&(due, _)| due)
    }

    /// A process whose end is to be passed on now.
    pub(super) fn departed(&mut self, now: Time) -> Option<ProcessId> {
        while let Some((_, process)) = self.departed.pop_front_if(|&mut (due, _)| due <= now) {
            if self.held.remove(&process).is_some() {
                return Some(process);
            }
        }
        None
    }

    /// Closes what is held of the process, which also ends watching it.
    pub(super) fn forget(&mut self, process: ProcessId) {
        if let Some((token, _)) = self.held.remove(&process) {
            self.by_token.remove(&token);
        }
    }
}

/// Whether the process lives.
pub(super) fn is_alive(process: ProcessId) -> bool {
    matches!(open(process), Ok(Some(_)))
}

/// A pidfd of exactly this process; `None` when it has ended.
fn open(process: ProcessId) -> io::Result<Option<OwnedFd>> {
    let Some(tid) = i32::try_from(process.pid).ok().and_then(Tid::new) else { return Ok(None) };
    let pid = rustix::process::Pid::from_raw(tid.as_raw()).expect("a Tid is never zero");
    let fd = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(fd) => fd,
        // EINVAL, from Linux 6.9 ENOENT: the number belongs to a thread that is no process, so not to ours.
        Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    // The descriptor names whoever had the number: ours, if the start time read after it is right.
    match talea_os::proc::stat(tid) {
        Ok(stat) => Ok((stat.start_ticks == process.start && !stat.has_ended()).then_some(fd)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// As the broker hears it.
pub(super) fn not_found(error: &OpenError) -> ThreadError {
    convert::thread_error(error)
}
