//! An alarm that a wait for descriptors hears, without a time-out for each wait.
//!
//! It is a timerfd, so on PREEMPT_RT it is late behind FIFO threads: for what may come late, not
//! for deadlines.

use crate::clock;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use talea_core::{Span, Time};

/// Goes off once each time it is set. Watched for [arrivals](crate::epoll::Interest::ARRIVAL) it
/// need not be read.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// One that is not set.
    pub fn new() -> io::Result<Alarm> {
        Ok(Alarm(timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?))
    }

    /// Goes off in `time` from now, and not when it was set for before. Zero: not at all.
    pub fn set(&self, time: Span) {
        let zero = clock::timespec(Time::ZERO);
        let value = clock::timespec(Time::from_ns(time.as_ns()));
        let times = Itimerspec { it_interval: zero, it_value: value };
        // A time that is in range, for a timer of ours: neither can be refused.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &times);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
