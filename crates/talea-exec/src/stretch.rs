//! For how long CPUs belonged to workers that got nothing done: switches, interrupts, waits for a lock, a machine that was away for
//! too short to be seen as a hole.

use crate::course::{Course, Turn};
use crate::run::RootReport;
use talea_core::{Span, Time};

/// Of a run whose workers were audited. The way from an order to its worker and from the end of a job to the dispatcher belongs to
/// it; what dispatchers use does not.
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
    let ours: u64 = root.effort.iter().map(|effort| effort.used.as_ns()).sum();
    Span::from_ns(owned.saturating_sub(done + ours))
}
