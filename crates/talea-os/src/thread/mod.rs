//! Handle to one thread that can never refer to a later thread with the same number.
//!
//! Model: a [`Thread`] owns a `PIDFD_THREAD` pidfd. The scheduling calls take a bare number, so
//! they are guarded: a check of the thread itself, the calls, another check. Between two successful
//! checks the number belongs to the thread. A check polls the pidfd, or reads a file of `/proc`
//! that was opened before.
//!
//! Kernels before 6.9 have no thread pidfds. There a process pidfd watches the process, and the
//! thread's start time, read before and after, distinguishes it from a later one
//! ([`Method::StartTime`]). The end of such a thread is not an event: only that of its process is.
//!
//! Absent on purpose: configuring kernel threads. They belong to the machine, not to a client.

mod apply;
mod deadline_exit;
pub mod dl_overruns;
mod errors;
mod key;
mod pidfd;
mod run_count;
mod sched_clock;
mod snapshot;
#[cfg(test)]
mod tests;
mod timer_slack;

pub use apply::Restored;
pub use deadline_exit::is_same_or_nudged;
pub use errors::{ApplyError, ApplyStep, OpenError};
pub(crate) use pidfd::{
    has_thread_pidfds, is_alive as is_process_alive, ns_tids, open_process,
    signal as signal_process,
};
pub use run_count::max_open_readers;
pub use snapshot::Snapshot;

use crate::Tid;
use crate::proc::{self, Uids};
use crate::sys::is;
use key::{ThreadIncarnation, ThreadKey};
use run_count::ExecAtEntry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use talea_core::mutate;

/// Method by which a thread is distinguished from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Pidfd of the thread itself (Linux 6.9 and later).
    Pidfd,
    /// Pidfd of the thread's process, with the thread's start time.
    StartTime,
}

/// Whether a descriptor is a pidfd. Closing a pidfd never blocks.
pub fn is_pidfd(fd: impl AsFd) -> bool {
    pidfd::is_pidfd(fd.as_fd())
}

/// Handle to a thread. The thread may have ended, but the handle never refers to another thread.
#[derive(Debug)]
pub struct Thread {
    fd: OwnedFd,
    tid: Tid,
    tgid: Tid,
    uids: Uids,
    inode: u64,
    /// Start time of the thread, if the method is [`Method::StartTime`].
    start: Option<u64>,
    /// Whether the descriptor was received from another process, which may have kept a copy.
    shared: bool,
    /// Run count when this process last gave the thread a deadline policy, for as long as the
    /// thread has that policy.
    exec_at_entry: Mutex<Option<ExecAtEntry>>,
}

/// Identity of a thread across a restart of this process, within one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Thread number.
    pub tid: Tid,
    /// Inode of the thread's pidfd, unique for the boot; 0 on kernels before 6.9.
    pub inode: u64,
    /// Start time in clock ticks since boot. 0 if it is unknown: the inode then identifies the
    /// thread.
    pub start_ticks: u64,
}

impl Thread {
    /// Opens the thread that has number `tid` now. The number of a process names its main thread.
    pub fn open(tid: Tid) -> Result<Thread, OpenError> {
        Thread::open_unchecked(tid)?.if_alive()
    }

    /// Variant of [`Thread::open`] without a final check that the thread lives. The next call of
    /// the caller must check that.
    pub fn open_unchecked(tid: Tid) -> Result<Thread, OpenError> {
        match Thread::open_unchecked_by(tid, Method::Pidfd) {
            Err(OpenError::Os(error)) if is(&error, libc::EINVAL) => {
                Thread::open_unchecked_by(tid, Method::StartTime)
            }
            other => other,
        }
    }

    /// Variant of [`Thread::open`] with a given method. Returns `EINVAL` where the kernel lacks the
    /// method.
    pub fn open_by(tid: Tid, method: Method) -> Result<Thread, OpenError> {
        Thread::open_unchecked_by(tid, method)?.if_alive()
    }

    /// Returns the thread if it lives. Number and attributes were read one after the other, so they
    /// belong to one thread only if the thread still lives.
    fn if_alive(self) -> Result<Thread, OpenError> {
        if self.is_alive() { Ok(self) } else { Err(OpenError::Gone) }
    }

    fn open_unchecked_by(tid: Tid, method: Method) -> Result<Thread, OpenError> {
        match method {
            Method::Pidfd => {
                let fd = pidfd::open_thread(tid)?;
                let (info, inode) = (pidfd::info(fd.as_fd())?, pidfd::inode(fd.as_fd())?);
                Thread::new(fd, info, inode, None)
            }
            Method::StartTime => {
                let info = pidfd::info_from_proc(tid)?;
                let start = proc::stat(tid)?.start_ticks;
                let fd = pidfd::open_process(info.tgid)?;
                Thread::new(fd, info, 0, Some(start))
            }
        }
    }

    /// Opens the thread that a received descriptor names. A process pidfd names the main thread.
    ///
    /// A socket can deliver any descriptor. If `fd` is no pidfd, the error returns it unchanged.
    pub fn from_fd(fd: OwnedFd) -> Result<Thread, OpenError> {
        Thread::from_fd_unchecked(fd)?.if_alive()
    }

    /// Variant of [`Thread::from_fd`] without a final check that the thread lives. The next call of
    /// the caller must check that.
    pub fn from_fd_unchecked(fd: OwnedFd) -> Result<Thread, OpenError> {
        if !pidfd::is_pidfd(fd.as_fd()) {
            return Err(OpenError::NotAPidfd(fd));
        }
        let inode = pidfd::inode(fd.as_fd())?;
        let info = pidfd::info(fd.as_fd())?;
        if pidfd::names_thread(fd.as_fd())? {
            return Ok(Thread { shared: true, ..Thread::new(fd, info, inode, None)? });
        }
        let own = Thread::open(info.tid)?;
        // While the sender's descriptor is alive its number is not reused, so ours names the same
        // thread.
        if pidfd::is_alive(fd.as_fd()) { Ok(own) } else { Err(OpenError::Gone) }
    }

    /// Opens the thread with an identity recorded earlier in this boot, if that thread still lives.
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
            (false, true) => Err(OpenError::OtherThread),
        }
    }

    fn new(
        fd: OwnedFd,
        info: pidfd::PidfdInfo,
        inode: u64,
        start: Option<u64>,
    ) -> Result<Thread, OpenError> {
        const KTHREADD: i32 = 2;
        // Kernel threads are children of kthreadd, but so are programs that the kernel starts, and
        // in a PID namespace 2 may be any process: only the flags decide.
        if (info.parent == KTHREADD || info.tid.as_raw() == KTHREADD)
            && proc::stat(info.tid)?.is_kernel_thread()
        {
            return Err(OpenError::KernelThread);
        }
        Ok(Thread {
            fd,
            tid: info.tid,
            tgid: info.tgid,
            uids: info.uids,
            inode,
            start,
            shared: false,
            exec_at_entry: Mutex::new(None),
        })
    }

    /// Returns the thread number.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Returns the thread's process, named by its main thread, as it was when the handle was
    /// opened.
    pub fn tgid(&self) -> Tid {
        self.tgid
    }

    /// Returns the thread's users as they were when the handle was opened. A decision about rights
    /// must use [`Thread::uids_now`].
    pub fn uids(&self) -> Uids {
        self.uids
    }

    /// Returns the inode of the thread's pidfd. It is unique for this boot, and 0 on kernels before
    /// 6.9.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns the thread's key in [`dl_overruns`].
    fn key(&self) -> ThreadKey {
        // Needed where pidfds have no inode of their own.
        let start = if self.inode == 0 { self.start_ticks().unwrap_or(0) } else { 0 };
        ThreadKey {
            process: self.tgid,
            tid: self.tid,
            incarnation: ThreadIncarnation { inode: self.inode, start },
        }
    }

    /// Returns the incarnation of the process's main thread. Returns the unknown incarnation if the
    /// main thread cannot be opened.
    fn main_incarnation(&self) -> ThreadIncarnation {
        if self.tid == self.tgid {
            return self.key().incarnation;
        }
        match Thread::open(self.tgid) {
            Ok(main) if main.tgid == self.tgid => main.key().incarnation,
            _ => ThreadIncarnation::default(),
        }
    }

    /// Whether the descriptor was received from another process, which may have kept a copy. Then
    /// closing this process's copy does not end an epoll watch.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Returns the method that distinguishes the thread from a later one.
    pub fn method(&self) -> Method {
        if self.start.is_some() { Method::StartTime } else { Method::Pidfd }
    }

    /// Whether the thread has not ended.
    ///
    /// A main thread that ended before the other threads may count as alive until they end (Linux
    /// 6.15 and later).
    pub fn is_alive(&self) -> bool {
        pidfd::is_alive(self.fd.as_fd())
            && self.start.is_none_or(|start| {
                proc::stat(self.tid)
                    .is_ok_and(|stat| stat.start_ticks == start && !stat.has_ended())
            })
    }

    /// Returns the thread's current users: `setresuid` and set-user-id programs change them.
    pub fn uids_now(&self) -> Result<Uids, OpenError> {
        let uids = match self.method() {
            Method::Pidfd => pidfd::info(self.fd.as_fd())?.uids,
            Method::StartTime => pidfd::info_from_proc(self.tid)?.uids,
        };
        if self.is_alive() { Ok(uids) } else { Err(OpenError::Gone) }
    }

    /// Returns the thread's start time in clock ticks since boot.
    pub fn start_ticks(&self) -> Result<u64, OpenError> {
        let start = match self.start {
            Some(start) => start,
            None => proc::stat_of(self.tgid, self.tid)?.start_ticks,
        };
        if self.is_alive() { Ok(start) } else { Err(OpenError::Gone) }
    }

    /// Returns the identity with which [`Thread::reopen`] finds the thread again.
    pub fn identity(&self) -> Result<Identity, OpenError> {
        Ok(Identity { tid: self.tid, inode: self.inode, start_ticks: self.start_ticks()? })
    }

    /// Whether both handles refer to the same thread.
    pub fn is_same(&self, other: &Thread) -> bool {
        self.tid == other.tid && self.inode == other.inode && self.start == other.start
            // Without inodes, two handles of one number agree only while both threads live.
            && (self.inode != 0 || (self.is_alive() && other.is_alive()))
    }

    /// Sends a signal to the thread, or with [`Method::StartTime`] to its process.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        pidfd::signal(&self.fd, number)
    }
}

/// Access to a descriptor for `epoll` and for passing over a socket. The descriptor becomes
/// readable when the thread ends, or with [`Method::StartTime`] its process.
impl AsFd for Thread {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
