//! Rounding of generated values to whole parts, with an exact sum, within the bounds, and minimal
//! changes.

use super::Bounds;

/// Rounds `drawn` to whole numbers with the sum `total`, within `bounds`.
///
/// The remainder of rounding down is distributed one part at a time, from the first share on. With
/// parts of 10^-12 CPUs the bias is invisible. The bounds must allow the total; the sum of `drawn`
/// need not be exact.
pub(super) fn rounded(drawn: &[f64], total: u64, bounds: &[Bounds]) -> Vec<u64> {
    // A float beyond the integer range becomes its limit, and NaN zero; the bounds then decide.
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
    use crate::rng::Rng;

    #[test]
    fn sums_are_exact_and_bounds_are_kept_for_any_values() {
        let mut rng = Rng::new(7);
        for _ in 0..2_000 {
            let n = rng.between(1, 12) as usize;
            let bounds: Vec<Bounds> = (0..n)
                .map(|_| {
                    let min = rng.below(1_000);
                    Bounds { min, max: min + rng.below(1_000) }
                })
                .collect();
            let least: u64 = bounds.iter().map(|bound| bound.min).sum();
            let most: u64 = bounds.iter().map(|bound| bound.max).sum();
            let total = rng.between(least, most);
            let drawn: Vec<f64> = (0..n).map(|_| rng.unit() * 3_000.0 - 500.0).collect();
            let shares = rounded(&drawn, total, &bounds);
            assert_eq!(shares.iter().sum::<u64>(), total);
            assert!(
                shares.iter().zip(&bounds).all(|(s, bound)| (bound.min..=bound.max).contains(s))
            );
        }
    }

    #[test]
    fn values_with_the_right_sum_change_by_less_than_two_parts() {
        let mut rng = Rng::new(8);
        for _ in 0..500 {
            let n = rng.between(2, 50) as usize;
            let drawn: Vec<f64> = (0..n).map(|_| rng.unit() * 1e9).collect();
            let total = drawn.iter().sum::<f64>() as u64;
            let bounds = vec![Bounds { min: 0, max: u64::MAX }; n];
            for (share, drawn) in rounded(&drawn, total, &bounds).iter().zip(&drawn) {
                assert!((*share as f64 - drawn).abs() < 2.0, "{share} {drawn}");
            }
        }
    }
}
