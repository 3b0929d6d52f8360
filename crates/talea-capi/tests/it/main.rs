//! Tests of the C library by C programs, which are compiled, linked and run.

mod apps;
mod calls;
mod cases;
mod connection_errors;
mod daemon;
mod headers;
#[path = "../../../talea-client/tests/it/mock.rs"]
mod mock;
mod programs;
mod toolchain;
mod yasmin;

/// Skips a test with a message if the machine lacks a requirement. Fails instead if
/// `TALEA_KERNEL_TESTS` is `required`.
macro_rules! needs {
    ($what:expr, $have:expr) => {
        if !$have {
            assert!(
                std::env::var_os("TALEA_KERNEL_TESTS").is_none_or(|value| value != "required"),
                "{} is missing",
                $what
            );
            eprintln!("skipped: needs {}", $what);
            return;
        }
    };
}
pub(crate) use needs;
