//! What another thread of this process has used of the CPU.
//!
//! Model: the POSIX CPU clock of a thread (`pthread_getcpuclockid`), which the kernel brings up to
//! date when it is read, also for a thread that runs on another CPU at that moment. Only threads of
//! the own process have one that can be read; for others there is nothing finer than the tick.

use std::io;
use talea_core::Work;

/// The CPU clock of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// That of the calling thread, for others to read.
    pub fn current() -> io::Result<ThreadClock> {
        let mut clock = 0;
        // SAFETY: the calling thread exists, and `clock` is a place for one clock id.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        if failed == 0 { Ok(ThreadClock(clock)) } else { Err(crate::sys::errno(failed)) }
    }

    /// What the thread has used since it began. `EINVAL` once it has ended.
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
        let (say, heard) = channel();
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while crate::clock::thread_cpu_time() < Work::from_ns(2_000_000) {}
            say.send(ThreadClock::current().expect("a clock")).expect("somebody listens");
            let _ = stopped.recv();
        });
        let clock = heard.recv().expect("its clock");
        assert!(clock.read().expect("alive") >= Work::from_ns(2_000_000));
        drop(stop);
        thread.join().expect("it ends");
        // A join returns when the kernel has let go of the thread's memory, which is a little
        // before the thread is gone.
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while clock.read().is_ok() {
            assert!(
                std::time::Instant::now() < patience,
                "the clock of a thread that has ended can still be read"
            );
            std::thread::yield_now();
        }
    }
}
