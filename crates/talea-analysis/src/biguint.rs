//! Unsigned integers of any size: the arithmetic for verdicts that rounding leaves open.
//!
//! The algorithms are the schoolbook algorithms on 64-bit limbs, least significant limb first.
//! There are no leading zero limbs, so zero has no limb and equal numbers have equal limbs.
//! Subtraction, signs, long division and fast algorithms are absent on purpose.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Unsigned integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BigUint(Vec<u64>);

impl From<u128> for BigUint {
    fn from(value: u128) -> BigUint {
        BigUint::trimmed(vec![value as u64, (value >> 64) as u64])
    }
}

impl BigUint {
    fn trimmed(mut limbs: Vec<u64>) -> BigUint {
        while limbs.last() == Some(&0) {
            limbs.pop();
        }
        BigUint(limbs)
    }

    /// Returns the sum of `self` and `other`.
    #[must_use]
    pub fn plus(&self, other: &BigUint) -> BigUint {
        let (long, short) =
            if self.0.len() < other.0.len() { (other, self) } else { (self, other) };
        let mut limbs = long.0.clone();
        let mut carry = 0;
        for (i, limb) in limbs.iter_mut().enumerate() {
            let sum = u128::from(*limb) + u128::from(short.0.get(i).copied().unwrap_or(0)) + carry;
            *limb = sum as u64;
            carry = sum >> 64;
        }
        limbs.push(carry as u64);
        BigUint::trimmed(limbs)
    }

    /// Returns the product of `self` and `other`.
    #[must_use]
    pub fn times(&self, other: &BigUint) -> BigUint {
        let mut limbs = vec![0; self.0.len() + other.0.len()];
        for (i, &a) in self.0.iter().enumerate() {
            let mut carry = 0;
            for (j, &b) in other.0.iter().enumerate() {
                // At most (2^64-1)^2 + 2·(2^64-1) = 2^128 - 1.
                let sum = u128::from(a) * u128::from(b) + u128::from(limbs[i + j]) + carry;
                limbs[i + j] = sum as u64;
                carry = sum >> 64;
            }
            limbs[i + other.0.len()] = carry as u64;
        }
        BigUint::trimmed(limbs)
    }

    /// Returns `self` to the power of `exponent`; zero to the power of zero is one.
    #[must_use]
    pub fn power(&self, mut exponent: u32) -> BigUint {
        let mut result = BigUint::from(1);
        let mut square = self.clone();
        while exponent != 0 {
            if exponent & 1 == 1 {
                result = result.times(&square);
            }
            exponent >>= 1;
            if exponent != 0 {
                square = square.times(&square);
            }
        }
        result
    }

    /// Returns `self` times two to the power of `bits`.
    #[must_use]
    pub fn shifted(&self, bits: u32) -> BigUint {
        let mut limbs = vec![0; bits as usize / 64];
        let by = bits % 64;
        let mut carry = 0;
        for &limb in &self.0 {
            limbs.push(limb << by | carry);
            carry = if by == 0 { 0 } else { limb >> (64 - by) };
        }
        limbs.push(carry);
        BigUint::trimmed(limbs)
    }

    /// Returns the remainder of `self` divided by `divisor`.
    ///
    /// # Panics
    /// If `divisor` is zero.
    pub fn remainder(&self, divisor: u64) -> u64 {
        let divisor = u128::from(divisor);
        self.0.iter().rev().fold(0, |rest, &limb| (rest << 64 | u128::from(limb)) % divisor) as u64
    }

    /// Returns the quotient of `self` divided by `divisor`, rounded down.
    ///
    /// # Panics
    /// If `divisor` is zero.
    #[must_use]
    pub fn quotient(&self, divisor: u64) -> BigUint {
        let divisor = u128::from(divisor);
        let mut limbs = vec![0; self.0.len()];
        let mut rest = 0;
        for (i, &limb) in self.0.iter().enumerate().rev() {
            let part = rest << 64 | u128::from(limb);
            limbs[i] = (part / divisor) as u64;
            rest = part % divisor;
        }
        BigUint::trimmed(limbs)
    }
}

impl PartialOrd for BigUint {
    fn partial_cmp(&self, other: &BigUint) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BigUint {
    fn cmp(&self, other: &BigUint) -> Ordering {
        let longer = self.0.len().cmp(&other.0.len());
        longer.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers around every limb border. The product of two of them fits into 128 bits.
    const SAMPLES: [u64; 9] = [0, 1, 2, 3, 10, 0xffff_ffff, 1 << 32, u64::MAX - 1, u64::MAX];

    fn big(value: u128) -> BigUint {
        BigUint::from(value)
    }

    #[test]
    fn small_numbers_behave_as_the_machine_s_own() {
        for a in SAMPLES.map(u128::from) {
            for b in SAMPLES.map(u128::from) {
                assert_eq!(big(a).plus(&big(b)), big(a + b));
                assert_eq!(big(a).times(&big(b)), big(a * b));
                assert_eq!(big(a).cmp(&big(b)), a.cmp(&b));
                if b != 0 {
                    let long = (a << 64) + 12_345;
                    assert_eq!(big(long).quotient(b as u64), big(long / b));
                    assert_eq!(u128::from(big(long).remainder(b as u64)), long % b);
                }
            }
            for bits in [0, 1, 31, 63, 64] {
                assert_eq!(big(a).shifted(bits), big(a << bits));
            }
        }
    }

    #[test]
    fn long_numbers_obey_the_laws() {
        let a = big(u128::MAX).power(5);
        let b = big(u128::MAX - 7).power(3);
        let c = big(987_654_321);
        assert_eq!(a.times(&b), b.times(&a));
        assert_eq!(a.plus(&b).times(&c), a.times(&c).plus(&b.times(&c)));
        assert_eq!(a.times(&c).quotient(987_654_321), a);
        assert_eq!(a.times(&c).plus(&big(5)).remainder(987_654_321), 5);
        assert_eq!(a.shifted(200), a.times(&big(2).power(200)));
        assert!(a.plus(&big(1)) > a && b < a);
        assert_eq!(big(7).power(0), big(1));
        assert_eq!(big(7).power(20), big(79_792_266_297_612_001));
    }
}
