//! Invalid field of a message, and its refusal.

use crate::refusal::{Code, Field, Refusal};
use alloc::vec::Vec;

/// Invalid part of a message: the field, its value and the allowed maximum.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldError {
    pub(super) code: Code,
    pub(super) field: Field,
    pub(super) asked: u64,
    pub(super) limit: u64,
    /// Index of the task in a group.
    pub(super) index: u32,
}

impl FieldError {
    pub(super) fn new(field: Field, asked: impl Into<u64>, limit: impl Into<u64>) -> FieldError {
        FieldError {
            code: Code::Malformed,
            field,
            asked: asked.into(),
            limit: limit.into(),
            index: 0,
        }
    }

    /// Creates the error for a message of `asked` bytes that should have `limit` bytes.
    pub(super) fn length(asked: usize, limit: usize) -> FieldError {
        FieldError::new(Field::Message, asked as u64, limit as u64)
    }

    /// Checks that only known bits are set.
    pub(super) fn bits(field: Field, all: u32, known: u32) -> Result<(), FieldError> {
        if all & !known == 0 { Ok(()) } else { Err(FieldError::new(field, all, known)) }
    }

    /// Checks that an undeclared part is zero.
    pub(super) fn zero(field: Field, value: impl Into<u64>) -> Result<(), FieldError> {
        let value = value.into();
        if value == 0 { Ok(()) } else { Err(FieldError::new(field, value, 0_u64)) }
    }
}

impl From<FieldError> for Refusal {
    fn from(wrong: FieldError) -> Refusal {
        Refusal {
            code: wrong.code,
            field: wrong.field,
            asked: wrong.asked,
            limit: wrong.limit,
            errno: 0,
            index: wrong.index,
            rule: None,
            answers: Vec::new(),
        }
    }
}
