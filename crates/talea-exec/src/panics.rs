//! What is left of a panic that was caught.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What somebody who panicked has said. If that which it has thrown panics in its turn when it is
/// thrown away, nobody hears it.
pub fn said(panic: Box<dyn Any + Send>) -> String {
    let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // It might do the same again.
        std::mem::forget(another);
    }
    said.unwrap_or_else(|| "something that is no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::said;
    use std::panic::{catch_unwind, panic_any};

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose, too");
        }
    }

    #[test]
    fn texts_are_told_and_what_panics_again_is_no_text() {
        let of = |panics: fn()| said(catch_unwind(panics).expect_err("it panics"));
        assert_eq!(of(|| panic!("plain")), "plain");
        assert_eq!(of(|| panic!("number {}", 7)), "number 7");
        assert_eq!(of(|| panic_any(Bomb)), "something that is no text");
    }
}
