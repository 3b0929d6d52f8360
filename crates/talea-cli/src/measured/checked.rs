//! The kernel's switches against the orders of a run.

use serde::Serialize;
use talea_core::{Span, Time};
use talea_exec::holes::DISTANCE;
use talea_exec::truth::out_of_order;
use talea_exec::{Hole, Ran, RootReport};

/// Of one root.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Checked {
    /// How often a worker had a CPU without a pause.
    pub(crate) stays: usize,
    /// For how long workers had one without an order: until an order took effect, and from the end of a job until its worker slept.
    pub(crate) out_of_order_ns: u64,
    /// The longest of that, beside holes.
    pub(crate) longest_ns: u64,
    /// What was longer than the tolerance, beside holes: workers that the machine had not chosen.
    #[serde(skip)]
    pub(crate) wrong: Vec<Ran>,
}

/// Checks a root on `cpus`; nothing, where the kernel was not asked, or did not answer.
pub(crate) fn check(
    real: &RootReport,
    cpus: &[u32],
    (holes, length): (&[Hole], Span),
    tolerance: Span,
) -> Option<Checked> {
    let ran = real.ran.as_ref()?;
    // Whoever obeys for another CPU may be away itself: any hole of the root excuses.
    let is_excused = |out: &Ran| {
        holes.iter().filter(|hole| cpus.contains(&hole.cpu)).any(|hole| {
            let from = Time::from_ns(hole.from.as_ns().saturating_sub(DISTANCE.as_ns()));
            out.from <= hole.to.saturating_add(DISTANCE) && from <= out.to
        })
    };
    let all = match &real.native {
        Some(course) => course.out_of_order(ran, Time::ZERO + length),
        None => out_of_order(cpus.len() as u32, &real.record, ran),
    };
    let counted: Vec<Ran> = all.iter().copied().filter(|out| !is_excused(out)).collect();
    Some(Checked {
        stays: ran.len(),
        out_of_order_ns: all.iter().map(|out| out.length().as_ns()).sum(),
        longest_ns: counted.iter().map(|out| out.length().as_ns()).max().unwrap_or(0),
        wrong: counted.into_iter().filter(|out| out.length() > tolerance).collect(),
    })
}
