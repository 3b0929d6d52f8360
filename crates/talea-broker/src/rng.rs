//! Deterministic random numbers for tests.

/// Linear congruential generator (Knuth's MMIX constants); only its upper bits are used.
pub(crate) struct Rng(u64);

impl Rng {
    /// Creates a generator; equal seeds give equal numbers.
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// Returns a number below `sides`.
    pub(crate) fn below(&mut self, sides: u64) -> u64 {
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

    /// Returns true with a probability of `percent`.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `choices`.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}
