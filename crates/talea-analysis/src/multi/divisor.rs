//! Division by a period that is used repeatedly: a product with its reciprocal and one correction.
//!
//! With r = ⌊(2^64−1)/T⌋ ≥ 2^64/T − 1 and any x < 2^64: x·r/2^64 ≥ x/T − x/2^64 > x/T − 1, and
//! x·r/2^64 is never above x/T. So q = ⌊x·r/2^64⌋ is ⌊x/T⌋ or one less; the remainder decides
//! which.
//! T. Granlund and P. L. Montgomery, "Division by invariant integers using multiplication", PLDI
//! 1994.

use talea_core::mutate;

/// Divisor, at least 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    by: u64,
    reciprocal: u64,
}

impl Divisor {
    /// Creates the divisor `by`.
    ///
    /// # Panics
    /// If `by` is zero.
    pub(crate) fn new(by: u64) -> Divisor {
        Divisor { by, reciprocal: u64::MAX / by }
    }

    pub(crate) fn get(self) -> u64 {
        self.by
    }

    /// Returns ⌊x/T⌋ and x mod T.
    #[inline]
    pub(crate) fn divide(self, x: u64) -> (u64, u64) {
        let quotient = ((u128::from(x) * u128::from(self.reciprocal)) >> 64) as u64;
        // quotient·T ≤ x, so neither wraps; neither does the sum, because ⌊x/T⌋ fits.
        let rest = x.wrapping_sub(quotient.wrapping_mul(self.by));
        if mutate!("multi-divisor", rest >= self.by, rest > self.by) {
            (quotient.wrapping_add(1), rest.wrapping_sub(self.by))
        } else {
            (quotient, rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    #[test]
    fn it_equals_the_hardware_division() {
        let near = |x: u64| [x.saturating_sub(1), x, x.saturating_add(1)];
        let mut sample: [u64; 192] = [0; 192];
        for (bit, three) in sample.chunks_mut(3).enumerate() {
            three.copy_from_slice(&near(1 << bit));
        }
        for by in sample.into_iter().chain([3, 7, 10, 1_000_000_007, u64::MAX / 3, u64::MAX]) {
            if by == 0 {
                continue;
            }
            let divisor = Divisor::new(by);
            let multiples = [1, 2, 3, u64::MAX / by].map(|k| by.saturating_mul(k));
            for x in
                sample.into_iter().chain(multiples.into_iter().flat_map(near)).chain([u64::MAX])
            {
                assert_eq!(divisor.divide(x), (x / by, x % by), "{x} / {by}");
            }
        }
    }
}
