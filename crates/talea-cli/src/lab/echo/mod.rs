//! The echo server of L3C's experiments and its client, as separate programs.
//!
//! Reference: L3C in PikeOS (RTNS 2017), section 5: 128-byte UDP datagrams, answered with their
//! SHA-1. Neither knows of scheduling: the program that starts them sets their CPUs and their
//! priorities.

mod ask;
mod serve;

pub(super) use ask::{AskArgs, Asked, Heard, ask, read};
pub(super) use serve::{ServeArgs, serve};

use sha1::{Digest, Sha1};

/// A request.
const MESSAGE: usize = 128;
/// An answer.
pub(super) type Answer = [u8; 20];

/// Returns the answer of the server to a request.
fn answer(request: &[u8]) -> Answer {
    Sha1::digest(request).into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_answer_is_the_sha_1_of_the_request() {
        // The first example of FIPS 180.
        let expected = [
            0xa9, 0x99, 0x3e, 0x36, 0x47, 0x06, 0x81, 0x6a, 0xba, 0x3e, 0x25, 0x71, 0x78, 0x50,
            0xc2, 0x6c, 0x9c, 0xd0, 0xd8, 0x9d,
        ];
        assert_eq!(super::answer(b"abc"), expected);
    }
}
