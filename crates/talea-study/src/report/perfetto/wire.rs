//! Encoder for protocol-buffer messages: numbers, texts and nested messages.
//!
//! The encoding is that of the protobuf documentation, "Encoding": a field is a key (number · 8 +
//! wire type) and a value. Wire type 0 is a varint, wire type 2 a length and that many bytes.
//! Signed fields get only non-negative values here, for which `int32`, `int64` and `uint64` have
//! the same bytes.

#![allow(
    clippy::inline_always,
    reason = "measured: a trace is written in three quarters of the time"
)]

/// Destination of bytes.
pub(super) trait Bytes {
    fn put(&mut self, byte: u8);
    /// Returns the number of bytes.
    fn count(&self) -> usize;
    fn set(&mut self, at: usize, byte: u8);
    /// Inserts space for one byte.
    fn insert(&mut self, at: usize);
}

impl Bytes for Vec<u8> {
    fn put(&mut self, byte: u8) {
        self.push(byte);
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn set(&mut self, at: usize, byte: u8) {
        self[at] = byte;
    }

    fn insert(&mut self, at: usize) {
        self.insert(at, 0);
    }
}

/// In-place buffer for one event, which has no texts and at most five numbers. The buffer needs no
/// capacity check, which matters because a trace has millions of events.
#[derive(Debug)]
pub(super) struct EventBuffer<'b> {
    bytes: &'b mut [u8; EVENT_MAX_BYTES],
    count: usize,
}

/// Maximum length of an event.
pub(super) const EVENT_MAX_BYTES: usize = 120;

impl<'b> EventBuffer<'b> {
    #[inline]
    pub(super) fn message(bytes: &'b mut [u8; EVENT_MAX_BYTES]) -> Message<EventBuffer<'b>> {
        Message(EventBuffer { bytes, count: 0 })
    }
}

impl Bytes for EventBuffer<'_> {
    #[inline]
    fn put(&mut self, byte: u8) {
        self.bytes[self.count] = byte;
        self.count += 1;
    }

    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn set(&mut self, at: usize, byte: u8) {
        self.bytes[at] = byte;
    }

    fn insert(&mut self, _at: usize) {
        unreachable!("any length in 120 bytes is one byte");
    }
}

/// Encoder of one message.
#[derive(Debug, Default)]
pub(super) struct Message<B: Bytes = Vec<u8>>(pub(super) B);

impl<B: Bytes> Message<B> {
    #[inline(always)]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.put(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.put(value as u8);
    }

    /// Writes an integer, an enumerator or a boolean.
    #[inline(always)]
    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(text.len() as u64);
        text.bytes().for_each(|byte| self.0.put(byte));
    }

    /// Writes a nested message.
    #[inline(always)]
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message<B>)) {
        self.varint(u64::from(field) << 3 | 2);
        // Most messages are shorter than 128 bytes, so their length is one byte.
        let mut at = self.0.count();
        self.0.put(0);
        fill(self);
        let mut length = self.0.count() - at - 1;
        while length >= 0x80 {
            self.0.set(at, length as u8 | 0x80);
            length >>= 7;
            at += 1;
            self.0.insert(at);
        }
        self.0.set(at, length as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_as_the_documentation_shows_them() {
        let mut message: Message = Message::default();
        message.number(1, 150);
        message.text(2, "testing");
        assert_eq!(message.0, b"\x08\x96\x01\x12\x07testing");
        message.0.clear();
        message.message(3, |inner| inner.number(1, 150));
        assert_eq!(message.0, b"\x1a\x03\x08\x96\x01");
    }

    #[test]
    fn a_message_of_any_length_says_how_long_it_is() {
        for length in [0, 1, 125, 126, 127, 128, 16_380, 16_383, 16_384, 2_097_200] {
            let mut message: Message = Message::default();
            message.message(1, |inner| inner.0.resize(inner.0.len() + length, 7));
            let (mut at, mut said) = (1, 0);
            loop {
                let byte = message.0[at];
                said |= usize::from(byte & 0x7f) << (7 * (at - 1));
                at += 1;
                if byte < 0x80 {
                    break;
                }
            }
            assert_eq!((said, message.0.len() - at), (length, length));
            assert!(message.0[at..].iter().all(|&byte| byte == 7));
        }
    }
}
