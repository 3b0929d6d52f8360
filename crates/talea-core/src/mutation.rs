//! Mutation points: places where a test can break one mechanism of the code on purpose.
//!
//! Model: [`mutate!`](crate::mutate) names a point and holds the code and its mutant, a version
//! that breaks the mechanism of that name. An ordinary build contains the code alone. A build with
//! `--cfg mutate` contains both versions, and runs the mutant of the one point that the environment
//! variable `TALEA_MUTATION` names. The compiler checks the mutants in every build. `cargo xtask
//! mutate` builds once, activates one point after the other and expects the tests that
//! `xtask/mutations.toml` lists for the point to fail.
//!
//! Invariant: without `--cfg mutate`, a point costs nothing and leaves no trace in the binary.
//!
//! Reference: DeMillo, Lipton, Sayward, *Hints on test data selection*, IEEE Computer 11(4), 1978.

/// Expands to `$code`. In a build with `--cfg mutate`, expands to `$mutant` where the environment
/// activates the point `$name`. Without a mutant, the statement `$code` is left out there.
#[cfg(not(any(mutate, clippy)))]
#[macro_export]
macro_rules! mutate {
    ($name:literal, $code:expr $(,)?) => {
        $code
    };
    ($name:literal, $code:expr, $mutant:expr $(,)?) => {
        if false { $mutant } else { $code }
    };
}

/// Expands to `$code`: a mutant is wrong code, of which clippy would warn.
#[cfg(clippy)]
#[macro_export]
macro_rules! mutate {
    ($name:literal, $code:expr $(, $mutant:expr)? $(,)?) => {
        $code
    };
}

/// Expands to `$code`, and to `$mutant` where the environment activates the point `$name`. Without
/// a mutant, the statement `$code` is left out there.
#[cfg(all(mutate, not(clippy)))]
#[macro_export]
macro_rules! mutate {
    ($name:literal, $code:expr $(,)?) => {{
        static POINT: $crate::mutation::Point = $crate::mutation::Point::new($name);
        if !POINT.is_active() {
            _ = $code;
        }
    }};
    ($name:literal, $code:expr, $mutant:expr $(,)?) => {{
        static POINT: $crate::mutation::Point = $crate::mutation::Point::new($name);
        if POINT.is_active() { $mutant } else { $code }
    }};
}

#[cfg(mutate)]
pub use point::Point;

/// Environment variable that names the active point. A process that clears the environment of a
/// child passes this variable on, because the tests of a point may be about the child.
#[cfg(mutate)]
pub const VARIABLE: &str = "TALEA_MUTATION";

#[cfg(mutate)]
mod point {
    extern crate std;

    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// A mutation point, which reads the environment once.
    #[derive(Debug)]
    pub struct Point {
        name: &'static str,
        state: AtomicU8,
    }

    const UNREAD: u8 = 0;
    const INACTIVE: u8 = 1;
    const ACTIVE: u8 = 2;

    impl Point {
        /// Creates a point that has not read the environment yet.
        pub const fn new(name: &'static str) -> Point {
            Point { name, state: AtomicU8::new(UNREAD) }
        }

        /// Whether `TALEA_MUTATION` names this point.
        pub fn is_active(&self) -> bool {
            match self.state.load(Relaxed) {
                UNREAD => self.read(),
                state => state == ACTIVE,
            }
        }

        #[cold]
        fn read(&self) -> bool {
            static CHOSEN: std::sync::OnceLock<Option<std::ffi::OsString>> =
                std::sync::OnceLock::new();
            let chosen = CHOSEN.get_or_init(|| std::env::var_os(super::VARIABLE));
            let is_active = chosen.as_deref().is_some_and(|chosen| chosen == self.name);
            self.state.store(if is_active { ACTIVE } else { INACTIVE }, Relaxed);
            is_active
        }
    }
}
