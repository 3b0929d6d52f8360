//! The independent monitor: when did this CPU stand still for everybody?
//!
//! A thread on the job's CPU, above every fixed priority that a plugin may hand out, asks to be woken four times a
//! millisecond. If it is late, no fixed priority of ours made it so: the CPU was taken away (by the hypervisor, by firmware,
//! by the kernel with interrupts off), or a deadline thread had it, which outranks everybody; the job must not be one.
//!
//! A hole is booked from when the thread was due until it ran: that much is sure, and how long before it had begun nobody knows.
//! A virtual CPU that is taken away for less than the distance of wake-ups, again and again, is slow rather than gone; of
//! that only a part is seen here, and the job's own CPU time tells the rest. Costs 2 to 3 % of the CPU, in every run alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use talea_core::{CpuSet, Span, Time};
use talea_os::{Attr, Policy, Tid, clock, sched};

/// Above every plugin's band, below the kernel's own watchdogs.
const PRIORITY: u8 = 98;
const DISTANCE: Span = Span::from_ns(250_000);
/// Being late by less is the ordinary cost of waking up: 15 to 60 us where it was measured.
const LATE: Span = Span::from_ns(100_000);
/// More than this many holes say nothing that the first ones did not.
const MOST: usize = 100_000;

/// From when to when nothing ran, at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) from: Time,
    pub(super) to: Time,
}

/// A running monitor.
pub(super) struct Monitor {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<std::io::Result<Vec<Hole>>>,
}

impl Monitor {
    /// Starts on `cpu`.
    pub(super) fn start(cpu: u32) -> Monitor {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
            sched::set(Tid::current(), &Attr::grant(Policy::Fifo(PRIORITY)))?;
            Ok(watch(&seen))
        });
        Monitor { stop, thread }
    }

    /// What it saw; an error where it had no right to watch.
    pub(super) fn stop(self) -> std::io::Result<Vec<Hole>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn watch(stop: &AtomicBool) -> Vec<Hole> {
    let mut holes = Vec::with_capacity(MOST);
    let mut awake = clock::now();
    while !stop.load(Ordering::Relaxed) && holes.len() < MOST {
        // Not the last one that was due: what was missed during a hole is not made up for.
        let due = awake + DISTANCE;
        clock::sleep_until(due);
        awake = clock::now();
        holes.extend(hole(due, awake));
    }
    holes
}

/// What a thread knows that was due to wake at `due` and is awake at `awake`.
fn hole(due: Time, awake: Time) -> Option<Hole> {
    (awake > due + LATE).then_some(Hole { from: due, to: awake })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_sure_is_a_hole() {
        let at = |us: u64| Time::from_ns(us * 1_000);
        assert_eq!(hole(at(1_000), at(1_000)), None);
        assert_eq!(hole(at(1_000), at(1_060)), None, "an ordinary wake-up");
        assert_eq!(hole(at(1_000), at(1_100)), None);
        assert_eq!(hole(at(1_000), at(1_350)), Some(Hole { from: at(1_000), to: at(1_350) }));
    }
}
