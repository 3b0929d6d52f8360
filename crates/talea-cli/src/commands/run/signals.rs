//! Signals and job control between whoever started us and the program.
//!
//! Model: what somebody sends to `talea run` is meant for the program. What a terminal's keys send
//! (the kernel says that it was the one) reaches the whole process group, the program included, and
//! is not sent twice. And whoever looks at us must see what the program does: when it stops, for
//! whatever reason, we stop, so that a shell takes its terminal back; when we are continued, it is.
//!
//! Absent on purpose: SIGKILL and SIGSTOP, which nobody can pass on. The grant belongs to the
//! program's thread, so killing `talea run` takes nothing from it.

use rustix::process::{
    Pid, Signal as Number, WaitId, WaitIdOptions, getpgid, getpid, kill_process, pidfd_send_signal,
    waitid,
};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use talea_os::signals::{Arrived, Signal, Signals};

/// Everything that is passed on, and the program's own changes of state.
pub(super) fn collect() -> std::io::Result<Signals> {
    Signals::new(&[
        Signal::Term,
        Signal::Int,
        Signal::Hup,
        Signal::Quit,
        Signal::Usr1,
        Signal::Usr2,
        Signal::Winch,
        Signal::Tstp,
        Signal::Cont,
        Signal::Chld,
    ])
}

/// Gives the program what was meant for it, and does as it does.
pub(super) fn pass_on(signals: &Signals, child: &Child, pidfd: &OwnedFd) -> std::io::Result<()> {
    while let Some(Arrived { signal, by_kernel }) = signals.next()? {
        match signal {
            Signal::Chld => follow(pidfd)?,
            // A shell that continues a job continues all of it; but somebody may have meant us
            // alone.
            _ if by_kernel && shares_our_group(child) => {}
            _ => {
                if let Some(number) = Number::from_named_raw(signal.number()) {
                    // It may have ended meanwhile; then the end is what the loop sees next.
                    let _ = pidfd_send_signal(pidfd, number);
                }
            }
        }
    }
    Ok(())
}

/// Stops when the program has stopped.
fn follow(pidfd: &OwnedFd) -> std::io::Result<()> {
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    match waitid(WaitId::PidFd(pidfd.as_fd()), stopped) {
        // Nothing else does: SIGTSTP is read here, and its default action never taken.
        Ok(Some(status)) if status.stopped() => Ok(kill_process(getpid(), Number::STOP)?),
        // At the latter it has ended and only waits to be collected.
        Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether what the terminal sends to us reaches the program by itself.
fn shares_our_group(child: &Child) -> bool {
    getpgid(Some(Pid::from_child(child))).is_ok_and(|group| getpgid(None) == Ok(group))
}
