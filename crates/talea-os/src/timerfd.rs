//! One-shot timer that epoll can watch, so that single waits need no time-out.
//!
//! On PREEMPT_RT a timerfd expires late behind FIFO threads. It is suitable for work that may be
//! late, not for deadlines.

use crate::clock;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use talea_core::Span;

/// Timerfd that expires once after each call of [`TimerFd::set`]. A timer that is watched for
/// [arrivals](crate::epoll::Interest::ARRIVAL) need not be read.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// Creates a disarmed timer.
    pub fn new() -> io::Result<TimerFd> {
        Ok(TimerFd(timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?))
    }

    /// Arms the timer to expire after `time`. Replaces an earlier setting. Zero disarms the timer.
    pub fn set(&self, time: Span) {
        let zero = clock::timespec_of_span(Span::ZERO);
        let value = clock::timespec_of_span(time);
        let times = Itimerspec { it_interval: zero, it_value: value };
        // The time is in range and the timer is ours, so the kernel cannot refuse either.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &times);
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
