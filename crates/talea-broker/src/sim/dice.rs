//! Where a run's decisions come from: a seed, or the bytes of a fuzzer.

/// A source of decisions.
#[derive(Clone, Debug)]
pub enum Dice {
    /// Splitmix64: as many decisions as wanted.
    Seed(u64),
    /// One or two bytes a decision; zeros when they are used up.
    Bytes(Vec<u8>, usize),
}

impl Dice {
    /// A number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        match self {
            Dice::Seed(_) => self.word() % limit,
            Dice::Bytes(..) if limit <= 256 => u64::from(self.byte()) % limit,
            Dice::Bytes(..) => (u64::from(self.byte()) << 8 | u64::from(self.byte())) % limit,
        }
    }

    /// True `permille` times in a thousand.
    pub fn chance(&mut self, permille: u64) -> bool {
        // Without a roll where there is nothing to decide: a calm world is the same for every seed.
        permille > 0 && self.below(1000) < permille
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Sixty-four random bits, or as many as a fuzzer cares for.
    pub fn word(&mut self) -> u64 {
        match self {
            Dice::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            }
            Dice::Bytes(..) => u64::from(self.byte()),
        }
    }

    /// Whether nothing is left to decide by.
    pub fn is_used_up(&self) -> bool {
        matches!(self, Dice::Bytes(bytes, at) if *at >= bytes.len())
    }

    fn byte(&mut self) -> u8 {
        let Dice::Bytes(bytes, at) = self else { return 0 };
        let byte = bytes.get(*at).copied().unwrap_or(0);
        *at += 1;
        byte
    }
}
