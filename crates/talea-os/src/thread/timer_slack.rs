//! Timer slack of a thread, which a grant must not lose.
//!
//! Linux sets the slack to zero when a thread becomes real-time. When it becomes ordinary again,
//! Linux sets it to the value inherited at the start of the thread, not to a value that the user
//! has set since (measured on 6.18: 1 ms, then 0, then 50 µs).

use super::Thread;
use crate::proc;
use std::io;

impl Thread {
    /// Returns the timer slack in nanoseconds, or zero for a real-time thread. Threads of other
    /// users need CAP_SYS_NICE.
    pub fn timer_slack(&self) -> io::Result<u64> {
        let mut buffer = [0; 24];
        let path = format!("/proc/{}/timerslack_ns", self.tid());
        let text = std::str::from_utf8(proc::read_into(&path, &mut buffer)?).unwrap_or_default();
        text.trim().parse().map_err(|_| crate::sys::errno(libc::EINVAL))
    }

    /// Sets the timer slack to `ns`, unless the thread has this value already.
    pub fn restore_timer_slack(&self, ns: u64) -> io::Result<()> {
        if self.timer_slack()? == ns {
            return Ok(());
        }
        std::fs::write(format!("/proc/{}/timerslack_ns", self.tid()), ns.to_string())
    }
}
