//! Utilization bounds of `rm` with running sums that are rounded to the safe side.
//!
//! An [`RmSum`] represents a list of classes (see `talea_analysis::rm`) by three numbers, each
//! rounded *up*, so that a "yes" is a proof. The sums of two lists combine in constant time, as
//! trees and runs of levels need it. If the sum exceeds the bound by no more than the possible
//! rounding, the answer is [`BoundVerdict::Undecided`], and the caller uses the exact arithmetic of
//! `talea_analysis`, off the hot path: U = 1 and Π = 2 must pass. For `exact` the sums evaluate the
//! hyperbolic bound; its "no" is not final ([`crate::plugins::rm`]).
//!
//! Numbers: shares in 2^-64, factors 1 + U in 2^-61 (a `u64` holds up to 8; larger products
//! saturate, and any product above 2 is a rejection). Every stored factor is at least 1, so an
//! absolute error of one unit is a relative error of at most 2^-61, and the error of `c` classes
//! with `c - 1` products is less than 3·c units in total.

use talea_analysis::{Demand, rm};
use talea_core::setup::RmTest;

/// Fixed-point representation of 1, in units of 2^-61.
const UNIT: u64 = 1 << 61;
/// Maximum number of classes for an exact decision. Beyond it, a test that rounding leaves
/// undecided fails, because exact arithmetic would cost milliseconds.
const EXACT_MAX: u32 = 256;
/// Maximum number of classes for an exact decision of Liu and Layland's test, whose numbers grow
/// quadratically. With more than one class its bound is irrational, so no set lies exactly on it:
/// only sets within 2^-50 of the bound are rejected.
const EXACT_MAX_LIU_LAYLAND: u32 = 24;

/// Summary of a list of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RmSum {
    /// ΣU in 2^-64, rounded up.
    share: u128,
    /// Π(1 + U) in 2^-61, rounded up, saturating.
    product: u64,
    /// Number of classes.
    pub(crate) classes: u32,
}

/// Verdict of the running sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundVerdict {
    /// The test passes.
    Yes,
    /// The test fails.
    No,
    /// Rounding leaves the test undecided.
    Undecided,
}

impl RmSum {
    /// Summary of no class.
    pub(crate) const EMPTY: RmSum = RmSum { share: 0, product: UNIT, classes: 0 };

    /// Returns the summary of one class of `work` nanoseconds within `span` nanoseconds; without
    /// work it is empty.
    #[expect(
        clippy::manual_div_ceil,
        reason = "`+ (span - 1)` can't overflow here, and saves the second division"
    )]
    pub(crate) fn class(work: u128, span: u64) -> RmSum {
        if work == 0 {
            return RmSum::EMPTY;
        }
        let span = u128::from(span);
        // A share of four CPUs fails every test; this cap keeps every later step in range.
        let up = |rest: u128| ((rest << 64) + (span - 1)) / span;
        let share = if work < span {
            up(work)
        } else if work < span * 4 {
            ((work / span) << 64) + up(work % span)
        } else {
            4 << 64
        };
        RmSum { share, product: UNIT + share.div_ceil(8) as u64, classes: 1 }
    }

    /// Whether the sums are equal within `units` of rounding.
    #[cfg(test)]
    pub(crate) fn is_within(&self, other: &RmSum, units: u32) -> bool {
        let share = self.share.abs_diff(other.share) <= units.into();
        share && self.product.abs_diff(other.product) <= u64::from(units)
    }

    /// Returns the summary of both lists.
    pub(crate) fn combined(self, other: RmSum) -> RmSum {
        RmSum {
            share: self.share.saturating_add(other.share),
            product: times(self.product, other.product),
            classes: self.classes.saturating_add(other.classes),
        }
    }
}

/// Returns the product of two factors, rounded up, saturating.
fn times(a: u64, b: u64) -> u64 {
    let product = (u128::from(a) * u128::from(b) + u128::from(UNIT - 1)) >> UNIT.trailing_zeros();
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// Compares the classes summarised by `sum` with the bound of `test`.
pub(crate) fn compare_with_bound(test: RmTest, sum: &RmSum) -> BoundVerdict {
    let classes = u64::from(sum.classes);
    match test {
        RmTest::Necessary => compare(sum.share, 1 << 64, classes.into()),
        RmTest::Hyperbolic | RmTest::Exact => {
            compare(sum.product.into(), u128::from(2 * UNIT), u128::from(classes) * 6 + 8)
        }
        RmTest::LiuLayland => {
            if sum.classes < 2 || sum.share > (1 << 64) + u128::from(classes) {
                return compare(sum.share, 1 << 64, classes.into());
            }
            let power =
                power(UNIT + sum.share.div_ceil(8 * u128::from(classes)) as u64, sum.classes);
            // The base has an error of 2 units, and every error is multiplied by at most the
            // exponent.
            compare(power.into(), u128::from(2 * UNIT), u128::from(classes) * 16 + 16)
        }
    }
}

fn compare(value: u128, bound: u128, error: u128) -> BoundVerdict {
    if value <= bound {
        BoundVerdict::Yes
    } else if value - bound <= error {
        BoundVerdict::Undecided
    } else {
        BoundVerdict::No
    }
}

fn power(base: u64, mut exponent: u32) -> u64 {
    let (mut result, mut square) = (UNIT, base);
    while exponent != 0 {
        if exponent & 1 == 1 {
            result = times(result, square);
        }
        exponent >>= 1;
        square = times(square, square);
    }
    result
}

/// Decides a test that rounding leaves undecided, with exact arithmetic; false if there are too
/// many classes. `classes` must be the list behind the running sum.
pub(crate) fn decide_exactly(test: RmTest, classes: &[Demand]) -> bool {
    let most = if test == RmTest::LiuLayland { EXACT_MAX_LIU_LAYLAND } else { EXACT_MAX };
    let exact = match test {
        RmTest::Necessary => rm::necessary,
        RmTest::LiuLayland => rm::liu_layland,
        RmTest::Hyperbolic | RmTest::Exact => rm::hyperbolic,
    };
    classes.len() <= most as usize && exact(classes)
}

/// Returns the maximum work, in nanoseconds, of one class of `span` beside the classes of `rest`:
/// rounded down, by up to a few parts in 2^60 of the span.
pub(crate) fn spare_work(test: RmTest, rest: &RmSum, span: u64) -> u128 {
    let span = u128::from(span);
    match test {
        RmTest::Necessary => (span * (1u128 << 64).saturating_sub(rest.share)) >> 64,
        RmTest::Hyperbolic | RmTest::Exact => {
            let most = (u128::from(2 * UNIT) * u128::from(UNIT)) / u128::from(rest.product);
            (span * most.saturating_sub(UNIT.into())) / u128::from(UNIT)
        }
        RmTest::LiuLayland => {
            let passes = |share: u128| {
                let sum = RmSum {
                    share: rest.share.saturating_add(share),
                    ..rest.combined(RmSum::class(1, 1))
                };
                compare_with_bound(test, &sum) == BoundVerdict::Yes
            };
            let mut most = 0u128;
            for bit in (0..=64).rev() {
                if passes(most | 1 << bit) {
                    most |= 1 << bit;
                }
            }
            (span * most) >> 64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::rng::Rng;
    use talea_core::{Span, Work};

    const TESTS: [RmTest; 3] = [RmTest::Necessary, RmTest::LiuLayland, RmTest::Hyperbolic];

    fn holds(test: RmTest, classes: &[Demand]) -> bool {
        let sum = classes
            .iter()
            .fold(RmSum::EMPTY, |sum, c| sum.combined(RmSum::class(c.work, c.within.as_ns())));
        match compare_with_bound(test, &sum) {
            BoundVerdict::Yes => true,
            BoundVerdict::No => false,
            BoundVerdict::Undecided => decide_exactly(test, classes),
        }
    }

    fn exact(test: RmTest, classes: &[Demand]) -> bool {
        match test {
            RmTest::Necessary => rm::necessary(classes),
            RmTest::LiuLayland => rm::liu_layland(classes),
            RmTest::Hyperbolic | RmTest::Exact => rm::hyperbolic(classes),
        }
    }

    fn demand(work: u64, span: u64) -> Demand {
        Demand::new(Work::from_ns(work), Span::from_ns(span))
    }

    #[test]
    fn r16_running_sums_agree_with_exact_arithmetic() {
        let mut rng = Rng::new(16);
        let mut said = [[0u32; 2]; 3];
        for round in 0..60_000 {
            let n = 1 + rng.below(8);
            // Most sets are near the bound: each class gets about its part of it.
            let classes: Vec<Demand> = (0..n)
                .map(|_| {
                    let span = 1 + rng.below(if round % 2 == 0 { 12 } else { 1_000_000_000 });
                    demand((rng.below(2 * span) / n).max(1), span)
                })
                .collect();
            for (i, test) in TESTS.into_iter().enumerate() {
                let truth = exact(test, &classes);
                assert_eq!(holds(test, &classes), truth, "{test:?} {classes:?}");
                said[i][usize::from(truth)] += 1;
            }
        }
        assert!(said.iter().flatten().all(|&count| count > 5_000), "{said:?}");
    }

    #[test]
    fn sums_are_upper_bounds_within_the_rounding_error() {
        let mut rng = Rng::new(2);
        for _ in 0..20_000 {
            let classes: Vec<(u64, u64)> = (0..=rng.below(3))
                .map(|_| {
                    let span = 1 + rng.below(1 << 20);
                    (1 + rng.below(span), span)
                })
                .collect();
            let sum = classes
                .iter()
                .fold(RmSum::EMPTY, |sum, &(q, t)| sum.combined(RmSum::class(q.into(), t)));
            // Both over the common denominator; three spans of 2^20 fit into 128 bits.
            let spans: u128 = classes.iter().map(|&(_, t)| u128::from(t)).product();
            let factors: u128 = classes.iter().map(|&(q, t)| u128::from(q + t)).product();
            let (whole, rest) = (factors / spans, factors % spans);
            let low = whole * u128::from(UNIT) + ((rest << 61) / spans);
            let product = u128::from(sum.product);
            assert!(
                low < product + 1 && product <= low + 3 * 3 * 4,
                "{classes:?}: {product} for {low}"
            );
            assert!(product > low || (rest << 61) % spans == 0, "{classes:?} was rounded down");
        }
    }

    #[test]
    fn r16_the_bound_itself_passes_and_one_nanosecond_more_does_not() {
        let second = 1_000_000_000;
        let telescope: Vec<Demand> = (100..200).map(|k| demand(second, k * second)).collect();
        assert!(holds(RmTest::Hyperbolic, &telescope));
        let mut over = telescope.clone();
        over[99].work += 1;
        assert!(!holds(RmTest::Hyperbolic, &over));
        for test in [RmTest::Necessary, RmTest::LiuLayland] {
            assert!(
                holds(test, &[demand(7, 7)]) && !holds(test, &[demand(7, 7), demand(1, u64::MAX)]),
                "{test:?}"
            );
        }
        let sevenths = [demand(1, 7); 7];
        assert!(holds(RmTest::Necessary, &sevenths));
    }

    #[test]
    fn a_close_call_among_too_many_classes_is_rejected() {
        let telescope: Vec<Demand> = (300..600).map(|k| demand(1_000, k * 1_000)).collect();
        assert!(rm::hyperbolic(&telescope), "it would pass");
        assert!(!holds(RmTest::Hyperbolic, &telescope));
    }

    #[test]
    fn sums_far_above_the_bound_saturate_and_fail() {
        let huge = RmSum::class(u128::MAX, 1);
        let many = (0..200).fold(huge, |sum, _| sum.combined(huge));
        for test in TESTS {
            assert_eq!(compare_with_bound(test, &many), BoundVerdict::No);
            assert_eq!(spare_work(test, &many, u64::MAX), 0);
        }
        assert_eq!(RmSum::class(0, 5), RmSum::EMPTY);
    }

    #[test]
    fn spare_work_fits_and_slightly_more_does_not() {
        let mut rng = Rng::new(61);
        for _ in 0..3_000 {
            let n = rng.below(5);
            let mut classes: Vec<Demand> = (0..n)
                .map(|_| {
                    demand(1 + rng.below(1_000_000 / (n + 1)), 1_000_000 + rng.below(4_000_000))
                })
                .collect();
            let span = 1_000_000 + rng.below(1 << 40);
            for test in TESTS {
                let rest = classes.iter().fold(RmSum::EMPTY, |sum, c| {
                    sum.combined(RmSum::class(c.work, c.within.as_ns()))
                });
                let most = spare_work(test, &rest, span);
                for (work, fits) in [(most, true), (most + 1 + u128::from(span >> 40), false)] {
                    if work != 0 && compare_with_bound(test, &rest) == BoundVerdict::Yes {
                        classes.push(Demand { work, within: Span::from_ns(span) });
                        assert_eq!(holds(test, &classes), fits, "{test:?} {classes:?}");
                        classes.pop();
                    }
                }
            }
        }
    }
}
