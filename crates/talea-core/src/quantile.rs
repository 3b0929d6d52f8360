//! Quantiles of measured values.

/// Returns the smallest of the `sorted` values that `percent` % of all values do not exceed; `None`
/// without values. It is always a measured value.
pub fn quantile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: [u64; 200] = core::array::from_fn(|at| at as u64 + 1);
        assert_eq!(
            [0, 50, 99, 100].map(|percent| quantile(&values, percent)),
            [Some(1), Some(100), Some(198), Some(200)]
        );
        assert_eq!(quantile(&[3, 5], 50), Some(3));
        assert_eq!(quantile::<u64>(&[], 50), None);
    }
}
