//! Which jobs a hole has touched.
//!
//! While a CPU stands still jobs pile up, and what comes after the hole waits for them: everything
//! of its root is disturbed from the hole until nothing is left to do, and until each server has
//! had a new period. A hole is seen by a thread that was late, so it may have begun up to a
//! distance of looks earlier. What is taken in slices that no such thread sees is missed by the
//! clocks of the workers, exactly. Losses that were no longer than the tolerance even so, together
//! up to then, are what that is for.

use super::Tolerance;
use super::lives::{Life, Lives};
use super::model::{MOST_LONGER, MOST_ORDER};
use talea_core::machine::{Body, Tree};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_exec::holes::DISTANCE;
use talea_exec::{Hole, Stretch};

/// Stretches of a run in which nothing, or not everything, can be said about its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disturbed {
    /// Nothing.
    badly: Vec<(Time, Time)>,
    /// Losses within the tolerance: but what a job nearly missed by that it may have missed, and
    /// then it is late by far more.
    slightly: Vec<(Time, Time)>,
}

/// A CPU did so much less than it could, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loss {
    from: Time,
    to: Time,
    most: Span,
}

impl Loss {
    fn of_hole(hole: &Hole) -> Loss {
        let from = Time::from_ns(hole.from.as_ns().saturating_sub(DISTANCE.as_ns()));
        Loss { from, to: hole.to, most: hole.length() + DISTANCE }
    }

    /// What neither simulations nor bounds have already, and no hole explains.
    fn of_stretch(stretch: &Stretch, holes: &[Loss]) -> Option<Loss> {
        let Stretch { from, to, by, .. } = *stretch;
        let explained = holes.iter().filter(|hole| hole.from <= to && from <= hole.to);
        let explained: u64 = explained.map(|hole| hole.most.as_ns()).sum();
        let most = Span::from_ns(by.as_ns().saturating_sub(explained));
        // Of what was done, as bounds reckon: of two stretches that were let pass no more may be
        // lost than a bound has.
        let done = to.since(from).checked_sub(by).unwrap_or(Span::ZERO);
        let ordinary = mutate!(
            "compare-stretch-length",
            MOST_ORDER + Span::from_ns(done.as_ns() / 1_000 * MOST_LONGER),
            MOST_ORDER + MOST_ORDER + Span::from_ns(done.as_ns() / 1_000 * MOST_LONGER)
        );
        mutate!("cli-compare-slices", most > ordinary, most > ordinary && most < ordinary)
            .then_some(Loss { from, to, most })
    }
}

impl Disturbed {
    /// Of a root on these CPUs.
    pub(crate) fn of(
        tree: &Tree,
        cpus: &[u32],
        (holes, stretches): (&[Hole], &[Stretch]),
        lives: &Lives,
        tolerance: Tolerance,
    ) -> Disturbed {
        let settles = longest_period(tree);
        let of_cpu = |number| -> Vec<Loss> {
            holes.iter().filter(|hole| Some(&hole.cpu) == number).map(Loss::of_hole).collect()
        };
        let mut losses: Vec<Loss> = cpus.iter().flat_map(|cpu| of_cpu(Some(cpu))).collect();
        losses.extend(stretches.iter().filter_map(|stretch| {
            // Whoever stood still explains what was lost on its own CPU.
            Loss::of_stretch(stretch, &of_cpu(cpus.get(stretch.cpu as usize)))
        }));
        losses.sort_by_key(|loss| loss.to);
        // What lies between two times at which nothing was left to do adds up.
        let clear = |loss: &Loss| lives.clear.partition_point(|&at| at < loss.to);
        let stretch = |losses: &[Loss]| {
            let (from, last) = (losses.iter().map(|loss| loss.from).min()?, losses.last()?);
            let most: u64 = losses.iter().map(|loss| loss.most.as_ns()).sum();
            let to = lives.clear.get(clear(last)).copied().unwrap_or(Time::NEVER);
            Some((
                most > tolerance.least.as_ns(),
                (
                    from,
                    mutate!(
                        "cli-compare-holes",
                        to.max(last.to.saturating_add(settles)),
                        to.min(last.to.saturating_add(settles))
                    ),
                ),
            ))
        };
        let all = losses.chunk_by(|a, b| clear(a) == clear(b)).filter_map(stretch);
        let (badly, slightly): (Vec<_>, Vec<_>) = all.partition(|&(is_bad, _)| is_bad);
        let stretches = |of: Vec<(bool, _)>| of.into_iter().map(|(_, stretch)| stretch).collect();
        Disturbed { badly: stretches(badly), slightly: stretches(slightly) }
    }

    /// Whether a job was touched, so that nothing can be said of it.
    pub(crate) fn touches(&self, life: &Life) -> bool {
        overlaps(&self.badly, life)
    }

    /// Whether it may have been turned round with others, by little.
    pub(crate) fn brushes(&self, life: &Life) -> bool {
        overlaps(&self.slightly, life)
    }
}

/// One that has not ended lasts until the end of all time.
fn overlaps(stretches: &[(Time, Time)], life: &Life) -> bool {
    let from = life.release.or(life.begin).unwrap_or(Time::ZERO);
    let to = life.end.unwrap_or(Time::NEVER);
    stretches.iter().any(|&(begin, end)| begin <= to && from <= end)
}

fn longest_period(tree: &Tree) -> Span {
    let period = |body: &Body| match body {
        Body::Scheduler(spec) => spec.reservation.map(|reservation| reservation.period),
        Body::Task(_) => None,
    };
    tree.nodes().filter_map(|(_, node)| period(&node.body)).max().unwrap_or(Span::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::machine::SchedulerSpec;
    use talea_core::sched::Policy;

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_hole_disturbs_until_nothing_is_left_to_do() {
        let tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::Edf));
        let lives = Lives { clear: vec![at(8), at(30), at(60)], ..Lives::default() };
        let hole = |cpu| Hole { cpu, from: at(10), to: at(12) };
        let tolerance = Tolerance { least: Span::from_ns(2_999_999), share: 0 };
        let of =
            |cpu, lives: &Lives| Disturbed::of(&tree, &[cpu], (&[hole(3)], &[]), lives, tolerance);
        let disturbed = of(3, &lives);
        let life =
            |from, to| Life { release: Some(at(from)), end: Some(at(to)), ..Life::default() };
        // The hole is seen a millisecond late.
        for (from, to, is) in
            [(0, 8, false), (0, 9, true), (11, 20, true), (29, 40, true), (31, 40, false)]
        {
            assert_eq!(disturbed.touches(&life(from, to)), is, "{from} to {to}");
        }
        assert!(
            disturbed.touches(&Life { release: Some(at(5)), ..Life::default() }),
            "it never ended"
        );
        assert!(!of(2, &lives).touches(&life(11, 12)), "another CPU's");
        let wide = Tolerance { least: Span::from_ns(3_000_000), share: 0 };
        let calm = Disturbed::of(&tree, &[3], (&[hole(3)], &[]), &lives, wide);
        assert!(!calm.touches(&life(11, 12)) && calm.brushes(&life(11, 12)), "that is tolerated");
        assert!(!calm.brushes(&life(31, 40)));
        let both = [hole(3), Hole { cpu: 3, from: at(20), to: at(20) }];
        let twice = Disturbed::of(&tree, &[3], (&both, &[]), &lives, wide);
        assert!(twice.touches(&life(11, 12)), "but not one more in the same backlog");
        let none = of(3, &Lives::default());
        assert!(none.touches(&life(1_000, 1_001)), "it never came to rest");
    }
    #[test]
    fn what_was_lost_in_slices_counts_as_far_as_no_hole_explains_it() {
        let tree = Tree::new(2, SchedulerSpec::new("cpus", Policy::Edf));
        let lives = Lives { clear: vec![at(8), at(30)], ..Lives::default() };
        let tolerance = Tolerance { least: Span::from_ns(2_000_000), share: 0 };
        let life = Life { release: Some(at(11)), end: Some(at(12)), ..Life::default() };
        let lost =
            |us: u64| Stretch { cpu: 1, from: at(10), to: at(20), by: Span::from_ns(us * 1_000) };
        let of = |holes: &[Hole], us: &[u64]| {
            let stretches: Vec<Stretch> = us.iter().map(|&us| lost(us)).collect();
            let disturbed = Disturbed::of(&tree, &[3, 5], (holes, &stretches), &lives, tolerance);
            (disturbed.touches(&life), disturbed.brushes(&life))
        };
        // Simulations within reason have so much for each order, and for nine and a half
        // milliseconds of work.
        assert_eq!(of(&[], &[441, 441, 441]), (false, false));
        assert_eq!(of(&[], &[442]), (false, true));
        assert_eq!(of(&[], &[2_000]), (false, true));
        assert_eq!(of(&[], &[2_001]), (true, false));
        assert_eq!(of(&[], &[1_000, 1_001]), (true, false), "one backlog");
        // A hole on its CPU is what it lost; one on the other CPU is not.
        let hole = |cpu| Hole { cpu, from: at(13), to: Time::from_ns(13_500_000) };
        assert_eq!(of(&[hole(5)], &[1_750]), (false, true));
        assert_eq!(of(&[hole(3)], &[1_750]), (true, false));
    }

    #[test]
    fn s18_what_two_stretches_take_without_brushing_a_job_its_bound_has() {
        let text = r#"
            duration = "1s"
            [[scheduler]]
            name = "cpu"
            policy = "edf"
            [[task]]
            name = "one"
            in = "cpu"
            period = "20ms"
            cost = "9ms"
        "#;
        let system = talea_system::system::read(text, "the test's own", &()).expect("a sound file");
        let bound =
            super::super::model::bounds(&system.roots[0])[0].within_reason.expect("a bound");
        // Half of its work in each.
        let lets_pass = |lost: u64| {
            let to = Time::from_ns(14_500_000 + lost);
            Loss::of_stretch(&Stretch { cpu: 0, from: at(10), to, by: Span::from_ns(lost) }, &[])
                .is_none()
        };
        let most = (bound.as_ns() - 9_000_000) / 2;
        assert!(lets_pass(most) && !lets_pass(most + 1), "{most} of {bound:?}");
    }
}
