//! The tests of `rm` in nanoseconds: running sums that never err on the wrong side.
//!
//! A [`Sum`] stands for a list of classes (see `talea_analysis::rm`) by three numbers, each rounded
//! *up*, so that a "yes" is a proof. Sums of two lists combine in constant time, which is what
//! trees and runs of levels need. When the sum is over the bound by no more than rounding can
//! explain, the answer is [`Answer::Close`] and the caller asks `talea_analysis` for the exact
//! truth, off the hot path: U = 1 and Π = 2 must pass. For `exact` the sums answer by the
//! hyperbolic bound; a "no" of theirs is not its last word ([`crate::plugins::rm`]).
//!
//! Numbers: shares in 2^-64, factors 1 + U in 2^-61 (a `u64` holds up to 8; larger products
//! saturate, and any product above 2 is a refusal). Every stored factor is at least 1, so an
//! absolute error of one unit is a relative one of at most 2^-61, and `c` classes with their `c -
//! 1` products are off by less than 3·c units in all.

use talea_analysis::{Demand, rm};
use talea_core::setup::RmTest;

/// 1 in units of 2^-61.
const UNIT: u64 = 1 << 61;
/// Beyond so many classes a close call is a refusal: settling it exactly would cost milliseconds.
const EXACT_MAX: u32 = 256;
/// The same for Liu and Layland's test, whose numbers grow with the square. With more than one
/// class its bound is irrational, so no set ever lies on it: only sets within 2^-50 of the bound
/// are turned away.
const EXACT_MAX_LIU_LAYLAND: u32 = 24;

/// What is known of a list of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    /// ΣU in 2^-64, rounded up.
    share: u128,
    /// Π(1 + U) in 2^-61, rounded up, saturating.
    product: u64,
    /// How many classes there are.
    pub(crate) classes: u32,
}

/// What running sums say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It holds.
    Yes,
    /// It doesn't.
    No,
    /// Rounding leaves it open.
    Close,
}

impl Sum {
    /// No class at all.
    pub(crate) const EMPTY: Sum = Sum { share: 0, product: UNIT, classes: 0 };

    /// One class of `work` nanoseconds within `span` nanoseconds; without work it is none.
    #[expect(
        clippy::manual_div_ceil,
        reason = "`+ (span - 1)` can't overflow here, and saves the second division"
    )]
    pub(crate) fn class(work: u128, span: u64) -> Sum {
        if work == 0 {
            return Sum::EMPTY;
        }
        let span = u128::from(span);
        // Four CPUs' worth is refused by every test; capping there keeps every later step in range.
        let up = |rest: u128| ((rest << 64) + (span - 1)) / span;
        let share = if work < span {
            up(work)
        } else if work < span * 4 {
            ((work / span) << 64) + up(work % span)
        } else {
            4 << 64
        };
        Sum { share, product: UNIT + share.div_ceil(8) as u64, classes: 1 }
    }

    /// Whether it says the same as `other` but for so many units of rounding.
    #[cfg(test)]
    pub(crate) fn is_within(&self, other: &Sum, units: u32) -> bool {
        let share = self.share.abs_diff(other.share) <= units.into();
        share && self.product.abs_diff(other.product) <= u64::from(units)
    }

    /// Both lists together.
    pub(crate) fn and(self, other: Sum) -> Sum {
        Sum {
            share: self.share.saturating_add(other.share),
            product: times(self.product, other.product),
            classes: self.classes.saturating_add(other.classes),
        }
    }
}

/// The product of two factors, rounded up, saturating.
fn times(a: u64, b: u64) -> u64 {
    let product = (u128::from(a) * u128::from(b) + u128::from(UNIT - 1)) >> UNIT.trailing_zeros();
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// Whether the classes behind `sum` pass `test`.
pub(crate) fn judge(test: RmTest, sum: &Sum) -> Answer {
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
            // The base is off by 2 units and every error is multiplied by at most the exponent.
            compare(power.into(), u128::from(2 * UNIT), u128::from(classes) * 16 + 16)
        }
    }
}

fn compare(value: u128, bound: u128, error: u128) -> Answer {
    if value <= bound {
        Answer::Yes
    } else if value - bound <= error {
        Answer::Close
    } else {
        Answer::No
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

/// Settles a close call on `classes`, which must be what the running sum stood for.
pub(crate) fn settle(test: RmTest, classes: &[Demand]) -> bool {
    let most = if test == RmTest::LiuLayland { EXACT_MAX_LIU_LAYLAND } else { EXACT_MAX };
    let exact = match test {
        RmTest::Necessary => rm::necessary,
        RmTest::LiuLayland => rm::liu_layland,
        RmTest::Hyperbolic | RmTest::Exact => rm::hyperbolic,
    };
    classes.len() <= most as usize && exact(classes)
}

/// The most work, in nanoseconds, that one class of `span` may have beside the classes of `rest`:
/// rounded down, so up to a few parts in 2^60 of the span less than the truth.
pub(crate) fn room(test: RmTest, rest: &Sum, span: u64) -> u128 {
    let span = u128::from(span);
    match test {
        RmTest::Necessary => (span * (1u128 << 64).saturating_sub(rest.share)) >> 64,
        RmTest::Hyperbolic | RmTest::Exact => {
            let most = (u128::from(2 * UNIT) * u128::from(UNIT)) / u128::from(rest.product);
            (span * most.saturating_sub(UNIT.into())) / u128::from(UNIT)
        }
        RmTest::LiuLayland => {
            let passes = |share: u128| {
                let sum =
                    Sum { share: rest.share.saturating_add(share), ..rest.and(Sum::class(1, 1)) };
                judge(test, &sum) == Answer::Yes
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
    use crate::dice::Dice;
    use talea_core::{Span, Work};

    const TESTS: [RmTest; 3] = [RmTest::Necessary, RmTest::LiuLayland, RmTest::Hyperbolic];

    fn holds(test: RmTest, classes: &[Demand]) -> bool {
        let sum =
            classes.iter().fold(Sum::EMPTY, |sum, c| sum.and(Sum::class(c.work, c.within.as_ns())));
        match judge(test, &sum) {
            Answer::Yes => true,
            Answer::No => false,
            Answer::Close => settle(test, classes),
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
    fn r16_running_sums_say_what_exact_arithmetic_says() {
        let mut dice = Dice::new(16);
        let mut said = [[0u32; 2]; 3];
        for round in 0..60_000 {
            let n = 1 + dice.roll(8);
            // Around the bound more often than not: each class gets about its part of it.
            let classes: Vec<Demand> = (0..n)
                .map(|_| {
                    let span = 1 + dice.roll(if round % 2 == 0 { 12 } else { 1_000_000_000 });
                    demand((dice.roll(2 * span) / n).max(1), span)
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
    fn no_sum_is_ever_less_than_the_truth_nor_more_than_rounding_explains() {
        let mut dice = Dice::new(2);
        for _ in 0..20_000 {
            let classes: Vec<(u64, u64)> = (0..=dice.roll(3))
                .map(|_| {
                    let span = 1 + dice.roll(1 << 20);
                    (1 + dice.roll(span), span)
                })
                .collect();
            let sum =
                classes.iter().fold(Sum::EMPTY, |sum, &(q, t)| sum.and(Sum::class(q.into(), t)));
            // Both over the common denominator; three spans of 2^20 leave room for it in 128 bits.
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
    fn a_close_call_among_too_many_classes_is_a_refusal() {
        let telescope: Vec<Demand> = (300..600).map(|k| demand(1_000, k * 1_000)).collect();
        assert!(rm::hyperbolic(&telescope), "it would pass");
        assert!(!holds(RmTest::Hyperbolic, &telescope));
    }

    #[test]
    fn hopeless_sums_saturate_and_stay_hopeless() {
        let huge = Sum::class(u128::MAX, 1);
        let many = (0..200).fold(huge, |sum, _| sum.and(huge));
        for test in TESTS {
            assert_eq!(judge(test, &many), Answer::No);
            assert_eq!(room(test, &many, u64::MAX), 0);
        }
        assert_eq!(Sum::class(0, 5), Sum::EMPTY);
    }

    #[test]
    fn room_fits_and_hardly_more_does() {
        let mut dice = Dice::new(61);
        for _ in 0..3_000 {
            let n = dice.roll(5);
            let mut classes: Vec<Demand> = (0..n)
                .map(|_| {
                    demand(1 + dice.roll(1_000_000 / (n + 1)), 1_000_000 + dice.roll(4_000_000))
                })
                .collect();
            let span = 1_000_000 + dice.roll(1 << 40);
            for test in TESTS {
                let rest = classes
                    .iter()
                    .fold(Sum::EMPTY, |sum, c| sum.and(Sum::class(c.work, c.within.as_ns())));
                let most = room(test, &rest, span);
                for (work, fits) in [(most, true), (most + 1 + u128::from(span >> 40), false)] {
                    if work != 0 && judge(test, &rest) == Answer::Yes {
                        classes.push(Demand { work, within: Span::from_ns(span) });
                        assert_eq!(holds(test, &classes), fits, "{test:?} {classes:?}");
                        classes.pop();
                    }
                }
            }
        }
    }
}
