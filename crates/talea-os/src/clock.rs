//! `CLOCK_MONOTONIC`, thread CPU time and the boot id.
//!
//! Sleeps are absolute and use `clock_nanosleep`: timerfd and POSIX timers starve behind FIFO
//! threads on PREEMPT_RT.

use rustix::io::Errno;
use rustix::time::{ClockId, Timespec};
use std::io;
use talea_core::mutate;
use talea_core::{Monotonic, Span};

/// Returns the current time of `CLOCK_MONOTONIC`.
pub fn now() -> Monotonic {
    Monotonic::from_ns(nanoseconds(rustix::time::clock_gettime(ClockId::Monotonic)))
}

/// Returns the CPU time consumed by the calling thread.
pub fn thread_cpu_time() -> talea_core::Work {
    talea_core::Work::from_ns(nanoseconds(rustix::time::clock_gettime(ClockId::ThreadCPUTime)))
}

/// Returns the CPU time consumed by all threads of this process.
pub fn process_cpu_time() -> talea_core::Work {
    talea_core::Work::from_ns(nanoseconds(rustix::time::clock_gettime(ClockId::ProcessCPUTime)))
}

/// Sleeps until `at`, even if signals arrive. Returns at once when `at` has passed.
pub fn sleep_until(at: Monotonic) {
    loop {
        match rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &timespec(at)) {
            Ok(()) => return,
            Err(Errno::INTR) => {}
            Err(other) => panic!("clock_nanosleep refused an absolute time: {other}"),
        }
    }
}

/// Runs `code` with `times` the CPU time that it needs: the mutant of a cost
/// ([`talea_core::mutation`]).
pub fn slowed<T>(times: u64, code: impl FnOnce() -> T) -> T {
    let begin = thread_cpu_time().as_ns();
    let result = code();
    let cost = thread_cpu_time().as_ns() - begin;
    while thread_cpu_time().as_ns() < begin + cost * times {}
    result
}

/// Sets the calling thread's timer slack to the minimum, so that the kernel does not delay its
/// time-outs in order to share an interrupt. The default slack of an ordinary thread is 50 µs.
/// Before Linux 6.12 the slack also delays the futex time-outs of real-time threads.
pub fn set_timer_slack_min() {
    // No kernel refuses this. A real-time thread keeps the slack that the kernel has for it.
    let _ = rustix::thread::set_current_timer_slack(mutate!(
        "os-clock-slack",
        std::num::NonZeroU64::new(1),
        None
    ));
}

/// Returns the id of this boot. Thread numbers, start times and pidfd inodes have no meaning in
/// another boot.
pub fn boot_id() -> io::Result<[u8; 16]> {
    parse_boot_id(&std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "boot_id is not a UUID"))
}

fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    let mut digits = text.trim_end().chars().filter(|&c| c != '-').map(|c| c.to_digit(16));
    for byte in &mut id {
        *byte = (digits.next()?? << 4 | digits.next()??) as u8;
    }
    digits.next().is_none().then_some(id)
}

fn nanoseconds(at: Timespec) -> u64 {
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Converts a point of the clock to a kernel time, for an absolute time-out.
pub(crate) fn timespec(at: Monotonic) -> Timespec {
    timespec_of_ns(at.as_ns())
}

/// Converts a length to a kernel time, for a relative time-out.
pub(crate) fn timespec_of_span(length: Span) -> Timespec {
    timespec_of_ns(length.as_ns())
}

fn timespec_of_ns(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimal_timer_slack_is_at_most_one_nanosecond() {
        let slack = || rustix::thread::current_timer_slack().expect("a number");
        let before = slack();
        set_timer_slack_min();
        assert!(slack() <= 1, "{} after {before}", slack());
    }

    #[test]
    fn a_boot_id_is_sixteen_bytes() {
        let id = parse_boot_id("00112233-4455-6677-8899-aabbccddeeff\n").expect("a UUID");
        assert_eq!(id[..3], [0x00, 0x11, 0x22]);
        assert_eq!(id[15], 0xff);
        assert_eq!(parse_boot_id("0011"), None);
        assert_eq!(parse_boot_id("zz112233-4455-6677-8899-aabbccddeeff"), None);
        assert_eq!(parse_boot_id("00112233-4455-6677-8899-aabbccddeeff00"), None);
    }

    #[test]
    fn a_sleep_never_ends_early() {
        let target = now() + Span::from_ns(2_000_000);
        sleep_until(target);
        assert!(now() >= target);
        sleep_until(Monotonic::ZERO);
    }
}
