//! Tokens that a client knows before the daemon's reply.
//!
//! Model: SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012) under a secret of the client gives
//! the two halves of a token. The token of one grant says nothing about the token of another.

use crate::message::Token;

/// Distance between the tokens of one group; odd, so that the tokens repeat only after 2^128 steps.
const GROUP_STEP: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

impl Token {
    /// Token of requests that grant no spec.
    pub const NONE: Token = Token([0; 16]);

    /// Returns the token of the grant that request number `seq` of a connection with this seed asks
    /// for; of a group, the first one.
    pub fn derived(seed: Token, seq: u32) -> Token {
        let mut message = [0; 5];
        message[..4].copy_from_slice(&seq.to_le_bytes());
        let mut token = [0; 16];
        for (index, half) in token.chunks_exact_mut(8).enumerate() {
            message[4] = index as u8;
            half.copy_from_slice(&siphash(&seed.0, &message).to_le_bytes());
        }
        Token(token)
    }

    /// Returns the token of the `index`-th grant of a group whose first token this is.
    #[must_use]
    pub fn of_group(self, index: usize) -> Token {
        let first = u128::from_le_bytes(self.0);
        Token(first.wrapping_add(GROUP_STEP.wrapping_mul(index as u128)).to_le_bytes())
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
                let first = Token::derived(Token([seed; 16]), seq);
                assert_eq!(first.of_group(0), first);
                assert!((0..64).all(|index| seen.insert(first.of_group(index).0)));
            }
        }
    }
}
