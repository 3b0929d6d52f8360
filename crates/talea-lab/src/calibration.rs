//! Present speed of this computer, by a reference loop that runs beside each measurement of `talea
//! lab sim`.
//!
//! The loop is 100 million dependent steps of xorshift64. Figures are scaled to the speed at which
//! the loop takes 0.153 s. So the results of two computers, or of two minutes on a shared one, are
//! comparable. Pieces of the loop run before and after each short stretch of a measurement. The
//! stretches of all cases alternate, and the result of a case is the median of its stretches.
//! Another program that uses the computer for a while affects some stretches of each case, but no
//! figure.
//!
//! A chain of dependent steps leaves most of a core idle. So it hardly takes longer while another
//! hardware thread of the same core computes, which slows other code by a third. A virtual machine
//! has no other means to detect that hardware thread. A second loop, which fills the core, detects
//! it ([`wide`], [`SmtInterference`]).

#![allow(clippy::cast_precision_loss, reason = "printed")]

use serde::Serialize;
use std::time::Instant;

/// Duration of the loop at the reference speed, in seconds.
pub(super) const REFERENCE: f64 = 0.153;
const STEPS: u32 = 100_000_000;

/// Number of steps of a piece: some microseconds, so that few pieces are interrupted.
const PIECE: u32 = 10_000;

/// Returns the duration of the whole loop in seconds, estimated by the median of `pieces` pieces.
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
    Quartiles::of((0..pieces).map(piece)).median * f64::from(STEPS / PIECE)
}

/// Returns the duration in nanoseconds of a loop that fills a core: the median of `pieces` pieces
/// of six independent chains.
pub(super) fn wide(pieces: u32) -> f64 {
    let piece = |_| {
        let begun = Instant::now();
        let mut chains = [1u64, 2, 3, 4, 5, 6];
        for step in 0..u64::from(PIECE / 4) {
            for x in &mut chains {
                *x = (*x ^ (*x >> 7)).wrapping_add(step).rotate_left(9) ^ 0x55;
                // Separate variables in memory, so that the chains stay independent.
                std::hint::black_box(&*x);
            }
        }
        std::hint::black_box(chains);
        begun.elapsed().as_nanos() as f64
    };
    Quartiles::of((0..pieces).map(piece)).median
}

/// Durations of the core-filling loop around each stretch. They show whether the core was shared.
#[derive(Clone, Debug, Default)]
pub(super) struct SmtInterference(Vec<f64>);

impl SmtInterference {
    /// Ratio to the minimum above which a core counts as shared. Another hardware thread costs more
    /// than this ratio, and a change of frequency less.
    const MAX_RATIO: f64 = 1.1;

    pub(super) fn add(&mut self, before: f64, after: f64) {
        self.0.push(before.max(after));
    }

    /// Returns the minimum duration in all cases, which is that of an unshared core, if there ever
    /// was one.
    pub(super) fn minimum<'a>(all: impl IntoIterator<Item = &'a SmtInterference>) -> f64 {
        all.into_iter()
            .flat_map(|interference| &interference.0)
            .copied()
            .fold(f64::INFINITY, f64::min)
    }

    /// Returns the stretches beside which the duration was close to the minimum.
    pub(super) fn unshared(&self, stretches: &[Stretch], minimum: f64) -> Vec<Stretch> {
        let both = stretches.iter().zip(&self.0);
        both.filter(|&(_, wide)| *wide <= minimum * SmtInterference::MAX_RATIO)
            .map(|(stretch, _)| *stretch)
            .collect()
    }
}

/// Median of many measurements, with the quartiles between which half of them lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Quartiles {
    pub(super) median: f64,
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Quartiles {
    /// Returns the quartiles of at least one value.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Quartiles {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |quarters: usize| sorted[sorted.len() * quarters / 4];
        Quartiles { median: at(2), from: at(1), to: at(3) }
    }
}

/// Result of one stretch of a measurement, with the duration of the reference loop around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// Value in the unit of the figure.
    pub(super) value: f64,
    pub(super) reference: f64,
}

/// Returns the quartiles of the values, of the reference loop, and of the values at the speed of
/// [`REFERENCE`]. `is_time` says whether the values are times, not rates.
pub(super) fn scaled(stretches: &[Stretch], is_time: bool) -> [Quartiles; 3] {
    let scale = |stretch: &Stretch| {
        let slowdown = stretch.reference / REFERENCE;
        if is_time { stretch.value / slowdown } else { stretch.value * slowdown }
    };
    [
        Quartiles::of(stretches.iter().map(|stretch| stretch.value)),
        Quartiles::of(stretches.iter().map(|stretch| stretch.reference)),
        Quartiles::of(stretches.iter().map(scale)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computer_that_is_slow_for_a_while_changes_no_figure() {
        let stretch = |slow: f64| Stretch { value: 8.0 / slow, reference: REFERENCE * slow };
        let noisy: Vec<Stretch> =
            (0..40).map(|at| stretch(if at % 3 == 0 { 4.0 } else { 1.0 })).collect();
        let [value, reference, scaled] = scaled(&noisy, false);
        assert_eq!((value.median, reference.median), (8.0, REFERENCE));
        assert!((scaled.median - 8.0).abs() < 1e-9 && (scaled.from - 8.0).abs() < 1e-9);
        // Some stretches are slow by themselves, because they were interrupted.
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
        let mut interference = SmtInterference::default();
        for (before, after) in [(10.0, 10.5), (10.0, 15.0), (14.0, 10.0), (10.2, 10.1)] {
            interference.add(before, after);
        }
        let minimum = SmtInterference::minimum([&interference]);
        let alone: Vec<f64> = interference
            .unshared(&stretches, minimum)
            .iter()
            .map(|stretch| stretch.value)
            .collect();
        assert_eq!(alone, [0.0, 3.0]);
        assert!(wide(3) > 0.0);
    }

    #[test]
    fn quartiles_are_values_that_occurred() {
        assert_eq!(Quartiles::of([3.0]), Quartiles { median: 3.0, from: 3.0, to: 3.0 });
        assert_eq!(
            Quartiles::of([4.0, 1.0, 3.0, 2.0]),
            Quartiles { median: 3.0, from: 2.0, to: 4.0 }
        );
        assert!(reference(3) > 0.0);
    }
}
