//! Detects that a blocked program gets a CPU again.
//!
//! Model: `perf_event_open(2)`. An event of the program's first thread, inherited by all threads
//! and processes that the program creates, makes the kernel record their context switches
//! (`PERF_RECORD_SWITCH`). Each record wakes the waiting thread, and only the first counts: the
//! event is then disabled until [`WakeupWatch::arm`]. This is required, not an optimisation: a
//! waiting thread on the program's CPU interrupts the program, which is a switch, which would wake
//! the thread again, forever.
//!
//! A watch on a cgroup ([`WakeupWatch::open_group`]) is an event of the cgroup instead, so it
//! covers every thread that is ever in it. That needs CONFIG_CGROUP_PERF, and no hierarchy of
//! version 1 that has the controller `perf_event`.
//!
//! The ring is mapped read-only, so the kernel overwrites unread records and the ring is never
//! full.
//!
//! Needs root, CAP_PERFMON or `kernel.perf_event_paranoid` of 0 or less. On a fully preemptible
//! kernel the waiting thread is woken by a kernel thread at the lowest FIFO priority (`irq_work`).
//! A program that keeps the CPU never lets that thread run: see [`events_are_timely`].

use crate::Tid;
use crate::cgroup::{Cgroup, CgroupChanges};
use crate::perf::{
    self, Attr, CONTEXT_SWITCH, DISABLE, DISABLED, DUMMY, ENABLE, INHERIT, PAGE, SOFTWARE,
    WATERMARK,
};
use crate::sys::check;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::time::Duration;

/// Watch on the context switches of one program or cgroup on one CPU.
#[derive(Debug)]
pub struct WakeupWatch {
    event: OwnedFd,
    pages: *mut libc::c_void,
}

// SAFETY: the mapping is never read; it exists for the kernel, and is unmapped once.
unsafe impl Send for WakeupWatch {}
// SAFETY: as above; the descriptor is used for system calls only.
unsafe impl Sync for WakeupWatch {}

/// Cause of the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeupEvent {
    /// The program has the CPU, or has had it since the watch was armed.
    Switched,
    /// The program and all processes that it created have ended.
    Ended,
    /// The other side of `stop` was closed.
    Cancelled,
}

/// Cause of the end of a wait for a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// A thread of the cgroup has the CPU, or has had it since the watch was armed.
    Switched,
    /// `cgroup.events` has changed.
    Changed,
    /// The time is over.
    TimedOut,
    /// The other side of `stop` was closed.
    Cancelled,
}

/// Whether the kernel wakes the waiting thread at the time of the switch. A fully preemptible
/// kernel (PREEMPT_RT) does not.
pub fn events_are_timely() -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    !is_preempt_rt(&read("/sys/kernel/realtime"), &read("/proc/sys/kernel/version"))
}

/// Whether the kernel is fully preemptible, according to two files. Not all kernels have the first
/// file.
fn is_preempt_rt(realtime: &str, version: &str) -> bool {
    realtime.trim() == "1" || version.split_whitespace().any(|word| word == "PREEMPT_RT")
}

const RING_SIZE: usize = 2 * PAGE;

/// Returns the attributes of a disabled event with these flags in addition.
fn attr(flags: u64) -> Attr {
    Attr {
        kind: SOFTWARE,
        size: size_of::<Attr>() as u32,
        config: DUMMY,
        flags: DISABLED | WATERMARK | CONTEXT_SWITCH | flags,
        // One byte: each record is longer.
        wakeup: 1,
        ..Attr::default()
    }
}

impl WakeupWatch {
    /// Opens a disarmed watch on `cpu` for the program whose first thread is `tid`. The program
    /// must have no other thread yet.
    pub fn open(tid: Tid, cpu: u32) -> io::Result<WakeupWatch> {
        WakeupWatch::map(perf::open(&attr(INHERIT), tid.as_raw(), cpu)?)
    }

    /// Opens a disarmed watch on `cpu` for all present and later members of `cgroup`.
    pub fn open_group(cgroup: &Cgroup, cpu: u32) -> io::Result<WakeupWatch> {
        let directory = File::open(cgroup.path())?;
        WakeupWatch::map(perf::open_on_cgroup(&attr(0), &directory, cpu)?)
    }

    fn map(event: OwnedFd) -> io::Result<WakeupWatch> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let pages = unsafe {
            libc::mmap(
                null_mut(),
                RING_SIZE,
                libc::PROT_READ,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(WakeupWatch { event, pages })
    }

    /// Arms the watch: the next switch is reported.
    pub fn arm(&self) -> io::Result<()> {
        perf::control(&self.event, ENABLE)
    }

    /// Waits until the watch reports a switch or the other side of `stop` is closed. The watch is
    /// disarmed after a switch.
    pub fn wait(&self, stop: BorrowedFd<'_>) -> io::Result<WakeupEvent> {
        let poll = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [poll(self.event.as_raw_fd()), poll(stop.as_raw_fd())];
        loop {
            // SAFETY: two valid elements.
            match check(unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            if fds[1].revents != 0 {
                return Ok(WakeupEvent::Cancelled);
            }
            if fds[0].revents & (libc::POLLHUP | libc::POLLERR) != 0 {
                return Ok(WakeupEvent::Ended);
            }
            self.disarm()?;
            return Ok(WakeupEvent::Switched);
        }
    }

    /// Disarms the watch, and consumes the records that the waiting thread's own switch has caused
    /// meanwhile.
    fn disarm(&self) -> io::Result<()> {
        perf::control(&self.event, DISABLE)?;
        let mut fd = libc::pollfd { fd: self.event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid element.
        unsafe { libc::poll(&raw mut fd, 1, 0) };
        Ok(())
    }
}

/// Waits for a switch to a member of a cgroup, a change of its membership, the end of `timeout`, or
/// until the other side of `stop` is closed. Without `watch` no switch is reported. The watch is
/// disarmed after a switch.
pub fn wait_for_group(
    watch: Option<&WakeupWatch>,
    changes: &CgroupChanges,
    stop: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> io::Result<GroupEvent> {
    let poll = |fd: i32, events: i16| libc::pollfd { fd, events, revents: 0 };
    // The kernel ignores a negative descriptor.
    let event = watch.map_or(-1, |watch| watch.event.as_raw_fd());
    let mut fds = [
        poll(stop.as_raw_fd(), libc::POLLIN),
        poll(event, libc::POLLIN),
        poll(changes.as_fd().as_raw_fd(), libc::POLLPRI),
    ];
    let ms = timeout.map_or(-1, |timeout| i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    loop {
        // SAFETY: three valid elements.
        match check(unsafe { libc::poll(fds.as_mut_ptr(), 3, ms) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
            Ok(0) => return Ok(GroupEvent::TimedOut),
            Ok(_) => {}
        }
        if fds[0].revents != 0 {
            return Ok(GroupEvent::Cancelled);
        }
        if fds[1].revents & (libc::POLLHUP | libc::POLLERR) != 0 {
            return Err(io::Error::other("the kernel has detached the event from the cgroup"));
        }
        if fds[1].revents != 0 {
            watch.map_or(Ok(()), WakeupWatch::disarm)?;
            return Ok(GroupEvent::Switched);
        }
        return Ok(GroupEvent::Changed);
    }
}

impl Drop for WakeupWatch {
    fn drop(&mut self) {
        // SAFETY: ours, of this length, and nothing borrows from it.
        unsafe { libc::munmap(self.pages, RING_SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    #[test]
    fn a_fully_preemptible_kernel_is_recognised_by_its_file_or_its_version() {
        assert!(is_preempt_rt("1\n", "#1 SMP"));
        assert!(is_preempt_rt("", "#1 SMP PREEMPT_RT Debian 6.12\n"));
        assert!(!is_preempt_rt("0\n", "#1 SMP PREEMPT_DYNAMIC\n"));
        assert!(!is_preempt_rt("", ""));
    }

    #[test]
    fn a_wakeup_of_a_program_or_its_child_is_reported_once() {
        // Each child copies a line, and waits until there is one.
        let mut child = Command::new("sh")
            .args(["-c", "read go; (read one; read two)"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        let tid = Tid::new(child.id() as i32).expect("a pid");
        let cpu =
            crate::sched::get_affinity(Tid::current()).expect("ours").iter().next().expect("one");
        crate::sched::set_affinity(tid, &talea_core::CpuSet::single(cpu)).expect("our child");
        let Ok(watch) = WakeupWatch::open(tid, cpu) else {
            eprintln!("skipped: needs the right to perf_event_open");
            drop(child.stdin.take());
            child.wait().expect("it ends");
            return;
        };
        let (stop, stopped) = io::pipe().expect("a pipe");
        let mut input = child.stdin.take().expect("piped");
        // Until the shell sleeps in its read.
        let settle = || std::thread::sleep(std::time::Duration::from_millis(50));
        settle();
        watch.arm().expect("armed");
        input.write_all(b"go\n").expect("the shell reads");
        assert_eq!(watch.wait(stop.as_fd()).expect("an event"), WakeupEvent::Switched);
        settle();
        // Now the child sleeps in a read.
        watch.arm().expect("armed");
        input.write_all(b"one\n").expect("the shell reads");
        assert_eq!(watch.wait(stop.as_fd()).expect("an event"), WakeupEvent::Switched);
        settle();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| watch.wait(stop.as_fd()));
            settle();
            // Not armed: the switch is not reported.
            input.write_all(b"two\n").expect("the shell reads");
            child.wait().expect("it ends");
            drop(stopped);
            let event = waiting.join().expect("the waiting thread ends").expect("an event");
            assert!(matches!(event, WakeupEvent::Ended | WakeupEvent::Cancelled), "{event:?}");
        });
    }
}
