//! Decoding returns the encoded value, and encoding initialises every byte.

use crate::strategies::{record, refusal, reply, request};
use proptest::prelude::*;
use talea_proto::record::{RECORD_SIZE, Record};
use talea_proto::wire::{RULE_MAX, decode_reply, decode_request, fuzz_wire};
use talea_proto::{MESSAGE_MAX, Reply};

/// Encodes twice, into buffers of different contents, to detect uninitialised bytes.
fn encoded(encode: impl Fn(&mut [u8]) -> usize) -> Vec<u8> {
    let (mut over_ones, mut over_zeros) = (vec![0xff; MESSAGE_MAX], vec![0; MESSAGE_MAX]);
    let len = encode(&mut over_ones);
    assert_eq!(len, encode(&mut over_zeros));
    assert_eq!(over_ones[..len], over_zeros[..len], "a byte of the message was not written");
    assert!(
        over_ones[len..].iter().all(|&byte| byte == 0xff),
        "bytes beyond the message were written"
    );
    over_ones.truncate(len);
    over_ones
}

proptest! {
    #[test]
    fn retif_m5_requests_are_decoded_unchanged_and_every_byte_is_written(
        request in request(), seq in any::<u32>()
    ) {
        let bytes = encoded(|buffer| request.encode(seq, buffer));
        prop_assert_eq!(decode_request(&bytes), Ok((seq, request)));
    }

    #[test]
    fn retif_m5_replies_are_decoded_unchanged_and_every_byte_is_written(
        reply in reply(), seq in any::<u32>()
    ) {
        let bytes = encoded(|buffer| reply.encode(seq, buffer));
        prop_assert_eq!(decode_reply(&bytes), Ok((seq, reply)));
    }

    #[test]
    fn records_are_decoded_unchanged(record in record()) {
        prop_assert_eq!(Record::decode(&record.encode()), Some(record));
    }

    #[test]
    fn records_are_decoded_from_their_significant_bytes(record in record()) {
        let mut buffer = [0xa5; RECORD_SIZE];
        let length = record.encode_to(&mut buffer);
        prop_assert_eq!(&record.encode()[..length], &buffer[..length]);
        prop_assert_eq!(Record::decode(&buffer[..length]), Some(record));
    }

    #[test]
    fn damaged_records_are_invalid_or_different(
        record in record(), at in 0..RECORD_SIZE, bit in 0..8_u32
    ) {
        let mut bytes = record.encode();
        bytes[at] ^= 1 << bit;
        prop_assert_ne!(Record::decode(&bytes), Some(record));
        fuzz_wire(&bytes);
    }

    #[test]
    fn a_long_origin_of_a_rule_is_truncated_between_characters(
        refusal in refusal(), len in 0..2_000_usize
    ) {
        let rule: String = std::iter::repeat_n('é', len).collect();
        let refusal = talea_proto::Refusal { rule: Some(rule.clone()), ..refusal };
        let reply = Reply::Refused(Box::new(refusal));
        let bytes = encoded(|buffer| reply.encode(0, buffer));
        let Ok((0, Reply::Refused(read))) = decode_reply(&bytes) else { panic!("not read back") };
        let text = read.rule.expect("a rule was written");
        prop_assert!(rule.starts_with(&text));
        prop_assert_eq!(text.len(), rule.len().min(RULE_MAX));
    }
}
