//! Which jobs a hole has touched.
//!
//! While a CPU stands still jobs pile up, and what comes after the hole waits for them: everything of its root is disturbed from the
//! hole until nothing is left to do, and until each server has had a new period. A hole is seen by a thread that was late, so
//! it may have begun up to a distance of looks earlier. Holes of less than half the tolerance are what the tolerance is for.

use super::Tolerance;
use super::lives::{Life, Lives};
use talea_core::machine::{Body, Tree};
use talea_core::{Span, Time};
use talea_exec::Hole;
use talea_exec::holes::DISTANCE;

/// Stretches of a run in which nothing can be said about its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disturbed(Vec<(Time, Time)>);

impl Disturbed {
    /// Of a root on these CPUs.
    pub(crate) fn of(
        tree: &Tree,
        cpus: &[u32],
        holes: &[Hole],
        lives: &Lives,
        tolerance: Tolerance,
    ) -> Disturbed {
        let settles = longest_period(tree);
        let matters = |hole: &Hole| 2 * hole.length().as_ns() >= tolerance.least.as_ns();
        let here = holes.iter().filter(|hole| cpus.contains(&hole.cpu) && matters(hole));
        let stretch = |hole: &Hole| {
            let from = Time::from_ns(hole.from.as_ns().saturating_sub(DISTANCE.as_ns()));
            let clear = lives.clear.partition_point(|&at| at < hole.to);
            let to = lives.clear.get(clear).copied().unwrap_or(Time::NEVER);
            (from, to.max(hole.to.saturating_add(settles)))
        };
        Disturbed(here.map(stretch).collect())
    }

    /// Whether a job was touched: one that has not ended lasts until the end of all time.
    pub(crate) fn touches(&self, life: &Life) -> bool {
        let from = life.release.or(life.begin).unwrap_or(Time::ZERO);
        let to = life.end.unwrap_or(Time::NEVER);
        self.covers(from, to)
    }

    /// Whether some of it lies between.
    pub(crate) fn covers(&self, from: Time, to: Time) -> bool {
        self.0.iter().any(|&(begin, end)| begin <= to && from <= end)
    }
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
        let tolerance = Tolerance { least: Span::from_ns(4_000_000), share: 0 };
        let of = |cpu, lives: &Lives| Disturbed::of(&tree, &[cpu], &[hole(3)], lives, tolerance);
        let disturbed = of(3, &lives);
        let life = |from, to| Life { release: Some(at(from)), end: Some(at(to)), ..Life::default() };
        // The hole is seen a millisecond late.
        for (from, to, is) in [(0, 8, false), (0, 9, true), (11, 20, true), (29, 40, true), (31, 40, false)] {
            assert_eq!(disturbed.touches(&life(from, to)), is, "{from} to {to}");
        }
        assert!(disturbed.touches(&Life { release: Some(at(5)), ..Life::default() }), "it never ended");
        assert!(!of(2, &lives).touches(&life(11, 12)), "another CPU's");
        let wide = Tolerance { least: Span::from_ns(4_000_001), share: 0 };
        let calm = Disturbed::of(&tree, &[3], &[hole(3)], &lives, wide);
        assert!(!calm.touches(&life(11, 12)), "that is tolerated");
        let none = of(3, &Lives::default());
        assert!(none.touches(&life(1_000, 1_001)), "it never came to rest");
    }
}
