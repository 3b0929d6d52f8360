//! Boundary to C: catches panics, checks pointers, and numbers errors.

use libc::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use talea_client::{Failure, Refusal};

/// Reason why a call does not return 0.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The daemon refused.
    Refused(Box<Refusal>),
    /// Communication with the daemon failed, or the kernel refused a call.
    Failed(Failure),
    /// The caller made a mistake: an error number and a description.
    Caller(c_int, &'static str),
    /// The caller made a mistake: an error number and a message that is composed at run time.
    Message(c_int, String),
}

pub(crate) type CallResult<T = ()> = Result<T, CallError>;

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> CallError {
        CallError::Refused(Box::new(refusal))
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> CallError {
        CallError::Failed(failure)
    }
}

impl CallError {
    /// Returns the result number of the error: positive for refusals, a negative error number
    /// otherwise, never 0.
    pub(crate) fn number(&self) -> c_int {
        match self {
            CallError::Refused(refusal) => refusal.code as c_int,
            CallError::Failed(failure) => -failure.errno().abs().max(1),
            CallError::Caller(errno, _) | CallError::Message(errno, _) => -errno,
        }
    }
}

/// Runs the body of an exported function and converts a panic to an error.
pub(crate) fn protect<T>(inside: impl FnOnce() -> CallResult<T>) -> CallResult<T> {
    // What a panic leaves half done is behind the client's mutex, which knows how to go on.
    catch_unwind(AssertUnwindSafe(inside)).unwrap_or(Err(CallError::Caller(
        libc::ENOTRECOVERABLE,
        "a bug in libtalea; please report it",
    )))
}

/// Borrows the object of `pointer`.
///
/// # Safety
/// `pointer` is NULL or points to a `T` that no thread writes during `'a`.
pub(crate) unsafe fn given<'a, T>(pointer: *const T, what: &'static str) -> CallResult<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(CallError::Caller(libc::EINVAL, what))
}

/// Borrows the object of `pointer` for writing.
///
/// # Safety
/// `pointer` is NULL or points to room for a `T` that no other thread uses during `'a`.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T, what: &'static str) -> CallResult<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or(CallError::Caller(libc::EINVAL, what))
}

/// Structure of integers only that starts with its size in a `u32`.
///
/// # Safety
/// The type is `repr(C)` without padding, any bytes are a value, and the first field is the `u32`.
pub(crate) unsafe trait Sized32: Copy {}

/// Maximum size of a structure, in bytes, in this version or a later one.
const SIZE_MAX: usize = 4096;
const SIZE_MIN: usize = 8;

/// Returns the size that the structure at `pointer` declares.
///
/// # Safety
/// `pointer` is NULL or points to at least a `u32`.
unsafe fn size_of_given<T: Sized32>(pointer: *const T) -> CallResult<usize> {
    if pointer.is_null() {
        return Err(CallError::Caller(libc::EINVAL, "a structure is NULL"));
    }
    // SAFETY: the caller's promise; a C structure is aligned, but a wrong cast must not be worse
    // than wrong.
    let size = unsafe { pointer.cast::<u32>().read_unaligned() } as usize;
    if (SIZE_MIN..=SIZE_MAX).contains(&size) {
        Ok(size)
    } else {
        Err(CallError::Caller(
            libc::EINVAL,
            "a structure's size is not set; start from its INIT macro",
        ))
    }
}

/// Copies a caller's structure of any version. Fields that the structure lacks become zero. Fields
/// that this library does not know must be zero (`E2BIG` otherwise).
///
/// # Safety
/// `pointer` is NULL or points to as many bytes as its first field says.
pub(crate) unsafe fn read<T: Sized32>(pointer: *const T) -> CallResult<T> {
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_given(pointer) }?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) };
    let ours = size.min(size_of::<T>());
    if bytes[ours..].iter().any(|&byte| byte != 0) {
        return Err(CallError::Caller(
            libc::E2BIG,
            "the structure has fields that this library does not know",
        ));
    }
    // SAFETY: any bytes are a value of `T`, zeros too.
    let mut value: T = unsafe { std::mem::zeroed() };
    // SAFETY: `ours` is within both.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut value).cast::<u8>(), ours) };
    Ok(value)
}

/// Checks that [`write`] would accept `pointer`.
///
/// # Safety
/// `pointer` is NULL or points to at least a `u32`.
pub(crate) unsafe fn can_be_written<T: Sized32>(pointer: *const T) -> CallResult {
    // SAFETY: the caller's promise.
    unsafe { size_of_given(pointer) }.map(drop)
}

/// Fills a caller's structure up to its size. Fields that this library does not know become zero.
/// The size field stays unchanged.
///
/// # Safety
/// `pointer` is NULL or points to as many writable bytes as its first field says.
pub(crate) unsafe fn write<T: Sized32>(pointer: *mut T, value: &T) -> CallResult {
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_given(pointer) }?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts_mut(pointer.cast::<u8>(), size) };
    let (ours, rest) = bytes.split_at_mut(size.min(size_of::<T>()));
    rest.fill(0);
    let field = size_of::<u32>();
    // SAFETY: `T` has no padding and at least `ours` bytes.
    let from = unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), ours.len()) };
    ours[field..].copy_from_slice(&from[field..]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Known {
        size: u32,
        a: u32,
        b: u64,
    }
    // SAFETY: integers without padding.
    unsafe impl Sized32 for Known {}

    #[repr(C)]
    struct Newer {
        known: Known,
        c: u64,
    }

    fn number(answer: CallResult<Known>) -> c_int {
        answer.map_or_else(|error| error.number(), |_| 0)
    }

    #[test]
    fn older_and_newer_callers_are_understood() {
        let full = Known { size: 16, a: 1, b: 2 };
        // SAFETY: all of these have the size that they say.
        unsafe {
            assert_eq!(read(&raw const full).expect("our own version"), full);
            let older = Known { size: 8, ..full };
            assert_eq!(
                read(&raw const older).expect("an older one"),
                Known { size: 8, a: 1, b: 0 }
            );
            let mut newer = Newer { known: Known { size: 24, ..full }, c: 0 };
            assert_eq!(read((&raw const newer).cast::<Known>()).expect("newer, but unused").b, 2);
            newer.c = 1;
            assert_eq!(number(read((&raw const newer).cast::<Known>())), -libc::E2BIG);
        }
    }

    #[test]
    fn answers_fill_exactly_what_the_caller_has() {
        let value = Known { size: 16, a: 7, b: 9 };
        let mut older = Known { size: 8, a: 0, b: 5 };
        let mut newer = Newer { known: Known { size: 24, a: 0, b: 0 }, c: 5 };
        // SAFETY: all of these have the size that they say.
        unsafe {
            write(&raw mut older, &value).expect("an older caller");
            assert_eq!(older, Known { size: 8, a: 7, b: 5 }, "nothing beyond its size is touched");
            write((&raw mut newer).cast::<Known>(), &value).expect("a newer caller");
        }
        assert_eq!((newer.known.size, newer.known.b, newer.c), (24, 9, 0));
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        for size in [0, 4, 7, 4097, u32::MAX] {
            let wrong = Known { size, a: 0, b: 0 };
            // SAFETY: only the size is read.
            assert_eq!(number(unsafe { read(&raw const wrong) }), -libc::EINVAL);
        }
        // SAFETY: NULL is allowed.
        assert_eq!(number(unsafe { read(std::ptr::null::<Known>()) }), -libc::EINVAL);
    }

    #[test]
    fn panics_stop_at_the_border() {
        let result: CallResult = protect(|| panic!("on purpose"));
        assert_eq!(result.map_err(|error| error.number()), Err(-libc::ENOTRECOVERABLE));
    }
}
