//! When a program that had nothing to do gets a CPU again.
//!
//! Model: `perf_event_open(2)`, an event of the program's first thread that whoever it creates
//! inherits, threads and processes alike, and that has the kernel write down their switches
//! (`PERF_RECORD_SWITCH`). Each record wakes who waits, and the first is the one that counts: then
//! the event is disabled until somebody asks again ([`Wakes::arm`]). That is no thrift: whoever
//! waits on the CPU of the program interrupts it, which is a switch, which would wake him, for
//! ever.
//!
//! The ring is mapped for reading only, so that the kernel writes over what nobody reads, and is
//! never full.
//!
//! Needs root, CAP_PERFMON or `kernel.perf_event_paranoid` of 0 or less. On a fully preemptible
//! kernel who waits is woken by a thread at the lowest FIFO priority (`irq_work`), which a program
//! that keeps the CPU never lets run: [`come_in_time`].

use crate::Tid;
use crate::perf::{
    self, Attr, CONTEXT_SWITCH, DISABLE, DISABLED, DUMMY, ENABLE, INHERIT, PAGE, SOFTWARE,
    WATERMARK,
};
use crate::sys::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;

/// Of one program on one CPU.
#[derive(Debug)]
pub struct Wakes {
    event: OwnedFd,
    pages: *mut libc::c_void,
}

// SAFETY: nobody looks into the mapping; it is there for the kernel, and is given back once.
unsafe impl Send for Wakes {}
// SAFETY: the same; the descriptor is used for system calls only.
unsafe impl Sync for Wakes {}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It has, or had, the CPU.
    Awake,
    /// It has ended, with everything that it had created.
    Ended,
    /// Somebody does not want to wait any more.
    Stop,
}

/// Whether the kernel wakes who waits at the moment of the switch: not if it is fully preemptible
/// (PREEMPT_RT).
pub fn come_in_time() -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    !is_preempt_rt(&read("/sys/kernel/realtime"), &read("/proc/sys/kernel/version"))
}

/// The file is not there in all of them.
fn is_preempt_rt(realtime: &str, version: &str) -> bool {
    realtime.trim() == "1" || version.split_whitespace().any(|word| word == "PREEMPT_RT")
}

const RING: usize = 2 * PAGE;

impl Wakes {
    /// Of the program whose first thread is `tid`, which has no other one yet, on `cpu`. It is not
    /// armed.
    pub fn of(tid: Tid, cpu: u32) -> io::Result<Wakes> {
        let attr = Attr {
            kind: SOFTWARE,
            size: size_of::<Attr>() as u32,
            config: DUMMY,
            flags: DISABLED | INHERIT | WATERMARK | CONTEXT_SWITCH,
            // In bytes: each record is longer.
            wakeup: 1,
            ..Attr::default()
        };
        let event = perf::open(&attr, tid.as_raw(), cpu)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let pages = unsafe {
            libc::mmap(null_mut(), RING, libc::PROT_READ, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Wakes { event, pages })
    }

    /// From now on the next switch is heard.
    pub fn arm(&self) -> io::Result<()> {
        perf::control(&self.event, ENABLE)
    }

    /// Waits until there was a switch since it was armed, which disarms it; or until `stop` is
    /// closed on its other side.
    pub fn wait(&self, stop: BorrowedFd<'_>) -> io::Result<Heard> {
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
                return Ok(Heard::Stop);
            }
            if fds[0].revents & (libc::POLLHUP | libc::POLLERR) != 0 {
                return Ok(Heard::Ended);
            }
            perf::control(&self.event, DISABLE)?;
            // What the waiter's own coming has caused meanwhile.
            // SAFETY: one valid element.
            unsafe { libc::poll(fds.as_mut_ptr(), 1, 0) };
            return Ok(Heard::Awake);
        }
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        // SAFETY: ours, of this length, and nothing borrows from it.
        unsafe { libc::munmap(self.pages, RING) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    #[test]
    fn a_fully_preemptible_kernel_is_told_by_its_file_or_its_version() {
        assert!(is_preempt_rt("1\n", "#1 SMP"));
        assert!(is_preempt_rt("", "#1 SMP PREEMPT_RT Debian 6.12\n"));
        assert!(!is_preempt_rt("0\n", "#1 SMP PREEMPT_DYNAMIC\n"));
        assert!(!is_preempt_rt("", ""));
    }

    #[test]
    fn a_program_and_its_children_are_heard_when_they_wake_and_once() {
        // The children copy a line each; nobody does anything before there is one.
        let mut child = Command::new("sh")
            .args(["-c", "read go; (read one; read two)"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        let tid = Tid::new(child.id() as i32).expect("a pid");
        let cpu =
            crate::sched::get_affinity(Tid::current()).expect("ours").iter().next().expect("one");
        crate::sched::set_affinity(tid, &talea_core::CpuSet::single(cpu)).expect("our child");
        let Ok(wakes) = Wakes::of(tid, cpu) else {
            eprintln!("skipped: needs the right to perf_event_open");
            drop(child.stdin.take());
            child.wait().expect("it ends");
            return;
        };
        let (stop, stopped) = io::pipe().expect("a pipe");
        let mut input = child.stdin.take().expect("piped");
        // Until it sleeps in its read.
        let settle = || std::thread::sleep(std::time::Duration::from_millis(50));
        settle();
        wakes.arm().expect("armed");
        input.write_all(b"go\n").expect("it listens");
        assert_eq!(wakes.wait(stop.as_fd()).expect("heard"), Heard::Awake);
        settle();
        // Now its child sleeps in a read.
        wakes.arm().expect("armed");
        input.write_all(b"one\n").expect("it listens");
        assert_eq!(wakes.wait(stop.as_fd()).expect("heard"), Heard::Awake);
        settle();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wakes.wait(stop.as_fd()));
            settle();
            // Not armed: what happens is not heard.
            input.write_all(b"two\n").expect("it listens");
            child.wait().expect("it ends");
            drop(stopped);
            let heard = waiting.join().expect("it waits").expect("heard");
            assert!(matches!(heard, Heard::Ended | Heard::Stop), "{heard:?}");
        });
    }
}
