//! Source of the answer of this process: its command or its limit, whichever begins first.

use std::sync::atomic::{AtomicU8, Ordering};

/// Source of the answer of this process: none yet, the command, or its limit.
static ANSWER: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const COMMAND: u8 = 1;
const LIMIT: u8 = 2;

/// Notes that the command begins its answer: its limit does not end it any more. If the limit has
/// ended the command, this function does not return.
pub(crate) fn answer_begins() {
    let before = ANSWER.compare_exchange(NONE, COMMAND, Ordering::AcqRel, Ordering::Acquire);
    while before == Err(LIMIT) {
        // The other thread ends the process.
        std::thread::park();
    }
}

/// Notes that the limit begins the answer. Returns `false` if the command has begun it.
pub(crate) fn limit_begins() -> bool {
    ANSWER.compare_exchange(NONE, LIMIT, Ordering::AcqRel, Ordering::Acquire).is_ok()
}
