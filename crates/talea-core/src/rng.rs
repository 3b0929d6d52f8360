//! Pseudo-random numbers with a permanent stream, for workloads, generated systems and tests.
//!
//! SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the state is one word, and every seed is valid.
//! The stream is part of the guarantee *same seed, same bytes*. The implementation is therefore in
//! this module, and not in a library that may change the stream.

use crate::mutate;

/// A stream of pseudo-random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rng(u64);

/// Advances the state of a SplitMix64 generator and returns 64 random bits.
#[inline]
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> mutate!("sim-seed-published", 31, 32))
}

impl Rng {
    /// Creates the stream of `seed`.
    pub const fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Creates an independent stream for one part of a seeded object.
    ///
    /// Tasks do not share a stream, so an additional task does not change the others.
    pub fn for_part(seed: u64, part: u64) -> Rng {
        let mut rng = Rng(seed ^ part.wrapping_mul(0xD1B5_4A32_D192_ED03));
        Rng(rng.next())
    }

    /// Returns 64 random bits.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "a stream without an end")]
    pub fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// Returns true with a probability of `percent` hundredths.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `choices`.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// Returns a number in `0..n`, uniform to within 2^-64; 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a number in `min..=max`.
    pub fn between(&mut self, min: u64, max: u64) -> u64 {
        debug_assert!(min <= max);
        match (max - min).checked_add(1) {
            Some(n) => min + self.below(n),
            None => self.next(),
        }
    }

    /// Returns a uniform number in `[0, 1)`. Only the generators of task sets use it; scheduling
    /// decisions use no floats.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Returns the seed of root `number`, from the common `seed`.
///
/// The first root has the common seed. The seeds of the other roots are generated from it, with
/// part numbers beyond those of tasks. With `seed + number`, a root would repeat a root of another
/// run.
pub fn root_seed(seed: u64, number: usize) -> u64 {
    const ROOTS: u64 = 1 << 63;
    mutate!(
        "sim-seed-roots",
        if number == 0 { seed } else { Rng::for_part(seed, ROOTS | number as u64).next() },
        seed + (number as u64 & !ROOTS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn root_seeds_are_distinct_over_many_runs() {
        let mut seeds: Vec<u64> =
            (0..200).flat_map(|seed| (0..20).map(move |number| root_seed(seed, number))).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 200 * 20);
        assert_eq!(root_seed(7, 0), 7);
    }

    #[test]
    fn the_stream_is_that_of_the_reference_implementation() {
        // First values of SplitMix64 with seed 1234567, from its reference implementation.
        let mut rng = Rng::new(1_234_567);
        let values: Vec<u64> = (0..3).map(|_| rng.next()).collect();
        assert_eq!(
            values,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn bounds_are_respected_and_reached() {
        let mut rng = Rng::new(3);
        let mut seen = [0u32; 5];
        for _ in 0..1_000 {
            seen[rng.between(10, 14) as usize - 10] += 1;
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between(7, 7), 7);
        rng.between(0, u64::MAX);
    }
}
