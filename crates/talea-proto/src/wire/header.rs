//! Header of a message, and its split from the body.

use super::field_error::FieldError;
use crate::refusal::{Code, Field, Refusal};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Header of every message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Operation of the message: [`super::request_op`] or [`super::reply_op`].
    pub op: U16,
    /// Protocol version of the body.
    pub version: U16,
    /// Number of the request, chosen by the client; the reply repeats it.
    pub seq: U32,
}

const _: () = assert!(size_of::<Header>() == 8);

impl Header {
    pub(super) fn new(op: u16, seq: u32) -> Header {
        Header { op: U16::new(op), version: U16::new(crate::VERSION), seq: U32::new(seq) }
    }
}

/// A message that could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Number in the header; 0 if the header could not be read.
    pub seq: u32,
    /// Reason, as a refusal for the sender.
    pub refusal: Refusal,
}

/// Splits a message into its header and its body; `any_version` lists the operations with a
/// version-independent layout.
pub(super) fn split_header<'a>(
    message: &'a [u8],
    any_version: &[u16],
) -> Result<(&'a Header, &'a [u8]), DecodeError> {
    let garbled = |seq: u32, wrong: FieldError| DecodeError { seq, refusal: wrong.into() };
    let Ok((header, body)) = Header::ref_from_prefix(message) else {
        return Err(garbled(0, FieldError::length(message.len(), size_of::<Header>())));
    };
    let version = header.version.get();
    if version != crate::VERSION && !any_version.contains(&header.op.get()) {
        let wrong = FieldError {
            code: Code::Version,
            ..FieldError::new(Field::Message, version, crate::VERSION)
        };
        return Err(garbled(header.seq.get(), wrong));
    }
    Ok((header, body))
}
