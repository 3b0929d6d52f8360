//! When did a CPU stand still for everybody?
//!
//! The independent monitor: a thread on the CPU, above everything that a run may order, asks to be woken at a fixed distance.
//! If it is late, no decision of ours made it so: the CPU was taken away (by the hypervisor, by firmware, by the kernel
//! with interrupts off). Costs about 20 µs a look on a virtual machine. Holes shorter than its distance may stay unseen.

use crate::native::worker::claim;
use crate::stage::Ranks;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use talea_core::{CpuSet, Span, Time, Work};
use talea_os::sched::{self, Policy};
use talea_os::{Tid, clock};

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

/// Above workers of SCHED_DEADLINE nothing stands: there the monitor has a reservation of its own, of six thousandths of the CPU, with
/// a shorter deadline than they have, and looks less often.
const RARELY: Span = Span::from_ns(10_000_000);

/// So long after it was woken for the last time such a monitor has a new budget. One that is woken between its deadline and its period gets
/// the next budget at the end of that period, and the one behind that is a period later still.
pub(crate) const SETTLED: Span = Span::from_ns(2 * RARELY.as_ns());

/// Puts the calling thread where the monitor of `cpu` stands that looks so rarely.
pub(crate) fn enter_reserved(cpu: u32) -> io::Result<()> {
    sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
    let runtime = Work::from_ns(60_000);
    let (deadline, period) = (LATE, RARELY.checked_sub(LATE).unwrap_or(RARELY));
    claim(Policy::Deadline { runtime, deadline, period })
}

/// The same as [`watch`], by one that stands there. What was missed before the look that was late belongs to the hole.
pub(crate) fn watch_rarely(cpu: u32, zero: Time, stop: &AtomicBool) -> Vec<Hole> {
    let earlier = RARELY.as_ns() - DISTANCE.as_ns();
    let of = |hole: Hole| Hole { from: Time::from_ns(hole.from.as_ns().saturating_sub(earlier)), ..hole };
    look(cpu, zero, stop, RARELY).into_iter().map(of).collect()
}

/// Watches `cpu` from `zero` on until it is told to stop.
pub(crate) fn watch(cpu: u32, zero: Time, stop: &AtomicBool) -> Vec<Hole> {
    look(cpu, zero, stop, DISTANCE)
}

fn look(cpu: u32, zero: Time, stop: &AtomicBool, distance: Span) -> Vec<Hole> {
    let mut holes = Vec::with_capacity(MOST);
    let mut due = zero;
    while !stop.load(Ordering::Relaxed) && holes.len() < MOST {
        clock::sleep_until(due);
        let now = clock::now();
        if now.since(due) > LATE {
            let of_run = |at: Time| Time::from_ns(at.as_ns().saturating_sub(zero.as_ns()));
            holes.push(Hole { cpu, from: of_run(due), to: of_run(now) });
        }
        // Not `due + distance`: what was missed during a hole is not made up for.
        due = now + distance;
    }
    holes
}
