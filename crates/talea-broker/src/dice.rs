//! Randomness for tests that must run the same way twice.

/// A linear congruential generator (Knuth's MMIX constants); only its upper bits are used.
pub(crate) struct Dice(u64);

impl Dice {
    /// The same seed rolls the same numbers.
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        let mut half = || {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.0 >> 32
        };
        let word = half() << 32 | half();
        ((u128::from(word) * u128::from(sides)) >> 64) as u64
    }

    /// True `percent` times in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    /// One of `choices`.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.roll(choices.len() as u64) as usize]
    }
}
