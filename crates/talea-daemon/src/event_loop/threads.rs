//! Threads and processes that the daemon holds by pidfd.
//!
//! Invariant: a thread is held from the request that named it until the broker forgets it. Its
//! number ([`ThreadId`]) is never reused, so a late effect finds no thread instead of a different
//! one.

use crate::convert;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use talea_broker::input::{Errno, ProcessId, ThreadError, ThreadFacts, ThreadId};
use talea_core::mutate;
use talea_core::{Attr, Monotonic, Span};
use talea_os::epoll::{Epoll, Interest};
use talea_os::thread::{Identity, Restored, is_same_or_nudged};
use talea_os::{ApplyError, OpenError, Snapshot, Thread, Tid, clock, sched};
use talea_proto::record::RecordThread;

use super::token::Token;

/// A held thread.
#[derive(Debug)]
struct HeldThread {
    thread: Thread,
    /// Complete attributes when the thread was named; the broker keeps the part that it needs.
    snapshot: Snapshot,
    watched: bool,
    /// Period of the thread while it is in the deadline class under a grant.
    period: Option<Span>,
    /// Last known effective user id.
    euid: u32,
    /// Attributes applied by this daemon or an earlier one.
    applied: Option<Attr>,
    /// Attributes before the grant.
    previous: Attr,
}

/// Result of an apply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApplyOutcome {
    /// The kernel accepted or refused the attributes.
    Done(Result<(), Errno>),
    /// The thread sleeps in another root domain. Its CPUs are set, so it is in the right domain
    /// when it wakes.
    PendingWakeup,
    /// The thread has overrun a deadline budget: apply must be repeated at this time.
    NotBefore(Monotonic),
}

/// All held threads.
#[derive(Debug, Default)]
pub(super) struct Threads {
    // Boxed: each entry has half a kilobyte, which the map would move.
    held: BTreeMap<ThreadId, Box<HeldThread>>,
    last: u64,
    /// Thread whose attributes were read for the current request: they need not be read again.
    fresh: Option<ThreadId>,
    /// Time at which the kernel has released the bandwidth of every deadline thread that has left.
    dl_free_at: Option<Monotonic>,
}

/// Returns the period of a deadline policy.
fn period_of(policy: sched::Policy) -> Option<Span> {
    match policy {
        sched::Policy::Deadline { period, .. } => Some(period),
        _ => None,
    }
}

impl Threads {
    /// Whether a held thread is in the deadline class.
    pub(super) fn has_deadline(&self) -> bool {
        self.held.values().any(|held| held.period.is_some())
    }

    /// Returns the time at which the last departed deadline thread leaves the kernel's bandwidth
    /// accounting; `None` if there was none.
    pub(super) fn dl_free_at(&self) -> Option<Monotonic> {
        self.dl_free_at
    }

    /// Records that a thread with this period has left the deadline class.
    fn note_deadline_exit(&mut self, period: Option<Span>) {
        if let Some(period) = period {
            self.dl_free_at = self.dl_free_at.max(Some(clock::now().saturating_add(period)));
        }
    }

    /// Holds `thread`, named by a request, and returns its attributes. Its identity is checked when
    /// attributes are applied to it.
    pub(super) fn hold_for_request(&mut self, thread: Thread) -> Result<ThreadFacts, ThreadError> {
        let before = thread.snapshot_unchecked();
        self.hold(thread, before)
    }

    /// Holds `thread` and returns its attributes.
    fn hold(
        &mut self,
        thread: Thread,
        before: Result<Snapshot, ApplyError>,
    ) -> Result<ThreadFacts, ThreadError> {
        // With an inode, the start time is not needed; it would cost three system calls and a page
        // of text.
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
        // A grant of an earlier daemon may already be in the deadline class.
        let period = period_of(before.attr.policy);
        let (euid, previous) = (facts.euid, facts.attr);
        let held = HeldThread {
            thread,
            snapshot: before,
            watched: false,
            period,
            euid,
            applied: None,
            previous,
        };
        self.held.insert(id, Box::new(held));
        self.fresh = Some(id);
        Ok(facts)
    }

    /// Marks the end of a request: attributes that were read for it may be outdated.
    pub(super) fn clear_fresh(&mut self) {
        self.fresh = None;
    }

    /// Holds the thread of an earlier daemon's record, if it still exists.
    pub(super) fn reopen(&mut self, record: &RecordThread) -> Option<ThreadFacts> {
        let RecordThread { inode, start: start_ticks, applied, previous, .. } = *record;
        let tid = Tid::new(i32::try_from(record.tid).ok()?)?;
        let thread = Thread::reopen(&Identity { tid, inode, start_ticks }).ok()?;
        let (own, old) = (convert::kernel_attr(&applied), convert::kernel_attr(&previous));
        // If this fails, the thread is restored or updated with the others.
        if let Ok(true) = thread.finish_deadline_exit(&own, &old) {
            self.note_deadline_exit(period_of(own.policy));
        }
        let before = thread.snapshot();
        let facts = self.hold(thread, before).ok()?;
        self.clear_fresh();
        let held = self.held.get_mut(&facts.thread).expect("it was just held");
        (held.applied, held.previous) = (Some(applied), previous);
        Some(facts)
    }

    /// Returns the thread's effective user id if it has changed since the last check.
    pub(super) fn changed_euid(&mut self, id: ThreadId) -> Option<u32> {
        let held = self.held.get_mut(&id)?;
        // The exit of a thread is reported separately.
        let euid = held.thread.uids_now().ok()?.effective;
        (std::mem::replace(&mut held.euid, euid) != euid).then_some(euid)
    }

    /// Watches for the thread's exit.
    pub(super) fn watch(&mut self, id: ThreadId, epoll: &Epoll) -> io::Result<()> {
        let Some(held) = self.held.get_mut(&id).filter(|held| !held.watched) else { return Ok(()) };
        epoll.add(&held.thread, Interest::READ, Token::Thread(id.0).pack())?;
        held.watched = true;
        Ok(())
    }

    /// Stops watching a thread whose exit has been reported.
    pub(super) fn ended(&mut self, id: ThreadId, epoll: &Epoll) {
        if let Some(held) = self.held.get_mut(&id).filter(|held| held.watched) {
            held.watched = false;
            // The descriptor is open, so this cannot fail.
            let _ = epoll.remove(&held.thread);
        }
    }

    /// Closes the handle of the thread and stops watching it.
    ///
    /// Closing alone does not remove a client's descriptor from the epoll set: the client may hold
    /// the same open file. Then the entry would be reported forever after the thread's exit. (The
    /// same holds after a fork without exec, which this process does not do.)
    ///
    /// An exited thread may have passed its attributes on: see [`Threads::revoke_inherited`].
    pub(super) fn forget(
        &mut self,
        id: ThreadId,
        epoll: &Epoll,
    ) -> Option<Result<Restored, Errno>> {
        if self.held.get(&id)?.thread.is_shared() {
            self.ended(id, epoll);
        }
        let held = self.held.remove(&id)?;
        self.note_deadline_exit(held.period);
        let applied = held
            .applied
            .filter(|_| held.thread.tid() != held.thread.tgid() && !held.thread.is_alive())?;
        self.revoke_inherited(held.thread.tgid(), &applied, &held.previous)
    }

    /// Revokes attributes that an exited thread has passed to its process's main thread.
    ///
    /// A thread that executes a program (`execve`) replaces its process's main thread and takes
    /// over its id. A watcher sees an exit, but the attributes are kept, without a grant for the
    /// main thread. Returns `None` if there was nothing to revoke, else the result of restoring the
    /// main thread (or the thread that now has its id).
    pub(super) fn revoke_inherited(
        &mut self,
        main: Tid,
        applied: &Attr,
        previous: &Attr,
    ) -> Option<Result<Restored, Errno>> {
        let main = Thread::open(main).ok()?;
        let applied = convert::kernel_attr(applied).policy;
        let has = main.snapshot().ok()?.attr;
        if mutate!(
            "life-taken-along",
            !has.policy.is_realtime()
                || mutate!(
                    "life-taken-along-nudged",
                    !is_same_or_nudged(&has.policy, &applied),
                    has.policy != applied
                ),
            previous.reset_on_fork || !has.policy.is_deadline()
        ) || !has.reset_on_fork
        {
            return None;
        }
        let held =
            self.held.values().find_map(|held| held.applied.filter(|_| held.thread.is_same(&main)));
        match held {
            // The main thread has a grant of its own with exactly these attributes.
            Some(own) if convert::kernel_attr(&own).policy == has.policy => None,
            Some(own) => Some(
                main.apply(&convert::kernel_attr(&own), convert::affinity(&own))
                    .map(|()| Restored::Exactly)
                    .map_err(|error| convert::errno(&error)),
            ),
            None => Some(restore_known_part(&main, previous)),
        }
    }

    /// Applies attributes to the thread.
    pub(super) fn apply(&mut self, id: ThreadId, attr: &Attr) -> ApplyOutcome {
        let Some(held) = self.held.get_mut(&id) else { return ApplyOutcome::Done(Err(ESRCH)) };
        let (cpus, kernel_attr) = (convert::affinity(attr), convert::kernel_attr(attr));
        // Only once: after this call the attributes are different.
        let applied = match self.fresh.take_if(|fresh| *fresh == id) {
            Some(_) => held.thread.apply_over(&held.snapshot, &kernel_attr, cpus),
            None => held.thread.apply(&kernel_attr, cpus),
        };
        match applied {
            Ok(()) => {
                held.applied = Some(*attr);
                let left = std::mem::replace(&mut held.period, period_of(kernel_attr.policy));
                self.note_deadline_exit(left);
                ApplyOutcome::Done(Ok(()))
            }
            // An infinite wait is a refusal.
            Err(ApplyError::OverrunDebt { until }) if until < Monotonic::NEVER => {
                ApplyOutcome::NotBefore(until)
            }
            Err(error @ ApplyError::OtherRootDomain { .. }) => {
                match cpus.map(|cpus| held.thread.pin(cpus)) {
                    Some(Ok(())) => ApplyOutcome::PendingWakeup,
                    Some(Err(error)) => ApplyOutcome::Done(Err(convert::errno(&error))),
                    None => ApplyOutcome::Done(Err(convert::errno(&error))),
                }
            }
            Err(error) => ApplyOutcome::Done(Err(convert::errno(&error))),
        }
    }

    /// Restores the thread to `attr`; exactly, if these are its attributes when it was named.
    pub(super) fn restore(&mut self, id: ThreadId, attr: &Attr) -> Result<Restored, Errno> {
        let held = self.held.get_mut(&id).ok_or(ESRCH)?;
        let restored = if convert::attr_of(&held.snapshot) == *attr {
            held.thread.restore(&held.snapshot).map_err(|error| convert::errno(&error))?
        } else {
            restore_known_part(&held.thread, attr)?
        };
        held.applied = None;
        let left =
            std::mem::replace(&mut held.period, period_of(convert::kernel_attr(attr).policy));
        self.note_deadline_exit(left);
        Ok(restored)
    }
}

/// Restores a thread of which only the broker's part of the attributes is known.
fn restore_known_part(thread: &Thread, attr: &Attr) -> Result<Restored, Errno> {
    let now = thread.snapshot().map_err(|error| convert::errno(&error))?;
    let nice = match attr.policy {
        talea_core::Policy::Other { nice } | talea_core::Policy::Batch { nice } => nice.into(),
        // The record does not contain a hidden nice value: the current one is the best estimate.
        _ => now.nice,
    };
    let affinity = convert::affinity(attr).copied().unwrap_or(now.affinity);
    let snapshot = Snapshot { attr: convert::kernel_attr(attr), nice, affinity };
    thread.restore(&snapshot).map_err(|error| convert::errno(&error))
}

const ESRCH: Errno = Errno(3);

/// Watched processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    by_token: HashMap<u64, ProcessId>,
    held: HashMap<ProcessId, (u64, OwnedFd)>,
    /// Exited processes, in order, with the time at which the broker is informed.
    exited: VecDeque<(Monotonic, ProcessId)>,
    last: u64,
}

impl Processes {
    /// Watches for the exit of `process`; `false` if it has already exited.
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

    /// Records the exit of a process. The broker is informed at `due` unless the process is
    /// forgotten before.
    pub(super) fn ended(&mut self, token: u64, due: Monotonic, epoll: &Epoll) {
        let Some(process) = self.by_token.remove(&token) else { return };
        if let Some((_, fd)) = self.held.get(&process) {
            // The descriptor was in the set until now, so this cannot fail.
            let _ = epoll.remove(fd);
        }
        self.exited.push_back((due, process));
    }

    /// Returns the time at which the broker is informed of the next exit.
    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.exited.front().map(|&(due, _)| due)
    }

    /// Returns a process whose exit the broker must be informed of now.
    pub(super) fn next_exited(&mut self, now: Monotonic) -> Option<ProcessId> {
        while let Some((_, process)) = self.exited.pop_front_if(|&mut (due, _)| due <= now) {
            if self.held.remove(&process).is_some() {
                return Some(process);
            }
        }
        None
    }

    /// Closes the handle of the process, which also stops watching it.
    pub(super) fn forget(&mut self, process: ProcessId) {
        if let Some((token, _)) = self.held.remove(&process) {
            self.by_token.remove(&token);
        }
    }
}

/// Whether the process exists.
pub(super) fn is_alive(process: ProcessId) -> bool {
    matches!(open(process), Ok(Some(_)))
}

/// Opens a pidfd of exactly this process; `None` if it has exited.
fn open(process: ProcessId) -> io::Result<Option<OwnedFd>> {
    let Some(tid) = i32::try_from(process.pid).ok().and_then(Tid::new) else { return Ok(None) };
    let pid = rustix::process::Pid::from_raw(tid.as_raw()).expect("a Tid is never zero");
    let fd = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(fd) => fd,
        // EINVAL, from Linux 6.9 ENOENT: the id belongs to a thread that is not a main thread, so
        // it is not this process.
        Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    // The descriptor refers to the process that had the id at the call. It is the right one if the
    // start time, read afterwards, matches.
    match talea_os::proc::stat(tid) {
        Ok(stat) => Ok((stat.start_ticks == process.start && !stat.has_ended()).then_some(fd)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the error for the broker.
pub(super) fn not_found(error: &OpenError) -> ThreadError {
    convert::thread_error(error)
}
