//! Conversion of return values into errors, shared by all modules.

use std::io;

/// Returns `returned`, or the error of the call that has just returned `-1`.
pub(crate) fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Returns `returned`, or the error of the call that has just returned a long `-1`.
pub(crate) fn check_long(returned: libc::c_long) -> io::Result<libc::c_long> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Creates an error with kernel error number `number`.
pub(crate) fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// Whether `error` has kernel error number `number`.
pub(crate) fn is(error: &io::Error, number: i32) -> bool {
    error.raw_os_error() == Some(number)
}

/// Whether a call on a control group failed because another process has removed the group already.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}
