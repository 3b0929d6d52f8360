//! Sequential writer and reader of message parts.

use super::field_error::FieldError;
use super::header::Header;
use crate::refusal::Field;
use talea_core::mutate;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A message under construction.
///
/// # Panics
/// If the buffer is too short; [`crate::MESSAGE_MAX`] bytes hold every message.
pub(super) struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(buffer: &'a mut [u8], op: u16, seq: u32) -> Writer<'a> {
        let mut writer = Writer { buffer, len: 0 };
        writer.write(&Header::new(op, seq));
        writer
    }

    pub(super) fn write<T: IntoBytes + Immutable + ?Sized>(&mut self, part: &T) {
        let bytes = part.as_bytes();
        self.buffer[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(super) fn len(self) -> usize {
        self.len
    }
}

/// Unread rest of a message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    read: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Reader<'a> {
        Reader { rest: body, read: size_of::<Header>() }
    }

    /// Reads the next part.
    pub(super) fn next<T>(&mut self) -> Result<&'a T, FieldError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (part, rest) =
            T::ref_from_prefix(self.rest).map_err(|_| self.too_short(size_of::<T>()))?;
        self.advance(rest, size_of::<T>());
        Ok(part)
    }

    /// Reads the next `count` parts of one type.
    pub(super) fn next_slice<T>(&mut self, count: usize) -> Result<&'a [T], FieldError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let bytes = count * size_of::<T>();
        let (parts, rest) = <[T]>::ref_from_prefix_with_elems(self.rest, count)
            .map_err(|_| self.too_short(bytes))?;
        self.advance(rest, bytes);
        Ok(parts)
    }

    /// Reads the only part of a body.
    pub(super) fn sole<T>(mut self) -> Result<&'a T, FieldError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let part = self.next()?;
        self.expect_end()?;
        Ok(part)
    }

    /// Checks that no bytes are left.
    pub(super) fn expect_end(&self) -> Result<(), FieldError> {
        if mutate!("wire-trailing-bytes", self.rest.is_empty(), true) {
            Ok(())
        } else {
            Err(FieldError::length(self.read + self.rest.len(), self.read))
        }
    }

    fn advance(&mut self, rest: &'a [u8], by: usize) {
        self.rest = rest;
        self.read += by;
    }

    fn too_short(&self, wanted: usize) -> FieldError {
        FieldError::length(self.read + self.rest.len(), self.read + wanted)
    }
}

/// Returns the decoded value, or an error for an unknown `value`.
pub(super) fn known<T>(field: Field, value: u16, decoded: Option<T>) -> Result<T, FieldError> {
    decoded.ok_or_else(|| FieldError::new(field, value, 0_u64))
}
