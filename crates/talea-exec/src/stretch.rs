//! For how long CPUs belonged to workers that got nothing done: switches, interrupts, waits for a
//! lock, a machine that was away.
//!
//! A CPU that is taken away in slices, each too short for the monitor, shows here all the same: the
//! clock of a thread stands still while its CPU is away, that of the machine goes on.

use crate::course::{Course, Turn};
use crate::run::RootReport;
use talea_core::{Span, Time};

/// A stretch of time in which less was done than there was time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The CPU, as the machine of its root counts.
    pub cpu: u32,
    /// From when.
    pub from: Time,
    /// To when.
    pub to: Time,
    /// How much was lost in it.
    pub by: Span,
}

/// Shorter ones are the ordinary cost of an order.
const LEAST: Span = Span::from_ns(100_000);
/// So many are kept.
const MOST: usize = 20_000;

/// The noteworthy ones of a run, in memory that was there before it.
#[derive(Clone, Debug)]
pub(crate) struct Stretches(Vec<Stretch>);

impl Stretches {
    pub(crate) fn new() -> Stretches {
        Stretches(Vec::with_capacity(MOST))
    }

    /// One more, if it is long enough. The last that there is room for stands for all behind it:
    /// nothing is known of what is lost then.
    pub(crate) fn put(&mut self, stretch: Stretch) {
        if stretch.by < LEAST || self.0.len() == MOST {
            return;
        }
        let is_last = self.0.len() + 1 == MOST;
        let all = Stretch { to: Time::NEVER, by: Time::NEVER.since(Time::ZERO), ..stretch };
        self.0.push(if is_last { all } else { stretch });
    }

    pub(crate) fn all(&self) -> &[Stretch] {
        &self.0
    }
}

/// Of a run whose workers were audited. The way from an order to its worker and from the end of a
/// job to the dispatcher belongs to it; what dispatchers use does not.
pub(crate) fn of(root: &RootReport) -> Span {
    let cpus = root.effort.len();
    let mut since: Vec<Option<Time>> = vec![None; cpus];
    let mut owned = 0;
    for &(now, turn) in Course::of(cpus as u32, &root.record).timed() {
        let (cpu, begins) = match turn {
            // What follows on its CPU is told at the same instant.
            Turn::Ended { .. } => continue,
            Turn::Runs { cpu, .. } => (cpu, Some(now)),
            Turn::Rests { cpu } => (cpu, None),
        };
        let before = std::mem::replace(&mut since[cpu.0 as usize], begins);
        owned += before.map_or(0, |before| now.since(before).as_ns());
    }
    let end = root.record.last().map_or(Time::ZERO, |entry| entry.now);
    owned += since.into_iter().flatten().map(|before| end.since(before).as_ns()).sum::<u64>();
    let done: u64 = root.consumed.iter().map(|consumed| consumed.ordered.as_ns()).sum();
    let ours = root.scheduling().as_ns();
    Span::from_ns(owned.saturating_sub(done + ours))
}
