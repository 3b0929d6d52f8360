//! Events that `talea run` waits for, and its exit code.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use talea_os::signals::Signals;
use talea_study::exit::{Exit, RUN_FAILED};

/// Event that this command waits for.
pub(super) enum Event {
    /// A signal is pending.
    Signal,
    /// The program has ended.
    Ended,
    /// A thread of the program waits for the result of a call.
    Call,
    /// None of the others within the time-out.
    Timeout,
}

/// Waits for an event. Of several, returns the first in the order of [`Event`].
pub(super) fn wait(
    pidfd: &OwnedFd,
    signals: &Signals,
    calls: Option<BorrowedFd>,
    timeout: Option<&Timespec>,
) -> anyhow::Result<Event> {
    let mut fds = vec![
        PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN),
    ];
    fds.extend(calls.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    while let Err(error) = poll(&mut fds, timeout) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    let is_ready = |i: usize| fds.get(i).is_some_and(|fd| fd.revents().contains(PollFlags::IN));
    Ok(match (is_ready(0), is_ready(1), is_ready(2)) {
        (true, ..) => Event::Signal,
        (_, true, _) => Event::Ended,
        (.., true) => Event::Call,
        _ => Event::Timeout,
    })
}

/// Returns the exit code for the status of the program.
pub(super) fn exit_of(status: ExitStatus) -> Exit {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(RUN_FAILED),
        (None, Some(signal)) => 128 + u8::try_from(signal).unwrap_or(0),
        (None, None) => RUN_FAILED,
    };
    Exit::Program(code)
}
