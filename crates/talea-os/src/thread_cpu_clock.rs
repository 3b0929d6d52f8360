//! CPU time of another thread of this process.
//!
//! Model: the POSIX CPU clock of a thread (`pthread_getcpuclockid`). The kernel updates the clock
//! on each read, even for a thread that runs on another CPU at that moment. Only threads of the own
//! process have a readable clock. For other threads the kernel offers nothing finer than the tick.

use std::io;
use talea_core::Work;

/// CPU clock of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCpuClock(libc::clockid_t);

impl ThreadCpuClock {
    /// Returns the clock of the calling thread, for other threads to read.
    pub fn current() -> io::Result<ThreadCpuClock> {
        let mut clock = 0;
        // SAFETY: the calling thread exists, and `clock` is a place for one clock id.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        if failed == 0 { Ok(ThreadCpuClock(clock)) } else { Err(crate::sys::errno(failed)) }
    }

    /// Reads the CPU time used since the thread started. Returns `EINVAL` once the thread has
    /// ended.
    pub fn read(self) -> io::Result<Work> {
        let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes one timespec; a clock id that names nothing is an error.
        crate::sys::check(unsafe { libc::clock_gettime(self.0, &raw mut used) })?;
        Ok(Work::from_ns(used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn another_thread_is_read_while_it_runs_and_sleeps() {
        let (send, received) = channel();
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while crate::clock::thread_cpu_time() < Work::from_ns(2_000_000) {}
            send.send(ThreadCpuClock::current().expect("a clock")).expect("the test receives");
            let _ = stopped.recv();
        });
        let clock = received.recv().expect("its clock");
        assert!(clock.read().expect("alive") >= Work::from_ns(2_000_000));
        drop(stop);
        thread.join().expect("it ends");
        // A join returns when the kernel has released the thread's memory, which is a little before
        // the thread is gone.
        let timeout = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while clock.read().is_ok() {
            assert!(
                std::time::Instant::now() < timeout,
                "the clock of a thread that has ended can still be read"
            );
            std::thread::yield_now();
        }
    }
}
