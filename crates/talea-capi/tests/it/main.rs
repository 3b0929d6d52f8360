//! The C library as C programs meet it: compiled, linked and run.

mod apps;
mod calls;
mod daemon;
mod headers;
#[path = "../../../talea-client/tests/it/mock.rs"]
mod mock;
mod programs;
mod silence;
mod stage;
mod yasmin;

/// Returns from a test that needs what this machine lacks, loudly; where everything must be there,
/// fails.
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
