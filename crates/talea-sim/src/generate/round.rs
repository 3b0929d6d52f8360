//! From what was drawn to whole parts: the sum exact, the bounds kept, each share moved by as
//! little as that needs.

use super::Bounds;

/// `drawn` as whole numbers that add up to `total` and lie within `bounds`. What the rounding down
/// leaves over is given out one part at a time from the first on: with a part of 10^-12 CPUs that
/// is no bias which could be seen.
///
/// The bounds must allow the total; `drawn` need not add up exactly.
pub(super) fn rounded(drawn: &[f64], total: u64, bounds: &[Bounds]) -> Vec<u64> {
    // A float beyond the range of the integer becomes the end of that range, and NaN zero: then the
    // bounds decide.
    let mut shares: Vec<u64> = drawn
        .iter()
        .zip(bounds)
        .map(|(&share, bound)| (share as u64).clamp(bound.min, bound.max))
        .collect();
    let mut sum: u128 = shares.iter().map(|&share| u128::from(share)).sum();
    let total = u128::from(total);
    while sum != total {
        let before = sum;
        for (share, bound) in shares.iter_mut().zip(bounds) {
            let step = |missing: u128| (missing / drawn.len() as u128).max(1).min(missing) as u64;
            if sum < total {
                let more = step(total - sum).min(bound.max - *share);
                *share += more;
                sum += u128::from(more);
            } else {
                let less = step(sum - total).min(*share - bound.min);
                *share -= less;
                sum -= u128::from(less);
            }
        }
        assert_ne!(sum, before, "the bounds don't allow the total");
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn sums_are_exact_and_bounds_are_kept_whatever_was_drawn() {
        let mut dice = Dice::new(7);
        for _ in 0..2_000 {
            let n = dice.between(1, 12) as usize;
            let bounds: Vec<Bounds> = (0..n)
                .map(|_| {
                    let min = dice.below(1_000);
                    Bounds { min, max: min + dice.below(1_000) }
                })
                .collect();
            let least: u64 = bounds.iter().map(|bound| bound.min).sum();
            let most: u64 = bounds.iter().map(|bound| bound.max).sum();
            let total = dice.between(least, most);
            let drawn: Vec<f64> = (0..n).map(|_| dice.unit() * 3_000.0 - 500.0).collect();
            let shares = rounded(&drawn, total, &bounds);
            assert_eq!(shares.iter().sum::<u64>(), total);
            assert!(
                shares.iter().zip(&bounds).all(|(s, bound)| (bound.min..=bound.max).contains(s))
            );
        }
    }

    #[test]
    fn what_adds_up_is_moved_by_less_than_two_parts() {
        let mut dice = Dice::new(8);
        for _ in 0..500 {
            let n = dice.between(2, 50) as usize;
            let drawn: Vec<f64> = (0..n).map(|_| dice.unit() * 1e9).collect();
            let total = drawn.iter().sum::<f64>() as u64;
            let bounds = vec![Bounds { min: 0, max: u64::MAX }; n];
            for (share, drawn) in rounded(&drawn, total, &bounds).iter().zip(&drawn) {
                assert!((*share as f64 - drawn).abs() < 2.0, "{share} {drawn}");
            }
        }
    }
}
