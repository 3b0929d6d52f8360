//! Writing parts one after the other, and reading them back until nothing is left.

use super::{Field, Header, Wrong};
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
        writer.put(&Header::new(op, seq));
        writer
    }

    pub(super) fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, part: &T) {
        let bytes = part.as_bytes();
        self.buffer[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(super) fn len(self) -> usize {
        self.len
    }
}

/// What is left of a message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    read: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Reader<'a> {
        Reader { rest: body, read: size_of::<Header>() }
    }

    /// The next part.
    pub(super) fn take<T>(&mut self) -> Result<&'a T, Wrong>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (part, rest) = T::ref_from_prefix(self.rest).map_err(|_| self.short(size_of::<T>()))?;
        self.advance(rest, size_of::<T>());
        Ok(part)
    }

    /// The next `count` parts of one kind.
    pub(super) fn take_many<T>(&mut self, count: usize) -> Result<&'a [T], Wrong>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let bytes = count * size_of::<T>();
        let (parts, rest) =
            <[T]>::ref_from_prefix_with_elems(self.rest, count).map_err(|_| self.short(bytes))?;
        self.advance(rest, bytes);
        Ok(parts)
    }

    /// The only part of a body.
    pub(super) fn only<T>(mut self) -> Result<&'a T, Wrong>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let part = self.take()?;
        self.end()?;
        Ok(part)
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), Wrong> {
        if mutate!("wire-trailing-bytes", self.rest.is_empty(), true) {
            Ok(())
        } else {
            Err(Wrong::length(self.read + self.rest.len(), self.read))
        }
    }

    fn advance(&mut self, rest: &'a [u8], by: usize) {
        self.rest = rest;
        self.read += by;
    }

    fn short(&self, wanted: usize) -> Wrong {
        Wrong::length(self.read + self.rest.len(), self.read + wanted)
    }
}

/// `value` as one of `T`, or the part that says something unknown.
pub(super) fn known<T>(field: Field, value: u16, decoded: Option<T>) -> Result<T, Wrong> {
    decoded.ok_or_else(|| Wrong::new(field, value, 0_u64))
}
