//! Byte layout of messages: fixed, little-endian, without compiler-chosen padding.
//!
//! Model: eight bytes of [`Header`], then the body selected by the header's operation. Bodies are
//! structs of unaligned little-endian fields. Therefore the layout is exactly the written one, and
//! every byte of a message is initialised. Groups, refusals and explanations have a fixed head that
//! counts the elements behind it.
//!
//! Invariants. Decoding is strict: a message has exactly the length that its operation and its
//! counts require, bits without a meaning are zero, and a field that is not declared is zero. So
//! every value has one encoding, and a message of a newer peer is refused instead of
//! misinterpreted. Decoding never panics, for any input.
//!
//! | body | bytes | fields (offset) |
//! | --- | --- | --- |
//! | [`Header`] | 8 | op u16 (0), version u16 (2), seq u32 (4) |
//! | hello | 4 | min u16 (0), max u16 (2) |
//! | [`TaskWire`] | 208 | period (0), runtime (8), desired (16), deadline (24), flags (32), |
//! | | | priority (36), owner (40), tid (44), plugin (48), CPUs (80) |
//! | change | 216 | spec u64 (0), task (8) |
//! | spec | 8 | spec u64 (0): release, detach, query, next spec |
//! | attach | 16 | spec u64 (0), flags u32 (8), tid u32 (12) |
//! | claim | 24 | spec u64 (0), token (8) |
//! | seed | 16 | secret (0) |
//! | group head | 8 | count u32 (0), zero (4); then the tasks, or the grants |
//! | [`GrantedWire`] | 72 | spec (0), token (8), charge (24), runtime (40), granularity (48), |
//! | | | plugin (56), CPU (60), notes (64), flags (68), mechanism (70), priority (71) |
//! | [`AttrWire`] | 168 | runtime (0), deadline (8), period (16), policy (24), flags (28), |
//! | | | nice (32), priority (36), CPUs (40) |
//! | [`PluginAnswerWire`] | 96 | name (0), plugin (32), kind (36), reason (38), field (40), |
//! | | | flags (42), CPU (44), asked (48), limit (56), fits (64), then by kind: |
//! | acceptance | | charge (72), notes (88), zero (92) |
//! | rejection | | witness: window, period or delay (72), demand or response (80), |
//! | | | supply or deadline (88) |
//! | refusal head | 40 | code (0), field (2), errno (4), asked (8), limit (16), index (24), |
//! | | | answers (28), rule length (30), flags (32), zero (36); then the answers, |
//! | | | then the rule's text |
//!
//! The bodies of hello, welcome and refused are the same in every version of the protocol: two
//! peers of different versions must be able to detect the difference.

mod bytes;
mod field_error;
mod header;
mod op;
mod reply;
mod request;
mod task;

pub use header::{DecodeError, Header};
pub use op::{reply as reply_op, request as request_op};
pub use reply::{GrantedWire, PluginAnswerWire, RULE_MAX, decode_reply};
pub use request::decode_request;
pub use task::{AttrWire, TaskWire};

/// Decodes arbitrary bytes as a request, a reply and a record, and checks that each decoded value
/// has one encoding.
#[doc(hidden)]
pub fn fuzz_wire(bytes: &[u8]) {
    let mut again = [0xa5; crate::MESSAGE_MAX];
    if let Ok((seq, request)) = decode_request(bytes) {
        let len = request.encode(seq, &mut again);
        assert_eq!(decode_request(&again[..len]), Ok((seq, request)));
        assert_eq!(again[8..len], bytes[8..], "two encodings of one request");
    }
    if let Ok((seq, reply)) = decode_reply(bytes) {
        let len = reply.encode(seq, &mut again);
        assert_eq!(again[8..len], bytes[8..], "two encodings of one reply");
        assert_eq!(decode_reply(&again[..len]), Ok((seq, reply)));
    }
    if let Some(record) = crate::record::Record::decode(bytes) {
        assert_eq!(record.encode()[..bytes.len()], *bytes, "two encodings of one record");
    }
}
