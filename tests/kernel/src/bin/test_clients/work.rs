//! Threads that sleep, work periodically or run, as the threads of real programs do.

use rustix::thread::futex;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, atomic::AtomicU32};
use std::time::{Duration, Instant};
use talea_os::Tid;

/// Behaviour of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Blocked as long as the process lives.
    Asleep,
    /// A little work every few milliseconds.
    Periodic,
    /// More work than a small reservation permits: the thread runs, or waits for its next budget.
    Running,
}

impl Habit {
    /// All habits.
    pub(crate) const ALL: [Habit; 3] = [Habit::Asleep, Habit::Periodic, Habit::Running];
}

/// Starts a thread of this habit, which ends with the process; returns its TID. Each thread uses
/// less than a third of a CPU, so that no other thread starves under a FIFO policy.
pub(crate) fn start(habit: Habit) -> io::Result<i32> {
    let (say, heard) = channel();
    std::thread::spawn(move || {
        let _ = say.send(Tid::current().as_raw());
        let (run, rest) = match habit {
            Habit::Asleep => {
                let never = Arc::new(AtomicU32::new(0));
                loop {
                    let _ = futex::wait(&never, futex::Flags::PRIVATE, 0, None);
                }
            }
            Habit::Periodic => (Duration::from_micros(50), Duration::from_millis(2)),
            Habit::Running => (Duration::from_micros(800), Duration::from_millis(3)),
        };
        loop {
            let begun = Instant::now();
            while begun.elapsed() < run {
                std::hint::spin_loop();
            }
            std::thread::sleep(rest);
        }
    });
    heard.recv().map_err(io::Error::other)
}
