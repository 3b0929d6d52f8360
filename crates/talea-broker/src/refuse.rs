//! Refusals as the broker writes them: boxed, because they are large, rare, and travel far.
#![expect(clippy::unnecessary_box_returns, reason = "refusals travel boxed")]

use crate::input::Errno;
use talea_proto::{Code, Field, Refusal};

/// "No such process": the kernel's word for a thread that has ended.
pub(crate) const ESRCH: Errno = Errno(3);

/// A refusal with one pair of numbers.
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

/// A refusal whose code says it all.
pub(crate) fn plain(code: Code, field: Field) -> Box<Refusal> {
    refusal(code, field, 0, 0)
}

/// The kernel's own refusal.
pub(crate) fn kernel(errno: Errno) -> Box<Refusal> {
    match errno {
        ESRCH => plain(Code::NoSuchThread, Field::Thread),
        Errno(number) => {
            let mut refusal = plain(Code::Kernel, Field::Thread);
            refusal.errno = number;
            refusal
        }
    }
}
