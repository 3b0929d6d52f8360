//! Pidfds: descriptors that name one thread and never a later one with the same number.
//!
//! A pidfd opened with `PIDFD_THREAD` (Linux 6.9) names a thread; without it, a process by its main
//! thread. Since 6.9 pidfds are in a file system of their own, where the inode number is unique for
//! the boot. Before, they share one anonymous inode.

use crate::sys::{check, check_long, errno};
use crate::{Tid, proc};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// Flag `PIDFD_THREAD` of `linux/pidfd.h`.
const PIDFD_THREAD: libc::c_uint = libc::O_EXCL as libc::c_uint;
/// Magic number `PID_FS_MAGIC` of `linux/magic.h`.
const PID_FS_MAGIC: i64 = 0x5049_4446;

/// First published version of `struct pidfd_info` (Linux 6.13).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ruid: u32,
    rgid: u32,
    euid: u32,
    egid: u32,
    suid: u32,
    sgid: u32,
    fsuid: u32,
    fsgid: u32,
    exit_code: i32,
}

const _: () = assert!(size_of::<Info>() == 64);

const INFO_PID: u64 = 1;
const INFO_CREDS: u64 = 2;
/// Request `PIDFD_GET_INFO`: `_IOWR(0xFF, 11, struct pidfd_info)`.
const PIDFD_GET_INFO: libc::c_ulong = 3 << 30 | 64 << 16 | 0xFF << 8 | 0x0B;

/// Attributes of the thread of a pidfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PidfdInfo {
    pub(crate) tid: Tid,
    pub(crate) tgid: Tid,
    pub(crate) parent: i32,
    pub(crate) uids: proc::Uids,
}

/// Opens a thread pidfd. Returns `EINVAL` where the kernel has none, and `ESRCH` where there is no
/// such thread.
pub(crate) fn open_thread(tid: Tid) -> io::Result<OwnedFd> {
    open(tid, PIDFD_THREAD)
}

/// Whether this kernel has thread pidfds.
pub(crate) fn has_thread_pidfds() -> bool {
    open_thread(Tid::current()).is_ok()
}

/// Opens a process pidfd. `tid` must be a main thread.
pub(crate) fn open_process(tid: Tid) -> io::Result<OwnedFd> {
    open(tid, 0)
}

fn open(tid: Tid, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers.
    let fd = check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, tid.as_raw(), flags) })?;
    // SAFETY: the call has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Returns the inode of a pidfd. Returns 0 where all pidfds share one inode.
pub(crate) fn inode(fd: BorrowedFd) -> io::Result<u64> {
    // On one kernel either all or none have their own.
    static OWN: OnceLock<bool> = OnceLock::new();
    let own = if let Some(own) = OWN.get() {
        *own
    } else {
        let own = rustix::fs::fstatfs(fd)?.f_type as i64 == PID_FS_MAGIC;
        *OWN.get_or_init(|| own)
    };
    if own { Ok(rustix::fs::fstat(fd)?.st_ino) } else { Ok(0) }
}

/// Whether a descriptor is a pidfd. The check must precede every other call: the kernel passes
/// other calls to the file's own file system, which may be an untrusted program that never answers.
pub(crate) fn is_pidfd(fd: BorrowedFd) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: no information is asked for, and WNOWAIT leaves whatever has ended to be collected.
    let answer = unsafe {
        libc::waitid(libc::P_PIDFD, fd.as_raw_fd() as libc::id_t, std::ptr::null_mut(), flags)
    };
    // A pidfd of another process's child gives ECHILD.
    check(answer).err().and_then(|error| error.raw_os_error()) != Some(libc::EBADF)
}

/// Whether a pidfd was opened with `PIDFD_THREAD`.
pub(crate) fn names_thread(fd: BorrowedFd) -> io::Result<bool> {
    // SAFETY: F_GETFL takes no argument and writes nothing.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    Ok(flags as libc::c_uint & PIDFD_THREAD != 0)
}

/// Whether the thread or process of the pidfd has not ended.
pub(crate) fn is_alive(fd: BorrowedFd) -> bool {
    let mut poll = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    loop {
        // SAFETY: one valid element, and the call returns at once.
        match check(unsafe { libc::poll(poll.as_mut_ptr(), 1, 0) }) {
            Ok(ready) => return ready == 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The only other error is lack of memory; a thread that cannot be watched must not be
            // configured.
            Err(_) => return false,
        }
    }
}

/// Reads the thread's attributes: from the descriptor if the kernel can (6.13), otherwise by number
/// from `/proc`.
///
/// `ESRCH`: the thread has ended, or is not visible in this PID namespace.
pub(crate) fn info(fd: BorrowedFd) -> io::Result<PidfdInfo> {
    if let Some(info) = info_by_ioctl(fd)? {
        return Ok(info);
    }
    let tid = ns_tids(fd)?.first().copied().and_then(Tid::new).ok_or_else(|| errno(libc::ESRCH))?;
    let info = info_from_proc(tid)?;
    // While the descriptor is alive the number cannot be reused, so the attributes are the
    // thread's.
    if is_alive(fd) { Ok(info) } else { Err(errno(libc::ESRCH)) }
}

/// Reads the attributes by `PIDFD_GET_INFO`. Returns `None` where this kernel lacks the request.
fn info_by_ioctl(fd: BorrowedFd) -> io::Result<Option<PidfdInfo>> {
    let mut info = Info { mask: INFO_PID | INFO_CREDS, ..Info::default() };
    // SAFETY: `fd` is a pidfd, for which this number writes at most the 64 bytes that it encodes.
    let answer = check(unsafe { libc::ioctl(fd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) });
    match answer {
        Ok(_) if info.mask & (INFO_PID | INFO_CREDS) == INFO_PID | INFO_CREDS => {
            let tid = |raw: u32| Tid::new(raw as i32).ok_or_else(|| errno(libc::ESRCH));
            Ok(Some(PidfdInfo {
                tid: tid(info.pid)?,
                tgid: tid(info.tgid)?,
                parent: info.ppid as i32,
                uids: proc::Uids { real: info.ruid, effective: info.euid, saved: info.suid },
            }))
        }
        Ok(_) => Ok(None),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the attributes of the thread that has number `tid` now, from `/proc`.
pub(crate) fn info_from_proc(tid: Tid) -> io::Result<PidfdInfo> {
    let status = proc::status(tid).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => errno(libc::ESRCH),
        _ => error,
    })?;
    Ok(PidfdInfo { tid, tgid: status.tgid, parent: status.parent, uids: status.uids })
}

/// Returns the thread's numbers in the PID namespaces from that of `/proc` down to its own. The
/// number is -1 after the end of the thread, and 0 if the thread is not visible here.
pub(crate) fn ns_tids(fd: BorrowedFd) -> io::Result<Vec<i32>> {
    let text = proc::read(&format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let words =
        proc::field(&text, "NSpid").or_else(|| proc::field(&text, "Pid")).into_iter().flatten();
    Ok(words.filter_map(|word| word.parse().ok()).collect())
}

/// Sends a signal to the thread or process of the pidfd. Signal 0 only checks whether a signal
/// would be permitted.
pub(crate) fn signal(fd: impl AsFd, number: i32) -> io::Result<()> {
    // SAFETY: no siginfo is passed; the rest are integers.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            fd.as_fd().as_raw_fd(),
            number,
            std::ptr::null::<libc::siginfo_t>(),
            0u32,
        )
    })?;
    Ok(())
}
