//! The independent monitor: when did this CPU stand still for everybody?
//!
//! A thread on the job's CPU, above every priority that a plugin may hand out, asks to be woken every millisecond. If it
//! is late, no scheduling decision of ours made it so: the CPU was taken away (by the hypervisor, by firmware, by the
//! kernel with interrupts off). Costs 1 to 2 % of the CPU, in every run alike. Shorter holes than its distance stay unseen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use talea_core::{CpuSet, Span, Time};
use talea_os::{Attr, Policy, Tid, clock, sched};

/// Above every plugin's band, below the kernel's own watchdogs.
const PRIORITY: u8 = 98;
const DISTANCE: Span = Span::from_ns(1_000_000);
/// Being late by less is the ordinary cost of waking up.
const LATE: Span = Span::from_ns(500_000);
/// More than this many holes say nothing that the first ones did not.
const MOST: usize = 100_000;

/// From when to when nothing ran.
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
    let mut holes = Vec::with_capacity(1024);
    let mut due = clock::now() + DISTANCE;
    while !stop.load(Ordering::Relaxed) && holes.len() < MOST {
        clock::sleep_until(due);
        let now = clock::now();
        if now.since(due) > LATE {
            holes.push(Hole { from: due, to: now });
        }
        // Not `due + DISTANCE`: what was missed during a hole is not made up for.
        due = now + DISTANCE;
    }
    holes
}
