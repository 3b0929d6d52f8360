//! What the modules share: turning return values into errors.

use std::io;

/// The error of the call that has just returned `-1`.
pub(crate) fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// As [`check`], for calls that return a long.
pub(crate) fn check_long(returned: libc::c_long) -> io::Result<libc::c_long> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// An error with a kernel number.
pub(crate) fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// Whether `error` carries this kernel number.
pub(crate) fn is(error: &io::Error, number: i32) -> bool {
    error.raw_os_error() == Some(number)
}
