//! Construction of refusals. Refusals are boxed, because they are large and rare.
#![expect(clippy::unnecessary_box_returns, reason = "refusals travel boxed")]

use crate::input::Errno;
use talea_proto::{Code, Field, Refusal};

/// "No such process": the kernel's error for a thread that has exited.
pub(crate) const ESRCH: Errno = Errno(3);

/// "Invalid argument".
pub(crate) const EINVAL: Errno = Errno(22);

/// "Device or resource busy": the kernel's admission test has no free bandwidth.
pub(crate) const EBUSY: Errno = Errno(16);

/// Returns a refusal with a requested value and a limit.
pub(crate) fn refusal(code: Code, field: Field, asked: u64, limit: u64) -> Box<Refusal> {
    Box::new(Refusal {
        code,
        field,
        asked,
        limit,
        errno: 0,
        index: 0,
        rule: None,
        answers: Vec::new(),
    })
}

/// Returns a refusal without numbers.
pub(crate) fn refusal_without_numbers(code: Code, field: Field) -> Box<Refusal> {
    refusal(code, field, 0, 0)
}

/// Returns the refusal of one more connection beside `held` ones.
pub(crate) fn too_many_sessions(held: u32, limit: u32) -> Box<Refusal> {
    refusal(Code::Quota, Field::Sessions, u64::from(held) + 1, u64::from(limit))
}

/// Returns the refusal for a kernel error.
pub(crate) fn kernel_refusal(errno: Errno) -> Box<Refusal> {
    match errno {
        ESRCH => refusal_without_numbers(Code::NoSuchThread, Field::Thread),
        Errno(number) => {
            let mut refusal = refusal_without_numbers(Code::Kernel, Field::Thread);
            refusal.errno = number;
            refusal
        }
    }
}
