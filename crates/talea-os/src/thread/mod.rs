//! One thread, held so that no other can be mistaken for it.
//!
//! Model: a [`Thread`] owns a `PIDFD_THREAD` pidfd. The scheduling calls take a bare number, so
//! each is guarded: a look at the thread itself, the calls, a look. Between two looks that both
//! find it the number belongs to the thread. A look asks the pidfd, or reads a file of `/proc` that
//! was opened before.
//!
//! Kernels before 6.9 have no thread pidfds. There a process pidfd watches the process, and the
//! thread's start time, read before and after, tells it from a later one ([`Method::StartTime`]). A
//! thread's own end is then not an event: only its process's is.
//!
//! Absent on purpose: configuring kernel threads. They belong to the machine, not to a client.

mod apply;
pub mod debts;
mod errors;
mod leave;
mod pidfd;
mod schedclock;
mod snapshot;
#[cfg(test)]
mod tests;

pub use apply::Restored;
pub use errors::{ApplyError, OpenError, Step};
pub use leave::{comes_of, descriptors_kept};
pub(crate) use pidfd::{has_thread_pidfds, ns_tids, open_process};
pub use snapshot::Snapshot;
use talea_core::mutate;

use crate::Tid;
use crate::proc::{self, Uids};
use crate::sys::is;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// How a thread is told from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A pidfd of the thread itself (Linux 6.9 and later).
    Pidfd,
    /// A pidfd of its process, and the thread's start time.
    StartTime,
}

/// Whether a descriptor is a pidfd, which never keeps whoever closes it waiting.
pub fn is_pidfd(fd: impl AsFd) -> bool {
    pidfd::is_pidfd(fd.as_fd())
}

/// A thread that may have ended but is never another one.
#[derive(Debug)]
pub struct Thread {
    fd: OwnedFd,
    tid: Tid,
    tgid: Tid,
    uids: Uids,
    inode: u64,
    /// Start time where it is the guard.
    start: Option<u64>,
    /// Whether its descriptor came from somebody who may have kept a copy.
    shared: bool,
    /// What it had run when we last gave it a deadline policy, while it has it.
    entered: Mutex<Option<leave::Entered>>,
}

/// What names a thread across a restart of ours, within one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub tid: Tid,
    /// Inode of its pidfd, unique for the boot; 0 on kernels before 6.9.
    pub inode: u64,
    /// Start time in clock ticks since boot; 0: not known, the inode tells.
    pub start_ticks: u64,
}

impl Thread {
    /// Holds the thread that has this number now. A process is meant by its main thread.
    pub fn open(tid: Tid) -> Result<Thread, OpenError> {
        Thread::numbered(tid)?.living()
    }

    /// As [`Thread::open`] for who asks the thread something next, and is told then that it has
    /// ended.
    pub fn numbered(tid: Tid) -> Result<Thread, OpenError> {
        match Thread::numbered_by(tid, Method::Pidfd) {
            Err(OpenError::Os(error)) if is(&error, libc::EINVAL) => {
                Thread::numbered_by(tid, Method::StartTime)
            }
            other => other,
        }
    }

    /// As [`Thread::open`], with a chosen method. `EINVAL` where the kernel does not have it.
    pub fn open_by(tid: Tid, method: Method) -> Result<Thread, OpenError> {
        Thread::numbered_by(tid, method)?.living()
    }

    /// The number and the facts are read one after the other: they are one thread's only if it
    /// still lives.
    fn living(self) -> Result<Thread, OpenError> {
        if self.is_alive() { Ok(self) } else { Err(OpenError::Gone) }
    }

    fn numbered_by(tid: Tid, method: Method) -> Result<Thread, OpenError> {
        match method {
            Method::Pidfd => {
                let fd = pidfd::open_thread(tid)?;
                let (told, inode) = (pidfd::told(fd.as_fd())?, pidfd::inode(fd.as_fd())?);
                Thread::new(fd, told, inode, None)
            }
            Method::StartTime => {
                let told = pidfd::read(tid)?;
                let start = proc::stat(tid)?.start_ticks;
                let fd = pidfd::open_process(told.tgid)?;
                Thread::new(fd, told, 0, Some(start))
            }
        }
    }

    /// Holds the thread that a received descriptor names. A process pidfd names the main thread.
    ///
    /// Anything can be received over a socket: what is no pidfd is given back untouched.
    pub fn from_fd(fd: OwnedFd) -> Result<Thread, OpenError> {
        Thread::named_by(fd)?.living()
    }

    /// As [`Thread::from_fd`] for who asks the thread something next, and is told then that it has
    /// ended.
    pub fn named_by(fd: OwnedFd) -> Result<Thread, OpenError> {
        if !pidfd::is_pidfd(fd.as_fd()) {
            return Err(OpenError::NotAPidfd(fd));
        }
        let inode = pidfd::inode(fd.as_fd())?;
        let told = pidfd::told(fd.as_fd())?;
        if pidfd::names_thread(fd.as_fd())? {
            return Ok(Thread { shared: true, ..Thread::new(fd, told, inode, None)? });
        }
        let own = Thread::open(told.tid)?;
        // While the sender's descriptor is alive its number is not given out again, so ours names
        // the same.
        if pidfd::is_alive(fd.as_fd()) { Ok(own) } else { Err(OpenError::Gone) }
    }

    /// Holds the thread that was written down earlier in this boot, if it still lives.
    pub fn reopen(identity: &Identity) -> Result<Thread, OpenError> {
        let thread = Thread::open(identity.tid)?;
        let unread = identity.inode != 0 && identity.start_ticks == 0;
        let same = mutate!(
            "recovery-thread-identity",
            thread.inode == identity.inode
                && (unread || thread.start_ticks()? == identity.start_ticks),
            unread || thread.inode > 0
        );
        match (same, thread.is_alive()) {
            (_, false) => Err(OpenError::Gone),
            (true, true) => Ok(thread),
            (false, true) => Err(OpenError::Another),
        }
    }

    fn new(
        fd: OwnedFd,
        told: pidfd::Told,
        inode: u64,
        start: Option<u64>,
    ) -> Result<Thread, OpenError> {
        const KTHREADD: i32 = 2;
        // Kernel threads are children of kthreadd, but so are programs that the kernel starts, and
        // in a PID namespace 2 is anybody: only the flags decide.
        if (told.parent == KTHREADD || told.tid.as_raw() == KTHREADD)
            && proc::stat(told.tid)?.is_kernel_thread()
        {
            return Err(OpenError::KernelThread);
        }
        Ok(Thread {
            fd,
            tid: told.tid,
            tgid: told.tgid,
            uids: told.uids,
            inode,
            start,
            shared: false,
            entered: Mutex::new(None),
        })
    }

    /// Its number.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Its process, by the main thread, when it was opened.
    pub fn tgid(&self) -> Tid {
        self.tgid
    }

    /// Whose it was when it was opened. For a decision about rights ask [`Thread::uids_now`].
    pub fn uids(&self) -> Uids {
        self.uids
    }

    /// Inode of its pidfd: unique for this boot, 0 on kernels before 6.9.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// As whom it may owe something to its deadline reservation.
    fn debtor(&self) -> debts::Debtor {
        // Where pidfds have no inode of their own.
        let start = if self.inode == 0 { self.start_ticks().unwrap_or(0) } else { 0 };
        debts::Debtor {
            process: self.tgid,
            tid: self.tid,
            mark: debts::Mark { inode: self.inode, start },
        }
    }

    /// What tells its main thread from that of a later process; nothing where that can't be looked
    /// at.
    fn main_mark(&self) -> debts::Mark {
        if self.tid == self.tgid {
            return self.debtor().mark;
        }
        match Thread::open(self.tgid) {
            Ok(main) if main.tgid == self.tgid => main.debtor().mark,
            _ => debts::Mark::default(),
        }
    }

    /// Whether its descriptor came from somebody who may have kept a copy: then closing it does not
    /// end watching it.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// How it is told from a later one.
    pub fn method(&self) -> Method {
        if self.start.is_some() { Method::StartTime } else { Method::Pidfd }
    }

    /// Whether it has not ended.
    ///
    /// A main thread that ended before the others may count as alive until they end (Linux 6.15 and
    /// later).
    pub fn is_alive(&self) -> bool {
        pidfd::is_alive(self.fd.as_fd())
            && self.start.is_none_or(|start| {
                proc::stat(self.tid)
                    .is_ok_and(|stat| stat.start_ticks == start && !stat.has_ended())
            })
    }

    /// Whose it is now: credentials change with `setresuid` and set-user-id programs.
    pub fn uids_now(&self) -> Result<Uids, OpenError> {
        let uids = match self.method() {
            Method::Pidfd => pidfd::told(self.fd.as_fd())?.uids,
            Method::StartTime => pidfd::read(self.tid)?.uids,
        };
        if self.is_alive() { Ok(uids) } else { Err(OpenError::Gone) }
    }

    /// Start time in clock ticks since boot.
    pub fn start_ticks(&self) -> Result<u64, OpenError> {
        let start = match self.start {
            Some(start) => start,
            None => proc::stat_of(self.tgid, self.tid)?.start_ticks,
        };
        if self.is_alive() { Ok(start) } else { Err(OpenError::Gone) }
    }

    /// What to write down to find it again with [`Thread::reopen`].
    pub fn identity(&self) -> Result<Identity, OpenError> {
        Ok(Identity { tid: self.tid, inode: self.inode, start_ticks: self.start_ticks()? })
    }

    /// Whether both hold the same thread.
    pub fn is_same(&self, other: &Thread) -> bool {
        self.tid == other.tid && self.inode == other.inode && self.start == other.start
            // Without an inode each two handles of one number agree only while both live.
            && (self.inode != 0 || (self.is_alive() && other.is_alive()))
    }

    /// Sends a signal: to the thread, or with [`Method::StartTime`] to its process.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        pidfd::signal(&self.fd, number)
    }
}

/// Becomes readable when the thread (with [`Method::StartTime`]: its process) ends; for `epoll` and
/// for passing it over a socket.
impl AsFd for Thread {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
