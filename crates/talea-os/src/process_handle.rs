//! Handle to a process that can never refer to a later process with the same number.
//!
//! Model: a pidfd and the start time of the process. The descriptor becomes readable when all
//! threads of the process have ended.

use crate::sys::errno;
use crate::thread::{open_process, signal_process};
use crate::{Tid, proc};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Handle to a process, which may have ended.
#[derive(Debug)]
pub struct ProcessHandle {
    fd: OwnedFd,
    pid: Tid,
    start_ticks: u64,
}

impl ProcessHandle {
    /// Opens the process that has number `pid` now. It may have ended, if its parent has not
    /// waited for it.
    ///
    /// # Errors
    /// `ESRCH` if there is no such process, or the kernel's error.
    pub fn open(pid: Tid) -> io::Result<ProcessHandle> {
        let fd = open_process(pid)?;
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => errno(libc::ESRCH),
            _ => error,
        };
        let start_ticks = proc::stat(pid).map_err(gone)?.start_ticks;
        let handle = ProcessHandle { fd, pid, start_ticks };
        // A signal reaches an ended process until its parent has waited for it, and not a later
        // process: so the start time that was read is that of this process.
        handle.signal(0)?;
        Ok(handle)
    }

    /// Returns the number of the process.
    pub fn pid(&self) -> Tid {
        self.pid
    }

    /// Returns the start time of the process in clock ticks since boot.
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// Whether a thread of the process has not ended.
    pub fn is_alive(&self) -> bool {
        crate::thread::is_process_alive(self.fd.as_fd())
    }

    /// Sends a signal to the process. Signal 0 only checks whether the process exists.
    ///
    /// # Errors
    /// `ESRCH` if the process has ended and its parent has waited for it.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        signal_process(&self.fd, number)
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_handle_survives_the_process_and_reaches_no_later_one() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let pid = Tid::new(child.id() as i32).expect("a number");
        let handle = ProcessHandle::open(pid).expect("a process");
        assert!(handle.is_alive());
        assert_eq!(handle.start_ticks(), proc::stat(pid).expect("a process").start_ticks);
        handle.signal(libc::SIGKILL).expect("our child");
        while handle.is_alive() {
            std::thread::yield_now();
        }
        // Its parent has not waited: it can still be opened.
        assert!(!ProcessHandle::open(pid).expect("a zombie").is_alive());
        child.wait().expect("our child");
        assert_eq!(handle.signal(0).expect_err("gone").raw_os_error(), Some(libc::ESRCH));
        let gone = ProcessHandle::open(pid).expect_err("gone");
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }
}
