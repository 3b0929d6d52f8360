//! Present speed of this computer: a loop that every figure of `talea lab sim` is measured beside.
//!
//! The loop is 100 million dependent steps of xorshift64; figures are scaled to the pace at which
//! it takes 0.153 s, so that two machines, or two minutes of a shared one, can be compared. It is
//! cut into pieces that run before and after each short stretch of what is measured, the stretches
//! of all cases take turns, and the report of a case is the median of its stretches. Another
//! program that uses the computer for a while affects some stretches of every case, and no figure.
//!
//! A chain of dependent steps leaves most of a core idle, and so takes hardly longer while another
//! hardware thread of the same core computes too, which slows everything else by a third: a virtual
//! machine can't see that neighbour. A second loop, which fills the core, does ([`wide`],
//! [`Company`]).

#![allow(clippy::cast_precision_loss, reason = "printed")]

use serde::Serialize;
use std::time::Instant;

/// Seconds that the loop takes at the pace that figures are scaled to.
pub(super) const REFERENCE: f64 = 0.153;
const STEPS: u32 = 100_000_000;

/// Some microseconds of it: short enough to be interrupted seldom.
const PIECE: u32 = 10_000;

/// The seconds that all of the loop would take: the median of so many pieces of it.
pub(super) fn reference(pieces: u32) -> f64 {
    let piece = |_| {
        let begun = Instant::now();
        let mut x = 88_172_645_463_325_252u64;
        for _ in 0..PIECE {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        std::hint::black_box(x);
        begun.elapsed().as_secs_f64()
    };
    Middle::of((0..pieces).map(piece)).median * f64::from(STEPS / PIECE)
}

/// Nanoseconds that a loop takes which keeps a core busy: the median of so many pieces of six
/// chains side by side.
pub(super) fn wide(pieces: u32) -> f64 {
    let piece = |_| {
        let begun = Instant::now();
        let mut chains = [1u64, 2, 3, 4, 5, 6];
        for step in 0..u64::from(PIECE / 4) {
            for x in &mut chains {
                *x = (*x ^ (*x >> 7)).wrapping_add(step).rotate_left(9) ^ 0x55;
                // Kept apart, and in memory.
                std::hint::black_box(&*x);
            }
        }
        std::hint::black_box(chains);
        begun.elapsed().as_nanos() as f64
    };
    Middle::of((0..pieces).map(piece)).median
}

/// Duration of the loop that fills a core, around each stretch, and whether the core was shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Company(Vec<f64>);

impl Company {
    /// A tenth more than the least: less than a neighbour costs, and more than frequencies change.
    const SHARED: f64 = 1.1;

    pub(super) fn beside(&mut self, before: f64, after: f64) {
        self.0.push(before.max(after));
    }

    /// The least that it took in a run of them all: alone on a core, if it ever was.
    pub(super) fn least<'a>(all: impl IntoIterator<Item = &'a Company>) -> f64 {
        all.into_iter().flat_map(|company| &company.0).copied().fold(f64::INFINITY, f64::min)
    }

    /// Those stretches beside which it took hardly longer than that.
    pub(super) fn alone(&self, stretches: &[Stretch], least: f64) -> Vec<Stretch> {
        let both = stretches.iter().zip(&self.0);
        both.filter(|&(_, wide)| *wide <= least * Company::SHARED)
            .map(|(stretch, _)| *stretch)
            .collect()
    }
}

/// Median of many measurements, with the quartiles between which half of them lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Middle {
    pub(super) median: f64,
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Middle {
    /// Returns the quartiles of at least one value.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Middle {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |quarters: usize| sorted[sorted.len() * quarters / 4];
        Middle { median: at(2), from: at(1), to: at(3) }
    }
}

/// A stretch of what is measured, with what the loop took around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// In the unit of the figure.
    pub(super) value: f64,
    pub(super) reference: f64,
}

/// The middle of what was measured, of the loop beside it, and of what was measured at the pace of
/// [`REFERENCE`]. `is_time`: it is a time and no rate.
pub(super) fn scaled(stretches: &[Stretch], is_time: bool) -> [Middle; 3] {
    let scale = |stretch: &Stretch| {
        let pace = stretch.reference / REFERENCE;
        if is_time { stretch.value / pace } else { stretch.value * pace }
    };
    [
        Middle::of(stretches.iter().map(|stretch| stretch.value)),
        Middle::of(stretches.iter().map(|stretch| stretch.reference)),
        Middle::of(stretches.iter().map(scale)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_slow_for_a_while_changes_no_figure() {
        let stretch = |slow: f64| Stretch { value: 8.0 / slow, reference: REFERENCE * slow };
        let noisy: Vec<Stretch> =
            (0..40).map(|at| stretch(if at % 3 == 0 { 4.0 } else { 1.0 })).collect();
        let [value, reference, scaled] = scaled(&noisy, false);
        assert_eq!((value.median, reference.median), (8.0, REFERENCE));
        assert!((scaled.median - 8.0).abs() < 1e-9 && (scaled.from - 8.0).abs() < 1e-9);
        // Some that were only slow themselves, because they were interrupted.
        let mut cut = noisy.clone();
        cut.iter_mut().step_by(7).for_each(|stretch| stretch.value /= 100.0);
        assert!((super::scaled(&cut, false)[2].median - 8.0).abs() < 1e-9);
        let time = |slow: f64| Stretch { value: 80.0 * slow, reference: REFERENCE * slow };
        let times: Vec<Stretch> = (1..20).map(|at| time(f64::from(at))).collect();
        assert!((super::scaled(&times, true)[2].median - 80.0).abs() < 1e-9);
    }

    #[test]
    fn stretches_on_an_unshared_core_are_distinguished() {
        let stretches: Vec<Stretch> =
            (0..4).map(|at| Stretch { value: f64::from(at), reference: REFERENCE }).collect();
        let mut company = Company::default();
        for (before, after) in [(10.0, 10.5), (10.0, 15.0), (14.0, 10.0), (10.2, 10.1)] {
            company.beside(before, after);
        }
        let least = Company::least([&company]);
        let alone: Vec<f64> =
            company.alone(&stretches, least).iter().map(|stretch| stretch.value).collect();
        assert_eq!(alone, [0.0, 3.0]);
        assert!(wide(3) > 0.0);
    }

    #[test]
    fn a_middle_is_a_value_that_occurred() {
        assert_eq!(Middle::of([3.0]), Middle { median: 3.0, from: 3.0, to: 3.0 });
        assert_eq!(Middle::of([4.0, 1.0, 3.0, 2.0]), Middle { median: 3.0, from: 2.0, to: 4.0 });
        assert!(reference(3) > 0.0);
    }
}
