//! The echo server of L3C's experiments and its client, as separate programs.
//!
//! Reference: L3C (RTNS 2017), section 5: UDP datagrams of 128 bytes, answered with their SHA-1.
//! Neither program sets its own scheduling. The program that starts both sets their CPUs and their
//! priorities.

mod ask;
mod serve;

pub(super) use ask::{AskArgs, ClientReport, RequestTimes, ask, read};
pub(super) use serve::{ServeArgs, serve};

use sha1::{Digest, Sha1};

/// Size of a request in bytes.
const MESSAGE: usize = 128;
/// Reply to a request: the SHA-1 of the request.
pub(super) type EchoReply = [u8; 20];

/// Returns the reply to a request.
fn answer(request: &[u8]) -> EchoReply {
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
