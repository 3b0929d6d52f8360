//! Messages of caught panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the message of a panic. A payload that panics when it is dropped is leaked.
pub fn message(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // It might panic again.
        std::mem::forget(another);
    }
    text.unwrap_or_else(|| "a payload that is not text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::message;
    use std::panic::{catch_unwind, panic_any};

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose, too");
        }
    }

    #[test]
    fn text_payloads_are_returned_and_a_payload_that_panics_again_is_not_text() {
        let of = |panics: fn()| message(catch_unwind(panics).expect_err("it panics"));
        assert_eq!(of(|| panic!("plain")), "plain");
        assert_eq!(of(|| panic!("number {}", 7)), "number 7");
        assert_eq!(of(|| panic_any(Bomb)), "a payload that is not text");
    }
}
