//! Demand of one or several tasks: an amount of work within a length of time, repeatedly.

use crate::biguint::BigUint;
use talea_core::{Charge, Span, Work};

/// Demand of at most `work` nanoseconds of CPU time in every interval of length `within`. The ratio
/// is a density (ReTiF Eq. 1).
///
/// `work` is wider than [`Work`] because a demand may represent the sum of many tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// CPU time in nanoseconds.
    pub work: u128,
    /// Minimum of min(T, D) over the tasks; never zero.
    pub within: Span,
}

impl Demand {
    /// Creates the demand of one task.
    ///
    /// # Panics
    /// If `within` is zero.
    pub fn new(work: Work, within: Span) -> Demand {
        assert!(!within.is_zero(), "a demand within no time");
        Demand { work: work.as_ns().into(), within }
    }
}

/// Whether Σ work / within ≤ `limit`, exactly.
pub fn sum_at_most(demands: &[Demand], limit: Charge) -> bool {
    let (numerator, denominator) = sum(demands);
    // numerator / denominator ≤ limit / 2^64
    numerator.shifted(64) <= denominator.times(&BigUint::from(limit.bits()))
}

/// Returns Σ work / within as a fraction. The denominator is the least common multiple of the
/// spans. So sets with round spans have small fractions, whatever the number of their tasks.
pub(crate) fn sum(demands: &[Demand]) -> (BigUint, BigUint) {
    let mut numerator = BigUint::from(0u128);
    let mut denominator = BigUint::from(1u128);
    for demand in demands {
        let within = demand.within.as_ns();
        let common = gcd(denominator.remainder(within), within);
        let widen = BigUint::from(u128::from(within / common));
        let share = denominator.quotient(common).times(&BigUint::from(demand.work));
        numerator = numerator.times(&widen).plus(&share);
        denominator = denominator.times(&widen);
    }
    (numerator, denominator)
}

pub(crate) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while a != 0 {
        (a, b) = (b % a, a);
    }
    b
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use talea_core::rng::Rng;

    fn thirds(count: usize) -> Vec<Demand> {
        (0..count).map(|_| Demand::new(Work::from_ns(1), Span::from_ns(3))).collect()
    }

    #[test]
    fn three_thirds_are_one_although_their_charges_are_more() {
        let charges = Charge::ratio(1, 3).times(3);
        assert!(charges > Charge::ONE, "rounding up is what makes the exact sum necessary");
        assert!(sum_at_most(&thirds(3), Charge::ONE));
        assert!(!sum_at_most(&thirds(4), Charge::ONE));
        assert!(!sum_at_most(&thirds(3), Charge::from_bits(Charge::ONE.bits() - 1)));
    }

    #[test]
    fn nothing_asks_for_nothing() {
        assert!(sum_at_most(&[], Charge::ZERO));
        assert!(!sum_at_most(&thirds(1), Charge::ZERO));
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let huge = Demand { work: u128::MAX, within: Span::from_ns(1) };
        assert!(!sum_at_most(&[huge; 5], Charge::from_bits(u128::MAX)));
        let tiny = Demand { work: 1, within: Span::from_ns(u64::MAX) };
        assert!(sum_at_most(&[tiny; 5], Charge::from_bits(6)));
        assert!(!sum_at_most(&[tiny; 5], Charge::from_bits(5)));
    }

    #[test]
    fn sums_over_a_common_denominator_equal_sums_over_the_product() {
        let mut rng = Rng::new(1);
        let mut next = || rng.next() >> 40;
        for _ in 0..2_000 {
            let demands: Vec<Demand> = (0..next() % 5)
                .map(|_| Demand::new(Work::from_ns(next() % 30), Span::from_ns(next() % 60 + 1)))
                .collect();
            let product: u128 = demands.iter().map(|d| u128::from(d.within.as_ns())).product();
            let total: u128 =
                demands.iter().map(|d| d.work * product / u128::from(d.within.as_ns())).sum();
            let limit = u128::from(next() % 3);
            let fits = total <= limit * product;
            assert_eq!(
                sum_at_most(&demands, Charge::from_bits(limit << 64)),
                fits,
                "{demands:?} {limit}"
            );
        }
    }
}
