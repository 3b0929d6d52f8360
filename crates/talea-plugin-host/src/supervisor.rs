//! Supervisor of a host that the service manager has started.
//!
//! Model: `talead` cannot kill a process of another user. For this reason the first process of the
//! service forks. The child is the host. The first process loads no foreign code and supervises the
//! child:
//!
//! | event | effect |
//! | --- | --- |
//! | the child ends | the supervisor ends with the same exit code |
//! | `talead` closes the connection | after [`FINI_TIMEOUT`] the supervisor kills the child |
//! | the supervisor ends | the kernel kills the child |
//!
//! Reference: `sd_listen_fds(3)`. With `Accept=yes` descriptor 3 is the connection.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getppid, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, waitpid,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use talea_core::mutate;

/// Time for the plugin's `fini`.
const FINI_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

/// Process that has started this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `talead`, as its child.
    Daemon,
    /// The service manager, in a unit of its own, with a connection to `talead`.
    Service,
}

impl Origin {
    /// Returns the origin of this process, from the variables of the service manager.
    pub(crate) fn of_this_process() -> Origin {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        if number("LISTEN_PID") == Some(std::process::id()) && number("LISTEN_FDS") == Some(1) {
            Origin::Service
        } else {
            Origin::Daemon
        }
    }
}

/// Forks. Returns `None` in the child, and the exit code of the child in the parent, after its end.
pub(crate) fn supervise(daemon: BorrowedFd) -> io::Result<Option<ExitCode>> {
    let own = std::process::id();
    // SAFETY: this process has one thread, so the child may use everything.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    let Some(child) = Pid::from_raw(pid) else {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the line above.
        if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() as u32 != own) {
            return Err(Errno::SRCH.into());
        }
        return Ok(None);
    };
    let pidfd = pidfd_open(child, PidfdFlags::empty())?;
    let mut events =
        [PollFd::new(&pidfd, PollFlags::IN), PollFd::from_borrowed_fd(daemon, PollFlags::RDHUP)];
    while let Err(error) = poll(&mut events, None) {
        if error != Errno::INTR {
            return Err(error.into());
        }
    }
    if events[0].revents().is_empty() {
        let mut end = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        // An error only shortens the time for `fini`.
        let has_ended = poll(&mut end, Some(&FINI_TIMEOUT)).is_ok_and(|count| count > 0);
        if mutate!("plugin-foreign-supervisor", !has_ended, false) {
            // An error means that the child has just ended.
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
    let status = waitpid(Some(child), WaitOptions::empty())?.map(|(_, status)| status);
    let code = status.and_then(WaitStatus::exit_status);
    Ok(Some(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, Into::into)))
}
