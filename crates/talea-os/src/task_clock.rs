//! Task clock of another thread: an event after a given CPU time, and a record of its switches.
//!
//! Model: `perf_event_open(2)`, software event `PERF_COUNT_SW_TASK_CLOCK`. The kernel counts the
//! CPU time of the thread, also inside system calls. It makes the descriptor readable once the
//! thread has consumed the time given to [`TaskClock::arm`]. Until then no process wakes up. The
//! ring buffer of one page receives a record of 16 bytes whenever the thread gets or loses a CPU.
//! The descriptor also becomes readable when the page is half full.
//!
//! Measured (Linux 6.18, virtual computer): 1 µs per switch of the thread, and 8 µs more whenever
//! the remaining time ends before the next timer of the CPU. Then the kernel programs the timer
//! when the thread gets the CPU, which leaves the guest. A thread on the CPU of the waiting thread
//! is interrupted 57 µs after its time (median; 123 µs at p99), one on another CPU after 160 µs
//! (1.8 ms).
//!
//! The event ends ([`TaskClock::has_ended`]) with its thread, and when the thread executes a
//! set-user-id or an unreadable program. Needs root, CAP_PERFMON or `kernel.perf_event_paranoid`
//! of 0 or less: without the kernel's share (`exclude_kernel`) a thread could escape by long system
//! calls.

use crate::Tid;
use crate::perf::{
    self, Attr, CONTEXT_SWITCH, DISABLE, DISABLED, ENABLE, PAGE, SAMPLE_ID_ALL, SAMPLE_TIME,
    SOFTWARE, USE_CLOCKID,
};
use crate::sys::check;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::server::meter::Switch;
use talea_core::{Monotonic, Span, Work};

/// Event type `PERF_COUNT_SW_TASK_CLOCK`.
const TASK_CLOCK: u64 = 1;
/// Request `PERF_EVENT_IOC_PERIOD`: `_IOW('$', 4, __u64)`.
const SET_PERIOD: libc::c_ulong = 0x4008_2404;
/// Period that no thread consumes. An event without a period would only count.
const NEVER_NS: u64 = 1 << 62;

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const RECORD_SWITCH: u32 = 14;
/// Flag in `misc`: the thread leaves the CPU.
const SWITCH_OUT: u16 = 1 << 13;
/// Flag in `misc` beside [`SWITCH_OUT`]: the thread is still ready.
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
/// Offset of the ring's head in the first page.
const HEAD_OFFSET: usize = 1024;
const TAIL_OFFSET: usize = 1032;

/// Task clock of one thread.
#[derive(Debug)]
pub struct TaskClock {
    event: OwnedFd,
    /// Mapping of the first page, followed by one page of records.
    pages: *mut libc::c_void,
    schedstat: Option<File>,
    /// Waiting time of the thread at the last call of [`TaskClock::take_waiting_time`].
    waited: Span,
}

// SAFETY: the mapping belongs to this value alone and may be used from any thread.
unsafe impl Send for TaskClock {}

impl TaskClock {
    /// Opens the clock of thread `tid`, stopped. The kernel may have reused the number, so the
    /// caller must check afterwards that the intended thread lives.
    pub fn open(tid: Tid) -> io::Result<TaskClock> {
        let attr = Attr {
            kind: SOFTWARE,
            size: size_of::<Attr>() as u32,
            config: TASK_CLOCK,
            sample_period: NEVER_NS,
            sample_type: SAMPLE_TIME,
            flags: DISABLED | SAMPLE_ID_ALL | USE_CLOCKID | CONTEXT_SWITCH,
            wakeup: 1,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        let event = perf::open_on_any_cpu(&attr, tid.as_raw())?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let pages = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(null_mut(), 2 * PAGE, access, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let schedstat = File::open(format!("/proc/{tid}/schedstat")).ok();
        let mut clock = TaskClock { event, pages, schedstat, waited: Span::ZERO };
        clock.take_waiting_time();
        Ok(clock)
    }

    /// Makes the descriptor readable after the thread has consumed another `time`, at least 10 µs.
    pub fn arm(&self, time: Work) -> io::Result<()> {
        let ns = time.as_ns();
        // SAFETY: the kernel reads eight bytes.
        let result = unsafe {
            libc::ioctl(self.event.as_raw_fd(), SET_PERIOD as _, std::ptr::from_ref(&ns))
        };
        check(result)?;
        perf::control(&self.event, ENABLE)
    }

    /// Returns the CPU time that the thread has consumed since the clock was opened, while it was
    /// not stopped.
    pub fn consumed(&self) -> io::Result<Work> {
        let mut count = [0; 8];
        let read = rustix::io::read(&self.event, &mut count)?;
        if read == count.len() {
            Ok(Work::from_ns(u64::from_ne_bytes(count)))
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Stops counting and recording.
    pub fn stop(&self) -> io::Result<()> {
        perf::control(&self.event, DISABLE)
    }

    /// Whether the kernel has detached the event from its thread.
    pub fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut polled = [PollFd::new(&self.event, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }

    /// Passes the switches since the last call to `each`, in order. A full ring loses later
    /// switches. Returns whether any switch was lost.
    pub fn drain(&mut self, mut each: impl FnMut(Monotonic, Switch)) -> bool {
        let head = self.word(HEAD_OFFSET).load(Ordering::Acquire);
        let tail = self.word(TAIL_OFFSET);
        let mut at = tail.load(Ordering::Relaxed);
        let mut has_lost = false;
        while at < head {
            let header = self.long(at);
            let (kind, misc, size) = (header as u32, (header >> 32) as u16, header >> 48);
            if size < 8 || size % 8 != 0 || at + size > head {
                // Not written by this kernel interface: nothing behind it can be read.
                has_lost = true;
                break;
            }
            // Every record ends with its time.
            let time = Monotonic::from_ns(self.long(at + size - 8));
            match kind {
                RECORD_SWITCH if misc & SWITCH_OUT == 0 => each(time, Switch::In),
                RECORD_SWITCH if misc & SWITCH_OUT_PREEMPT != 0 => each(time, Switch::Preempted),
                RECORD_SWITCH => each(time, Switch::Asleep),
                // The time given to `arm` is over, so the thread has a CPU.
                RECORD_SAMPLE => each(time, Switch::Runs),
                RECORD_LOST => has_lost = true,
                _ => {}
            }
            at += size;
        }
        tail.store(head, Ordering::Release);
        has_lost
    }

    /// Returns the time that the thread has waited for a CPU since the last call. Returns zero if
    /// the kernel does not report the time.
    pub fn take_waiting_time(&mut self) -> Span {
        let mut text = [0; 96];
        let read =
            self.schedstat.as_ref().map_or(0, |file| file.read_at(&mut text, 0).unwrap_or(0));
        let waited = std::str::from_utf8(&text[..read])
            .ok()
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok())
            .map_or(self.waited, Span::from_ns);
        let before = std::mem::replace(&mut self.waited, waited);
        Span::from_ns(waited.as_ns().saturating_sub(before.as_ns()))
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: head and tail are aligned words of the first page, which is mapped while `self`
        // lives; the kernel accesses them at the same time, hence the atomics.
        unsafe { &*self.pages.byte_add(offset).cast::<AtomicU64>() }
    }

    /// Returns the eight bytes at `position` of the ring.
    fn long(&self, position: u64) -> u64 {
        let offset = PAGE + position as usize % PAGE;
        // SAFETY: positions are multiples of eight, so the word lies inside the second page, which
        // is mapped; the kernel has written it before it moved the head, and does not write it
        // again before the tail has passed it.
        unsafe { self.pages.byte_add(offset).cast::<u64>().read() }
    }
}

impl AsFd for TaskClock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for TaskClock {
    fn drop(&mut self) {
        // SAFETY: ours, of this length, and nothing borrows from it.
        unsafe { libc::munmap(self.pages, 2 * PAGE) };
    }
}

/// Checks that this process may open task clocks of all threads. The error has the reason and the
/// remedy.
///
/// Debian's kernels refuse task clocks to CAP_PERFMON if `kernel.perf_event_paranoid` exceeds 2.
pub fn check_permission() -> io::Result<()> {
    use crate::capabilities::{Capability, effective};
    let denied = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let has = effective()?;
    if !has.has(Capability::PerfMon) && !has.has(Capability::SysAdmin) {
        return denied("CAP_PERFMON is missing".to_owned());
    }
    let Err(error) = TaskClock::open(Tid::current()) else { return Ok(()) };
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let level: i32 = level.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if level > 2 {
        return denied(format!(
            "kernel.perf_event_paranoid is {level}, which on this kernel excludes CAP_PERFMON; set \
             it to 2"
        ));
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;

    fn wait(clock: &TaskClock, ms: i64) -> bool {
        let mut polled = [PollFd::new(clock, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 }))
            .expect("poll")
            > 0
    }

    #[test]
    fn a_task_clock_fires_after_its_cpu_time_and_records_sleeps() {
        let (send, receive) = channel();
        // Whatever the test finds, the thread ends.
        let end = clock::now() + Span::from_ns(10_000_000_000);
        let goes_on = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send.send(Tid::current()).expect("received");
                while goes_on.load(Ordering::Relaxed) && clock::now() < end {
                    let end = clock::thread_cpu_time() + Work::from_ns(1_000_000);
                    while clock::thread_cpu_time() < end {}
                    clock::sleep_until(clock::now() + Span::from_ns(1_000_000));
                }
            });
            let opened = TaskClock::open(receive.recv().expect("sent"));
            let Ok(mut clock) = opened else {
                goes_on.store(false, Ordering::Relaxed);
                eprintln!("skipped: needs the right to perf_event_open");
                return;
            };
            clock.arm(Work::from_ns(5_000_000)).expect("armed");
            assert!(wait(&clock, 5_000), "5 ms of CPU time pass");
            let (mut sleeps, mut ran, mut since) = (0, 0, None);
            let has_lost = clock.drain(|at, switch| match switch {
                Switch::In => since = Some(at),
                Switch::Runs => {}
                out => {
                    sleeps += u32::from(out == Switch::Asleep);
                    ran += since.take().map_or(0, |since| at.since(since).as_ns());
                }
            });
            assert!(!has_lost);
            assert!((2..=8).contains(&sleeps), "about one sleep per millisecond: {sleeps}");
            assert!(ran <= 8_000_000, "{ran} ns recorded");
            clock.stop().expect("stopped");
            clock.drain(|_, _| ());
            assert!(!wait(&clock, 20), "a stopped clock does not fire");
            goes_on.store(false, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_full_ring_reports_that_records_are_lost() {
        let Ok(mut clock) = TaskClock::open(Tid::current()) else {
            eprintln!("skipped: needs the right to perf_event_open");
            return;
        };
        clock.arm(Work::from_ns(NEVER_NS)).expect("armed");
        for _ in 0..300 {
            clock::sleep_until(clock::now() + Span::from_ns(10_000));
        }
        let mut count = 0;
        assert!(wait(&clock, 0), "a ring that is half full is readable");
        clock.drain(|_, _| count += 1);
        assert!(count >= PAGE / 16 - 2, "{count} records in a page");
        for _ in 0..10 {
            clock::sleep_until(clock::now() + Span::from_ns(10_000));
        }
        let (mut later, mut asleep) = (0, 0);
        clock.drain(|_, switch| {
            later += 1;
            asleep += u32::from(switch == Switch::Asleep);
        });
        assert!(asleep >= 9, "{asleep} of {later} records behind the full ring");
    }
}
