//! Signals and job control between the caller and the program.
//!
//! Model: signals to `talea run` are meant for the program and are forwarded. Signals of the
//! terminal's keys reach the whole process group, the program included, and are not forwarded; the
//! kernel marks them. The caller must observe the program's state in `talea run`: when the program
//! stops, `talea run` stops as well, so that a shell regains its terminal. When `talea run` is
//! continued, it continues the program.
//!
//! Absent on purpose: SIGKILL and SIGSTOP, which cannot be forwarded. The thread of the program
//! owns the grant, so killing `talea run` does not affect the program.

use rustix::process::{
    Pid, Signal as Number, WaitId, WaitIdOptions, getpgid, getpid, kill_process, pidfd_send_signal,
    waitid,
};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use talea_os::signals::{ReceivedSignal, Signal, Signals};

/// Collects the forwarded signals, and the program's changes of state.
pub(super) fn collect() -> std::io::Result<Signals> {
    Signals::new(&Signal::ALL)
}

/// Forwards pending signals, and stops when the program has stopped.
pub(super) fn forward(signals: &Signals, child: &Child, pidfd: &OwnedFd) -> std::io::Result<()> {
    while let Some(ReceivedSignal { signal, by_kernel }) = signals.next()? {
        match signal {
            Signal::Chld => stop_with_program(pidfd)?,
            // A shell continues all processes of a job. A SIGCONT to `talea run` alone comes from
            // another process.
            _ if by_kernel && shares_our_group(child) => {}
            _ => {
                if let Some(number) = Number::from_named_raw(signal.number()) {
                    // The program may have ended meanwhile; the caller's loop handles that.
                    let _ = pidfd_send_signal(pidfd, number);
                }
            }
        }
    }
    Ok(())
}

/// Stops this process if the program has stopped.
fn stop_with_program(pidfd: &OwnedFd) -> std::io::Result<()> {
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    match waitid(WaitId::PidFd(pidfd.as_fd()), stopped) {
        // SIGTSTP is read from the descriptor, so its default action does not happen.
        Ok(Some(status)) if status.stopped() => Ok(kill_process(getpid(), Number::STOP)?),
        // ECHILD: the program has ended and is not yet waited for.
        Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a signal of the terminal also reaches the program.
fn shares_our_group(child: &Child) -> bool {
    getpgid(Some(Pid::from_child(child))).is_ok_and(|group| getpgid(None) == Ok(group))
}
