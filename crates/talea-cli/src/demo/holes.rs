//! The independent monitor: when did this CPU stand still for everybody?
//!
//! A thread on the job's CPU, above every priority that a plugin may hand out, asks to be woken four times a millisecond.
//! If it is late, no scheduling decision of ours made it so: the CPU was taken away (by the hypervisor, by firmware, by
//! the kernel with interrupts off). A virtual CPU is often taken away for less than a millisecond, but many times in a
//! row, so that it is slow rather than gone. Wake-ups sample that: of slices shorter than the distance of wake-ups only
//! some are hit, and since nobody knows when a slice began that was hit, it is taken to have begun half a distance before
//! the wake-up was due. For slices as long as the distance the sum over many is what was lost, for shorter ones less:
//! nothing is excused that was not lost. Costs 2 to 3 % of the CPU, in every run alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use talea_core::{CpuSet, Span, Time};
use talea_os::{Attr, Policy, Tid, clock, sched};

/// Above every plugin's band, below the kernel's own watchdogs.
const PRIORITY: u8 = 98;
const DISTANCE: Span = Span::from_ns(250_000);
const HALF: Span = Span::from_ns(DISTANCE.as_ns() / 2);
/// Being late by less is the ordinary cost of waking up: 15 to 60 us where it was measured.
const LATE: Span = Span::from_ns(100_000);
/// More than this many holes say nothing that the first ones did not.
const MOST: usize = 100_000;

/// From when to when nothing ran, as far as can be known.
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
        let before = awake + HALF;
        awake = clock::now();
        if awake.since(due) > LATE {
            holes.push(Hole { from: before, to: awake });
        }
    }
    holes
}
