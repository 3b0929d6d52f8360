//! The peer of a UNIX socket, as the kernel identifies it.
//!
//! Model: credentials are those of the process at the time of its `connect`. A socket passed to
//! another process keeps the rights of the process that connected. The content of a message proves
//! nothing.

use crate::sys::{check, errno, is};
use crate::{Tid, proc, thread};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// Peer of a connected UNIX socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process of the peer. `None` if the process is not visible in this PID namespace.
    pub pid: Option<Tid>,
    /// Effective user id of the peer at `connect`.
    pub uid: u32,
    /// Effective group id of the peer at `connect`.
    pub gid: u32,
    /// Supplementary groups of the peer at `connect`.
    pub groups: Vec<u32>,
}

/// Socket option `SO_PEERPIDFD` (Linux 6.5). It has the same number on every architecture that
/// Rust's Linux targets have, except SPARC.
const SO_PEERPIDFD: i32 = 77;

/// Reads the credentials of the peer of `socket`.
pub fn credentials(socket: impl AsFd) -> io::Result<Peer> {
    let socket = socket.as_fd();
    let creds = ucred(socket)?;
    Ok(Peer { pid: Tid::new(creds.pid), uid: creds.uid, gid: creds.gid, groups: groups(socket)? })
}

/// Reads the effective user id of the peer of `socket`.
pub fn user(socket: impl AsFd) -> io::Result<u32> {
    ucred(socket.as_fd()).map(|creds| creds.uid)
}

fn ucred(socket: BorrowedFd) -> io::Result<libc::ucred> {
    let mut creds = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `creds`.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut creds).cast(),
            &raw mut length,
        )
    })?;
    // An unconnected socket has no peer and reports the overflow ids.
    if creds.uid == u32::MAX {
        return Err(errno(libc::ENOTCONN));
    }
    Ok(creds)
}

/// Opens a pidfd of the peer's process (Linux 6.5). Earlier kernels return `ENOPROTOOPT`.
pub fn pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one integer into `fd`.
    check(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    })?;
    // SAFETY: the kernel has just installed this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether thread numbers of the peer have the same meaning here: the peer lives in this PID
/// namespace.
///
/// A process has one number in each namespace from `/proc`'s down to its own. If the peer and this
/// process have exactly one number each, both live in the namespace of `/proc`. Returns `false` if
/// that cannot be shown, and an error if no descriptor is free. Needs no privilege, unlike a
/// comparison of `/proc/PID/ns/pid`.
pub fn same_pid_namespace(socket: impl AsFd) -> io::Result<bool> {
    let is_full = |error: &io::Error| is(error, libc::EMFILE) || is(error, libc::ENFILE);
    let one = |tids: io::Result<Vec<i32>>| match tids {
        Ok(tids) => Ok(matches!(tids[..], [tid] if tid > 0)),
        Err(error) if is_full(&error) => Err(error),
        Err(_) => Ok(false),
    };
    static WE: OnceLock<bool> = OnceLock::new();
    let we = if let Some(&we) = WE.get() {
        we
    } else {
        let we = one(proc::status(Tid::of_process()).map(|status| status.ns_tids))?;
        *WE.get_or_init(|| we)
    };
    if !we {
        return Ok(false);
    }
    match pidfd(&socket) {
        Ok(fd) => one(thread::ns_tids(fd.as_fd())),
        Err(error) if is_full(&error) => Err(error),
        Err(error) if is(&error, libc::ENOPROTOOPT) => {
            // Held open while /proc is read, so that the number cannot be reused unnoticed.
            let Some(pid) = credentials(&socket).ok().and_then(|peer| peer.pid) else {
                return Ok(false);
            };
            let held = match thread::open_process(pid) {
                Ok(held) => held,
                Err(error) if is_full(&error) => return Err(error),
                Err(_) => return Ok(false),
            };
            Ok(one(proc::status(pid).map(|status| status.ns_tids))?
                && one(thread::ns_tids(held.as_fd()))?)
        }
        Err(_) => Ok(false),
    }
}

fn groups(socket: BorrowedFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 32];
    loop {
        let mut length = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `groups`.
        let answer = check(unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        });
        let count = length as usize / size_of::<u32>();
        match answer {
            Ok(_) => {
                groups.truncate(count);
                return Ok(groups);
            }
            // The kernel has written the size that it needs.
            Err(error) if is(&error, libc::ERANGE) && count > groups.len() => {
                groups.resize(count, 0);
            }
            // A peer made by socketpair before any credentials were set has no list.
            Err(error) if is(&error, libc::ENODATA) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
    }
}
