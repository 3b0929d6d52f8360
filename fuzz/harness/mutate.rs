//! Mutations of seeds without a fuzzer: the same numbers give the same bytes.

/// Random indices.
pub(crate) struct Rng(talea_core::rng::Rng);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(talea_core::rng::Rng::new(seed))
    }

    /// A number below `bound`; zero if that is zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }
}

/// Bytes that parsers find interesting.
const SPICE: &[&[u8]] = &[
    b"\0",
    b"\xff",
    b"\"",
    b"'",
    b"[",
    b"[[",
    b"]",
    b"{",
    b"}",
    b"=",
    b"#",
    b"\n",
    b"\r\n",
    b"-",
    b".",
    b",",
    b"\\",
    b"@",
    b"0",
    b"99999999999999999999",
    b"-1",
    b"1e9",
    b"nan",
    b"true",
    b"\xef\xbb\xbf",
    b"\xc3\xa4",
    b"\xe2\x80\xae",
    b"\"\"\"",
];

/// `seed` with a few changes; `others` are seeds to take pieces from.
pub(crate) fn mutated(seed: &[u8], others: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    const LONGEST: usize = 1 << 16;
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() + 1);
        let until = (at + rng.below(24)).min(bytes.len());
        match rng.below(7) {
            0 => drop(bytes.drain(at..until)),
            1 => drop(bytes.splice(at..at, SPICE[rng.below(SPICE.len())].iter().copied())),
            2 => drop(bytes.splice(at..until, SPICE[rng.below(SPICE.len())].iter().copied())),
            3 => {
                let piece = bytes[at..until].to_vec();
                let to = rng.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            4 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            5 => bytes.truncate(at),
            _ => {
                let other = &others[rng.below(others.len())];
                let from = rng.below(other.len() + 1);
                let to = (from + rng.below(200)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
        bytes.truncate(LONGEST);
    }
    bytes
}
