//! The kernel's switches against the orders of a run.

use serde::Serialize;
use talea_core::machine::TaskId;
use talea_core::{Span, Time};
use talea_exec::holes::{DISTANCE, UNSEEN};
use talea_exec::truth::{out_of_order, unobeyed};
use talea_exec::{Hole, Ran, RootReport, Stretch, Unobeyed};

/// Of one root.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Checked {
    /// How often a worker had a CPU without a pause.
    pub(crate) stays: usize,
    /// For how long workers had one without an order: until an order took effect, and from the end
    /// of a job until its worker slept.
    pub(crate) out_of_order_ns: u64,
    /// The longest of that, beside holes.
    pub(crate) longest_ns: u64,
    /// The longest in which a CPU did not do what was ordered, beside holes: it was idle, or
    /// something else of ours had it.
    pub(crate) unobeyed_ns: u64,
    /// What was longer than the tolerance, beside holes: workers that the machine had not chosen.
    #[serde(skip)]
    pub(crate) wrong: Vec<Ran>,
    /// Orders that were not obeyed for longer than the tolerance: faults of ours, which excuse
    /// nothing.
    #[serde(skip)]
    pub(crate) faults: Vec<Unobeyed>,
}

impl Checked {
    /// Whether nothing contradicts.
    pub(crate) fn is_obeyed(&self) -> bool {
        self.wrong.is_empty() && self.faults.is_empty()
    }
}

/// Dispatchers take their share of a long order, in thousandths.
const OWN_SHARE: u64 = 20;

/// Checks a root on `cpus`; nothing, where the kernel was not asked, or did not answer. What a
/// monitor of holes may have missed is tolerated whatever the tolerance: it may be the machine's.
pub(crate) fn check(
    real: &RootReport,
    cpus: &[u32],
    (holes, length): (&[Hole], Span),
    tolerance: Span,
) -> Option<Checked> {
    let ran = real.ran.as_ref()?;
    let tolerance = tolerance.max(UNSEEN);
    let holes = widened(cpus, holes);
    let is_excused = |out: &Ran| holes.iter().any(|&(from, to)| out.from <= to && from <= out.to);
    let all = match &real.native {
        Some(course) => course.out_of_order(ran, Time::ZERO + length),
        None => out_of_order(cpus.len() as u32, &real.record, ran),
    };
    let counted: Vec<Ran> = all.iter().copied().filter(|out| !is_excused(out)).collect();
    let unobeyed = not_obeyed(real, &holes, length);
    let is_long = |one: &Unobeyed| {
        let share = Span::from_ns(one.to.since(one.from).as_ns() / 1_000 * OWN_SHARE);
        one.by() > tolerance + share
    };
    Some(Checked {
        stays: ran.len(),
        out_of_order_ns: all.iter().map(|out| out.length().as_ns()).sum(),
        longest_ns: counted.iter().map(|out| out.length().as_ns()).max().unwrap_or(0),
        unobeyed_ns: unobeyed.iter().map(|one| one.by().as_ns()).max().unwrap_or(0),
        wrong: counted.into_iter().filter(|out| out.length() > tolerance).collect(),
        faults: unobeyed.into_iter().filter(is_long).collect(),
    })
}

/// Holes on these CPUs, each as long as it may have been. Whoever obeys for another CPU may be away
/// itself: any hole of the root excuses.
fn widened(cpus: &[u32], holes: &[Hole]) -> Vec<(Time, Time)> {
    let of = |hole: &Hole| {
        let from = Time::from_ns(hole.from.as_ns().saturating_sub(DISTANCE.as_ns()));
        (from, hole.to.saturating_add(DISTANCE))
    };
    holes.iter().filter(|hole| cpus.contains(&hole.cpu)).map(of).collect()
}

/// What is left of a stretch of time without these.
fn without(from: Time, to: Time, holes: &[(Time, Time)]) -> Vec<(Time, Time)> {
    let mut left = vec![(from, to)];
    for &(begin, end) in holes {
        let pieces =
            left.into_iter().flat_map(|(from, to)| [(from, to.min(begin)), (from.max(end), to)]);
        left = pieces.filter(|(from, to)| from < to).collect();
    }
    left
}

/// When CPUs did not do what was ordered, beside these holes.
fn not_obeyed(real: &RootReport, holes: &[(Time, Time)], length: Span) -> Vec<Unobeyed> {
    let (Some(ran), Some(stood)) = (&real.ran, &real.stood) else { return Vec::new() };
    let excused = |from, to| without(from, to, holes);
    if let Some(course) = &real.native {
        return course.unobeyed((ran, stood), Time::ZERO + length, &excused);
    }
    let is_program = |task: TaskId| real.programs.get(task.0 as usize).is_some_and(Option::is_some);
    unobeyed(real.effort.len() as u32, &real.record, (ran, stood), &excused, &is_program)
}

/// What CPUs did less than they were told, as far as it excuses anybody: not where they were idle
/// or did something else of ours.
pub(crate) fn excuses(
    real: &RootReport,
    cpus: &[u32],
    (holes, length): (&[Hole], Span),
) -> Vec<Stretch> {
    let faults = not_obeyed(real, &widened(cpus, holes), length);
    less(&real.stretches, &faults)
}

fn less(stretches: &[Stretch], faults: &[Unobeyed]) -> Vec<Stretch> {
    let of = |stretch: &Stretch| {
        let on_its_cpu = faults.iter().filter(|fault| fault.cpu == stretch.cpu);
        let ours = on_its_cpu.flat_map(|fault| &fault.pieces).map(|&(from, to)| {
            let (from, to) = (from.max(stretch.from), to.min(stretch.to));
            if from < to { to.since(from).as_ns() } else { 0 }
        });
        Stretch { by: Span::from_ns(stretch.by.as_ns().saturating_sub(ours.sum())), ..*stretch }
    };
    stretches.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    #[test]
    fn holes_are_taken_out_of_what_was_not_obeyed() {
        let left = |holes: &[(u64, u64)]| {
            let holes: Vec<_> = holes.iter().map(|&(from, to)| (at(from), at(to))).collect();
            let left = without(at(10), at(20), &holes).into_iter();
            left.map(|(from, to)| (from.as_ns() / 1_000, to.as_ns() / 1_000)).collect::<Vec<_>>()
        };
        assert_eq!(left(&[]), [(10, 20)]);
        assert_eq!(left(&[(0, 12), (15, 16), (19, 30)]), [(12, 15), (16, 19)]);
        assert_eq!(left(&[(30, 40)]), [(10, 20)]);
        assert_eq!(left(&[(0, 40)]), []);
    }

    #[test]
    fn a_stretch_excuses_by_what_the_machine_has_taken_and_not_by_what_we_have_left_undone() {
        let stretch = |cpu, by: u64| Stretch {
            cpu,
            from: at(100),
            to: at(500),
            by: Span::from_ns(by * 1_000),
        };
        let fault = |pieces: &[(u64, u64)]| Unobeyed {
            cpu: 0,
            task: Some(TaskId(0)),
            from: at(0),
            to: at(900),
            pieces: pieces.iter().map(|&(from, to)| (at(from), at(to))).collect(),
        };
        let left =
            |stretch: Stretch, faults: &[Unobeyed]| less(&[stretch], faults)[0].by.as_ns() / 1_000;
        assert_eq!(left(stretch(0, 300), &[]), 300);
        // Fifty of it before the stretch, and a hundred within.
        assert_eq!(left(stretch(0, 300), &[fault(&[(50, 150), (300, 350)])]), 200);
        assert_eq!(left(stretch(0, 300), &[fault(&[(0, 900)])]), 0);
        assert_eq!(left(stretch(1, 300), &[fault(&[(0, 900)])]), 300, "another CPU's");
    }
}
