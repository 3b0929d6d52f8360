//! The threads and processes that the daemon holds by pidfd.
//!
//! Invariant: a thread is held from the request that named it until the broker forgets it, and its
//! number ([`ThreadId`]) is never given out again, so an effect that comes late finds nothing
//! instead of a stranger.

use crate::convert;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use talea_broker::input::{Errno, ProcessId, ThreadError, ThreadFacts, ThreadId};
use talea_core::mutate;
use talea_core::{Attr, Span, Time};
use talea_os::epoll::{Epoll, Interest};
use talea_os::thread::{Identity, Restored, comes_of};
use talea_os::{ApplyError, OpenError, Snapshot, Thread, Tid, clock, sched};
use talea_proto::record::RecordThread;

use super::token::Token;

/// A held thread.
#[derive(Debug)]
struct Held {
    thread: Thread,
    /// All that the kernel knew when the thread was named; the broker keeps the part that it needs.
    before: Snapshot,
    watched: bool,
    /// Its period while it is in the deadline class by our doing.
    period: Option<Span>,
    /// Its effective user id when we looked last.
    euid: u32,
    /// What it has by our doing, or an earlier daemon's.
    given: Option<Attr>,
    /// What it had before that.
    previous: Attr,
}

/// What became of an order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// This, now.
    Done(Result<(), Errno>),
    /// The thread sleeps in another root domain; its CPUs are set, so that it is in the right one
    /// when it wakes.
    Asleep,
    /// The thread would come to harm: the order must be given again at this time.
    NotBefore(Time),
}

/// All held threads.
#[derive(Debug, Default)]
pub(super) struct Threads {
    // Boxed: each is half a kilobyte, which a map moves about.
    held: BTreeMap<ThreadId, Box<Held>>,
    last: u64,
    /// Who was looked at for the request that is being served: what was seen needs no second look.
    seen: Option<ThreadId>,
    /// When the kernel has forgotten the share of every deadline thread that has left.
    quiet_at: Option<Time>,
}

/// The period of a deadline policy.
fn period_of(policy: sched::Policy) -> Option<Span> {
    match policy {
        sched::Policy::Deadline { period, .. } => Some(period),
        _ => None,
    }
}

impl Threads {
    /// Whether a thread in the deadline class is in our care.
    pub(super) fn has_deadline(&self) -> bool {
        self.held.values().any(|held| held.period.is_some())
    }

    /// When the last deadline thread that has left is out of the kernel's books; `None` when none
    /// ever was in them.
    pub(super) fn quiet_at(&self) -> Option<Time> {
        self.quiet_at
    }

    /// A thread has left the deadline class, where it had this period.
    fn has_left(&mut self, period: Option<Span>) {
        if let Some(period) = period {
            self.quiet_at = self.quiet_at.max(Some(clock::now().saturating_add(period)));
        }
    }

    /// Holds `thread`, which somebody has named, and tells what it is. If it is given anything, it
    /// is seen then whether it has lived all the while.
    pub(super) fn hold_named(&mut self, thread: Thread) -> Result<ThreadFacts, ThreadError> {
        let before = thread.glimpse();
        self.hold(thread, before)
    }

    /// Holds `thread` and tells what it is.
    fn hold(
        &mut self,
        thread: Thread,
        before: Result<Snapshot, ApplyError>,
    ) -> Result<ThreadFacts, ThreadError> {
        // Three system calls and a page of text that an inode makes needless.
        let start = match thread.inode() {
            0 => thread.start_ticks().map_err(|error| convert::thread_error(&error))?,
            _ => 0,
        };
        let before = before.map_err(|error| match error {
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
        // A grant of an earlier daemon is in the class already.
        let period = period_of(before.attr.policy);
        let (euid, previous) = (facts.euid, facts.attr);
        let held = Held { thread, before, watched: false, period, euid, given: None, previous };
        self.held.insert(id, Box::new(held));
        self.seen = Some(id);
        Ok(facts)
    }

    /// A request has been served: what was seen for it may not be so any more.
    pub(super) fn look_again(&mut self) {
        self.seen = None;
    }

    /// Holds the thread that a record of an earlier daemon names, if it still lives.
    pub(super) fn reopen(&mut self, record: &RecordThread) -> Option<ThreadFacts> {
        let RecordThread { inode, start: start_ticks, given, previous, .. } = *record;
        let tid = Tid::new(i32::try_from(record.tid).ok()?)?;
        let thread = Thread::reopen(&Identity { tid, inode, start_ticks }).ok()?;
        let (own, old) = (convert::kernel_attr(&given), convert::kernel_attr(&previous));
        // If that fails it is put back, or to what the books say, with the others.
        if let Ok(true) = thread.finish_leaving(&own, &old) {
            self.has_left(period_of(own.policy));
        }
        let before = thread.snapshot();
        let facts = self.hold(thread, before).ok()?;
        self.look_again();
        let held = self.held.get_mut(&facts.thread).expect("it was just held");
        (held.given, held.previous) = (Some(given), previous);
        Some(facts)
    }

    /// Whose the thread is, if that is somebody else than when we looked last.
    pub(super) fn new_euid(&mut self, id: ThreadId) -> Option<u32> {
        let held = self.held.get_mut(&id)?;
        // One that has ended is nobody's: its end is reported as such.
        let euid = held.thread.uids_now().ok()?.effective;
        (std::mem::replace(&mut held.euid, euid) != euid).then_some(euid)
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
    /// Closing alone does not end it where the descriptor came from a client: that may hold on to
    /// the same open file, and then its entry would stay in the set, to be reported for ever once
    /// the thread has ended. (Nor where this process has forked and not started a program: it does
    /// not.)
    ///
    /// One that has ended may have left something behind: see [`Threads::disinherit`].
    pub(super) fn forget(
        &mut self,
        id: ThreadId,
        epoll: &Epoll,
    ) -> Option<Result<Restored, Errno>> {
        if self.held.get(&id)?.thread.is_shared() {
            self.ended(id, epoll);
        }
        let held = self.held.remove(&id)?;
        self.has_left(held.period);
        let given = held
            .given
            .filter(|_| held.thread.tid() != held.thread.tgid() && !held.thread.is_alive())?;
        self.disinherit(held.thread.tgid(), &given, &held.previous)
    }

    /// Takes away what an ended thread has left to another.
    ///
    /// A thread that starts a program (`execve`) takes the place of its process's main thread,
    /// number and all. To whoever watches it has ended; what it was given it keeps, and nobody has
    /// granted that to the main thread. `None` where nothing was left, else how the main thread, or
    /// whoever is in its place, was put back.
    pub(super) fn disinherit(
        &mut self,
        main: Tid,
        given: &Attr,
        previous: &Attr,
    ) -> Option<Result<Restored, Errno>> {
        let main = Thread::open(main).ok()?;
        let given = convert::kernel_attr(given).policy;
        let has = main.snapshot().ok()?.attr;
        if mutate!(
            "life-taken-along",
            !has.policy.is_realtime()
                || mutate!(
                    "life-taken-along-nudged",
                    !comes_of(&has.policy, &given),
                    has.policy != given
                ),
            previous.reset_on_fork || !has.policy.is_deadline()
        ) || !has.reset_on_fork
        {
            return None;
        }
        let held =
            self.held.values().find_map(|held| held.given.filter(|_| held.thread.is_same(&main)));
        match held {
            // It has a grant of its own, and exactly this was granted.
            Some(own) if convert::kernel_attr(&own).policy == has.policy => None,
            Some(own) => Some(
                main.apply(&convert::kernel_attr(&own), convert::affinity(&own))
                    .map(|()| Restored::Exactly)
                    .map_err(|error| convert::errno(&error)),
            ),
            None => Some(put_back(&main, previous)),
        }
    }

    /// Gives the thread its attributes.
    pub(super) fn apply(&mut self, id: ThreadId, attr: &Attr) -> Applied {
        let Some(held) = self.held.get_mut(&id) else { return Applied::Done(Err(GONE)) };
        let (cpus, kernel_attr) = (convert::affinity(attr), convert::kernel_attr(attr));
        // Once: from here on it has something else.
        let applied = match self.seen.take_if(|seen| *seen == id) {
            Some(_) => held.thread.apply_over(&held.before, &kernel_attr, cpus),
            None => held.thread.apply(&kernel_attr, cpus),
        };
        match applied {
            Ok(()) => {
                held.given = Some(*attr);
                let left = std::mem::replace(&mut held.period, period_of(kernel_attr.policy));
                self.has_left(left);
                Applied::Done(Ok(()))
            }
            // A time that never comes is a refusal.
            Err(ApplyError::TooSoon { until }) if until < Time::NEVER => Applied::NotBefore(until),
            Err(error @ ApplyError::Elsewhere { .. }) => {
                match cpus.map(|cpus| held.thread.pin(cpus)) {
                    Some(Ok(())) => Applied::Asleep,
                    Some(Err(error)) => Applied::Done(Err(convert::errno(&error))),
                    None => Applied::Done(Err(convert::errno(&error))),
                }
            }
            Err(error) => Applied::Done(Err(convert::errno(&error))),
        }
    }

    /// Puts the thread back to `attr`; exactly, if that is what it was when it was named.
    pub(super) fn restore(&mut self, id: ThreadId, attr: &Attr) -> Result<Restored, Errno> {
        let held = self.held.get_mut(&id).ok_or(GONE)?;
        let restored = if convert::attr_of(&held.before) == *attr {
            held.thread.restore(&held.before).map_err(|error| convert::errno(&error))?
        } else {
            put_back(&held.thread, attr)?
        };
        held.given = None;
        let left =
            std::mem::replace(&mut held.period, period_of(convert::kernel_attr(attr).policy));
        self.has_left(left);
        Ok(restored)
    }
}

/// Puts a thread back of which only the broker's part of its attributes is known.
fn put_back(thread: &Thread, attr: &Attr) -> Result<Restored, Errno> {
    let now = thread.snapshot().map_err(|error| convert::errno(&error))?;
    let nice = match attr.policy {
        talea_core::Policy::Other { nice } | talea_core::Policy::Batch { nice } => nice.into(),
        // A hidden nice value is not in the record: what it has is the best guess.
        _ => now.nice,
    };
    let affinity = convert::affinity(attr).copied().unwrap_or(now.affinity);
    let snapshot = Snapshot { attr: convert::kernel_attr(attr), nice, affinity };
    thread.restore(&snapshot).map_err(|error| convert::errno(&error))
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

    /// A process has ended: it is not reported again, and its end is passed on at `due` unless it
    /// is forgotten before.
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
        // EINVAL, from Linux 6.9 ENOENT: the number belongs to a thread that is no process, so not
        // to ours.
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
