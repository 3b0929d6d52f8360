//! Sockets that a service manager has opened for this process.
//!
//! Reference: `sd_listen_fds(3)`: descriptors from 3 on, `LISTEN_FDS` of them, if `LISTEN_PID` is
//! this process.

use super::Listener;
use crate::sys::{check, errno};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use talea_core::mutate;

const FIRST: i32 = 3;

/// Returns the listeners passed by the service manager. Returns none if the service manager passed
/// none or a call has taken them before.
///
/// `EINVAL`: one of the descriptors is not a listening sequenced-packet UNIX socket. `EBADF`: one
/// is missing.
pub fn inherited_listeners() -> io::Result<Vec<Listener>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<i32>().ok());
    let ours =
        number("LISTEN_PID") == Some(mutate!("life-activation", std::process::id() as i32, 0));
    let count = number("LISTEN_FDS").filter(|&count| ours && count > 0).unwrap_or(0);
    if count == 0 || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let end = FIRST.checked_add(count).ok_or_else(|| errno(libc::EINVAL))?;
    (FIRST..end)
        .map(|fd| {
            // SAFETY: only checks whether the descriptor is open.
            check(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
            // SAFETY: it is open, and by the protocol it is meant for us; `TAKEN` makes us take it
            // once.
            Listener::from_fd(unsafe { OwnedFd::from_raw_fd(fd) })
        })
        .collect()
}
