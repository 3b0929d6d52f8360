//! Processes that the daemon watches by pidfd.
//!
//! Invariant: a watched process is held until its exit is reported or the broker forgets it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use talea_broker::input::ProcessId;
use talea_core::Monotonic;
use talea_os::Tid;
use talea_os::epoll::{Epoll, Interest};

use super::token::Token;

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
