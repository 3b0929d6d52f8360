//! Source of a run's decisions: a seed, or the bytes of a fuzzer.

use talea_core::rng::split_mix;

/// Source of the random decisions of a run.
#[derive(Clone, Debug)]
pub enum Rng {
    /// SplitMix64, unlimited.
    Seed(u64),
    /// One or two bytes per decision; zeros after the last byte.
    Bytes(Vec<u8>, usize),
}

impl Rng {
    /// Returns a number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        match self {
            Rng::Seed(_) => self.word() % limit,
            Rng::Bytes(..) if limit <= 256 => u64::from(self.byte()) % limit,
            Rng::Bytes(..) => (u64::from(self.byte()) << 8 | u64::from(self.byte())) % limit,
        }
    }

    /// Returns true with a probability of `permille` thousandths.
    pub fn chance(&mut self, permille: u64) -> bool {
        // No number is drawn without a decision: a run without faults is the same for every seed.
        permille > 0 && self.below(1000) < permille
    }

    /// Returns one of `of`.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Returns 64 random bits, or one byte of a fuzzer.
    pub fn word(&mut self) -> u64 {
        match self {
            Rng::Seed(state) => split_mix(state),
            Rng::Bytes(..) => u64::from(self.byte()),
        }
    }

    /// Whether the source is exhausted.
    pub fn is_exhausted(&self) -> bool {
        matches!(self, Rng::Bytes(bytes, at) if *at >= bytes.len())
    }

    fn byte(&mut self) -> u8 {
        let Rng::Bytes(bytes, at) = self else { return 0 };
        let byte = bytes.get(*at).copied().unwrap_or(0);
        *at += 1;
        byte
    }
}
