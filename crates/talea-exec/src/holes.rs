//! When did a CPU stand still for everybody?
//!
//! The independent monitor: a thread on the CPU, above everything that a run may order, asks to be woken at a fixed distance.
//! If it is late, no decision of ours made it so: the CPU was taken away (by the hypervisor, by firmware, by the kernel
//! with interrupts off). Costs about 20 µs a look on a virtual machine. Holes shorter than its distance may stay unseen.

use crate::stage::Ranks;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use talea_core::{CpuSet, Span, Time};
use talea_os::{Tid, clock, sched};

/// From when to when nothing ran, on the run's own time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The CPU, as the kernel counts.
    pub cpu: u32,
    /// When the monitor wanted to be awake.
    pub from: Time,
    /// When it was.
    pub to: Time,
}

impl Hole {
    /// How long it was at least.
    pub fn length(&self) -> Span {
        self.to.since(self.from)
    }
}

/// Distance of looks: a hole may have begun so much before it was seen.
pub const DISTANCE: Span = Span::from_ns(1_000_000);
/// Being late by less is the ordinary cost of waking up.
const LATE: Span = Span::from_ns(300_000);
/// More than this many holes say nothing that the first ones did not.
const MOST: usize = 10_000;

/// Puts the calling thread where the monitor of `cpu` stands.
pub(crate) fn enter(cpu: u32, ranks: Ranks) -> io::Result<()> {
    sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
    ranks.watchdog(Tid::current())
}

/// Watches `cpu` from `zero` on until it is told to stop.
pub(crate) fn watch(cpu: u32, zero: Time, stop: &AtomicBool) -> Vec<Hole> {
    let mut holes = Vec::with_capacity(MOST);
    let mut due = zero;
    while !stop.load(Ordering::Relaxed) && holes.len() < MOST {
        clock::sleep_until(due);
        let now = clock::now();
        if now.since(due) > LATE {
            let of_run = |at: Time| Time::from_ns(at.as_ns().saturating_sub(zero.as_ns()));
            holes.push(Hole { cpu, from: of_run(due), to: of_run(now) });
        }
        // Not `due + DISTANCE`: what was missed during a hole is not made up for.
        due = now + DISTANCE;
    }
    holes
}
