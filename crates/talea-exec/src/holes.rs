//! When did a CPU stand still for everybody?
//!
//! The independent monitor: a thread on the CPU, above everything that a run may order, asks to be
//! woken at a fixed distance. If it is late, no decision of ours made it so: the CPU was taken away
//! (by the hypervisor, by firmware, by the kernel with interrupts off). Costs about 20 µs a look on
//! a virtual machine. Holes no longer than [`UNSEEN`] may stay unseen. A hole is booked from when
//! the monitor was due until it ran: that much is sure, and how long before it had begun nobody
//! knows.
//!
//! Runs have their own; [`Monitor`] is for whoever measures without one.

use crate::native::worker::claim;
use crate::stage::Ranks;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use talea_core::mutate;
use talea_core::{CpuSet, Span, Time, Work};
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock};

/// From when to when nothing ran: on the run's own time line, or on the machine's clock if a
/// [`Monitor`] saw it.
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
/// A hole that begins just behind a look and is no longer than this is late by no more than waking
/// up is: no run's monitor sees it.
pub const UNSEEN: Span = Span::from_ns(DISTANCE.as_ns() + LATE.as_ns());
/// So far behind whole distances from a run's zero its monitor looks: a look takes some ten
/// microseconds from whoever runs, and what is described in milliseconds, or tenths of them, begins
/// and ends at other times.
const ASIDE: Span = Span::from_ns(620_000);
/// More than this many holes say nothing that the first ones did not.
const MOST: usize = 20_000;

/// How a monitor looks.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Between two looks. What is asked of the CPU grows with their number.
    pub distance: Span,
    /// Being late by no more than this is the ordinary cost of waking up.
    pub late: Span,
}

impl Looks {
    /// As monitors of runs look.
    pub const OF_RUNS: Looks = Looks { distance: DISTANCE, late: LATE };

    /// What a thread knows that was due to wake at `due` and is awake at `awake`, on `cpu`.
    fn hole(&self, cpu: u32, due: Time, awake: Time) -> Option<Hole> {
        (awake > mutate!("exec-hole-ordinary", due + self.late, due)).then_some(Hole {
            cpu,
            from: due,
            to: awake,
        })
    }

    /// When to look next, awake at `awake` for a look at `due`: at whole distances from it. What
    /// was missed is not made up for.
    fn next(&self, due: Time, awake: Time) -> Time {
        let missed = awake.since(due).as_ns() / self.distance.as_ns();
        mutate!(
            "exec-hole-aside",
            due + Span::from_ns((missed + 1) * self.distance.as_ns()),
            due + Span::from_ns(missed * self.distance.as_ns()) + self.distance + awake.since(due)
        )
    }
}

/// A monitor that runs until it is stopped.
#[derive(Debug)]
pub struct Monitor {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Hole>>>,
}

impl Monitor {
    /// Starts on `cpu`, as a SCHED_FIFO thread of that priority: above all that is to be excused by
    /// what it sees.
    pub fn start(cpu: u32, priority: u8, looks: Looks) -> Monitor {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
            sched::set(Tid::current(), &Attr::grant(Policy::Fifo(priority)))?;
            Ok(look_steadily(cpu, clock::now(), &seen, looks))
        });
        Monitor { stop, thread }
    }

    /// What it saw, on the machine's clock; an error where it had no right to watch.
    pub fn stop(self) -> io::Result<Vec<Hole>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Puts the calling thread where the monitor of `cpu` stands.
pub(crate) fn enter(cpu: u32, ranks: Ranks) -> io::Result<()> {
    sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
    ranks.watchdog(Tid::current())
}

/// Above workers of SCHED_DEADLINE nothing stands: there the monitor has a reservation of its own,
/// of six thousandths of the CPU, with a shorter deadline than they have, and looks less often.
const RARELY: Span = Span::from_ns(10_000_000);

/// So long after it was woken for the last time such a monitor has a new budget. One that is woken
/// between its deadline and its period gets the next budget at the end of that period, and the one
/// behind that is a period later still.
pub(crate) const SETTLED: Span = Span::from_ns(2 * RARELY.as_ns());

/// Puts the calling thread where the monitor of `cpu` stands that looks so rarely.
pub(crate) fn enter_reserved(cpu: u32) -> io::Result<()> {
    sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
    let runtime = Work::from_ns(60_000);
    let (deadline, period) = (LATE, RARELY.checked_sub(LATE).unwrap_or(RARELY));
    claim(Policy::Deadline { runtime, deadline, period })
}

/// The same as [`watch`], by one that stands there. What was missed before the look that was late
/// belongs to the hole.
pub(crate) fn watch_rarely(cpu: u32, zero: Time, stop: &AtomicBool) -> Vec<Hole> {
    let earlier = RARELY.as_ns() - DISTANCE.as_ns();
    let of = |hole: Hole| Hole {
        from: Time::from_ns(hole.from.as_ns().saturating_sub(earlier)),
        ..hole
    };
    let looks = Looks { distance: RARELY, ..Looks::OF_RUNS };
    // Its reservation is to have rested for as long as it is.
    since(zero, look(cpu, zero, stop, looks, |_, awake| awake + RARELY)).map(of).collect()
}

/// Watches `cpu` from `zero` on until it is told to stop.
pub(crate) fn watch(cpu: u32, zero: Time, stop: &AtomicBool) -> Vec<Hole> {
    since(zero, look_steadily(cpu, zero + ASIDE, stop, Looks::OF_RUNS)).collect()
}

fn since(zero: Time, holes: Vec<Hole>) -> impl Iterator<Item = Hole> {
    let of_run = move |at: Time| Time::from_ns(at.as_ns().saturating_sub(zero.as_ns()));
    holes.into_iter().map(move |hole| Hole { from: of_run(hole.from), to: of_run(hole.to), ..hole })
}

fn look_steadily(cpu: u32, begin: Time, stop: &AtomicBool, looks: Looks) -> Vec<Hole> {
    look(cpu, begin, stop, looks, |due, awake| looks.next(due, awake))
}

fn look(
    cpu: u32,
    begin: Time,
    stop: &AtomicBool,
    looks: Looks,
    next: impl Fn(Time, Time) -> Time,
) -> Vec<Hole> {
    let mut holes = Vec::with_capacity(MOST);
    let mut due = begin;
    while !stop.load(Ordering::Relaxed) && holes.len() < MOST {
        clock::sleep_until(due);
        let awake = clock::now();
        holes.extend(looks.hole(cpu, due, awake));
        due = next(due, awake);
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_sure_is_a_hole() {
        let at = |us: u64| Time::from_ns(us * 1_000);
        let looks = Looks { distance: Span::from_ns(250_000), late: Span::from_ns(100_000) };
        let hole = |awake| looks.hole(1, at(1_000), awake);
        assert_eq!(hole(at(1_000)), None);
        assert_eq!(hole(at(1_060)), None, "an ordinary wake-up");
        assert_eq!(hole(at(1_100)), None);
        assert_eq!(hole(at(1_350)), Some(Hole { cpu: 1, from: at(1_000), to: at(1_350) }));
    }

    #[test]
    fn looks_keep_their_distance_and_make_up_for_none() {
        let at = |us: u64| Time::from_ns(us * 1_000);
        let next = |due, awake| Looks::OF_RUNS.next(at(due), at(awake));
        assert_eq!([next(620, 620), next(620, 641), next(620, 1_619)], [at(1_620); 3]);
        assert_eq!([next(620, 1_620), next(620, 4_000)], [at(2_620), at(4_620)]);
    }

    #[test]
    fn what_no_look_can_have_missed_is_seen_wherever_it_begins() {
        let is_seen = |begin: u64, length: u64| {
            let due = begin.next_multiple_of(DISTANCE.as_ns());
            let awake = due.max(begin + length);
            Looks::OF_RUNS.hole(0, Time::from_ns(due), Time::from_ns(awake)).is_some()
        };
        let begins = || (1..=DISTANCE.as_ns()).step_by(777);
        assert!(begins().all(|begin| is_seen(begin, UNSEEN.as_ns())));
        // Just behind a look it is late by no more than waking up is.
        assert!(!is_seen(1, UNSEEN.as_ns() - 1));
        assert!(!begins().any(|begin| is_seen(begin, LATE.as_ns())));
    }
}
