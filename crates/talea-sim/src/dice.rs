//! Numbers that look random and are the same for ever.
//!
//! SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the whole state is one word, every seed is
//! good, and the stream is part of what *same seed, same bytes* promises, so that it is written
//! down here instead of taken from a library that may improve it.

use talea_core::mutate;

/// A stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dice(u64);

impl Dice {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A stream of its own for `part` of whatever `seed` stands for: tasks don't share dice, so
    /// that one more task changes nothing for the others.
    pub fn of(seed: u64, part: u64) -> Dice {
        let mut dice = Dice(seed ^ part.wrapping_mul(0xD1B5_4A32_D192_ED03));
        Dice(dice.next())
    }

    /// 64 random bits.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "a stream without an end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> mutate!("sim-seed-published", 31, 32))
    }

    /// `0..n`, each as likely as the next to within 2^-64; 0 when `n` is.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// `min..=max`.
    pub fn between(&mut self, min: u64, max: u64) -> u64 {
        debug_assert!(min <= max);
        match (max - min).checked_add(1) {
            Some(n) => min + self.below(n),
            None => self.next(),
        }
    }

    /// In `[0, 1)`, for generators; decisions use no floats.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The seed of one of several roots, by its number, where `seed` is that of all. The first root has
/// that one. The others have what is drawn from it, beyond all numbers that tasks have: `seed +
/// number` would be the seed of other runs, whose roots would repeat each other.
pub fn of_root(seed: u64, number: usize) -> u64 {
    const ROOTS: u64 = 1 << 63;
    mutate!(
        "sim-seed-roots",
        if number == 0 { seed } else { Dice::of(seed, ROOTS | number as u64).next() },
        seed + (number as u64 & !ROOTS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_root_has_the_seed_of_another_one_in_any_of_many_runs() {
        let mut seeds: Vec<u64> =
            (0..200).flat_map(|seed| (0..20).map(move |number| of_root(seed, number))).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 200 * 20);
        assert_eq!(of_root(7, 0), 7);
    }

    #[test]
    fn the_stream_is_the_published_one() {
        // First values of SplitMix64 with seed 1234567, as in its reference implementation.
        let mut dice = Dice::new(1_234_567);
        let said: Vec<u64> = (0..3).map(|_| dice.next()).collect();
        assert_eq!(
            said,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut dice = Dice::new(3);
        let mut seen = [0u32; 5];
        for _ in 0..1_000 {
            seen[dice.between(10, 14) as usize - 10] += 1;
            assert!((0.0..1.0).contains(&dice.unit()));
        }
        assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
        assert_eq!(dice.below(0), 0);
        assert_eq!(dice.between(7, 7), 7);
        dice.between(0, u64::MAX);
    }
}
