//! Tokens that a client knows before the daemon's reply.
//!
//! Model: a token has two halves. The first half is the number of the library that requested the
//! grant: a random number of each copy of a client library in a process, or 0 for a client without
//! a seed. The second half is secret: SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012) under
//! the seed. The secret of one grant says nothing about that of another.

/// Distance between the secrets of one group; odd, so that they repeat only after 2^64 steps.
const GROUP_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Secret that proves the creation of a spec; required to claim it from another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub [u8; 16]);

impl Token {
    /// Token of requests that grant no spec.
    pub const NONE: Token = Token([0; 16]);

    /// Returns the token of the grant that request number `seq` of a connection with this seed asks
    /// for; of a group, the first one.
    pub fn derived(seed: Token, seq: u32) -> Token {
        Token::new(seed.library(), siphash(&seed.0, &seq.to_le_bytes()))
    }

    /// Returns the token of a grant, or the seed of a connection, with the number of its library.
    pub fn new(library: u64, secret: u64) -> Token {
        let mut token = [0; 16];
        token[..8].copy_from_slice(&library.to_le_bytes());
        token[8..].copy_from_slice(&secret.to_le_bytes());
        Token(token)
    }

    /// Returns the number of the library that requested the grant; 0 without a seed.
    pub fn library(self) -> u64 {
        u128::from_le_bytes(self.0) as u64
    }

    /// Returns the token of the `index`-th grant of a group whose first token this is.
    #[must_use]
    pub fn of_group(self, index: usize) -> Token {
        let first = (u128::from_le_bytes(self.0) >> 64) as u64;
        let step = GROUP_STEP.wrapping_mul(index as u64);
        Token::new(self.library(), first.wrapping_add(step))
    }
}

fn siphash(key: &[u8; 16], message: &[u8]) -> u64 {
    let key = u128::from_le_bytes(*key);
    let (k0, k1) = (key as u64, (key >> 64) as u64);
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, tail) = message.as_chunks::<8>();
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    last[7] = message.len() as u8;
    for word in words.iter().chain([&last]) {
        let word = u64::from_le_bytes(*word);
        state[3] ^= word;
        rounds(&mut state, 2);
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    rounds(&mut state, 4);
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn rounds([a, b, c, d]: &mut [u64; 4], count: u32) {
    for _ in 0..count {
        *a = a.wrapping_add(*b);
        *b = b.rotate_left(13) ^ *a;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*d);
        *d = d.rotate_left(16) ^ *c;
        *a = a.wrapping_add(*d);
        *d = d.rotate_left(21) ^ *a;
        *c = c.wrapping_add(*b);
        *b = b.rotate_left(17) ^ *c;
        *c = c.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_the_papers_example_is_the_papers() {
        // Appendix A of the paper.
        let key = core::array::from_fn(|index| index as u8);
        let message: [u8; 15] = core::array::from_fn(|index| index as u8);
        assert_eq!(siphash(&key, &message), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn every_request_of_every_seed_has_tokens_of_its_own() {
        let mut seen = alloc::collections::BTreeSet::new();
        for seed in 0..10 {
            for seq in 0..100 {
                let seed = Token::new(7, seed);
                let first = Token::derived(seed, seq);
                assert_eq!(first.of_group(5).library(), 7);
                assert_eq!(first.of_group(0), first);
                assert!((0..64).all(|index| seen.insert(first.of_group(index).0)));
            }
        }
    }
}
