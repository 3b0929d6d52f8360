//! Support of the kernel tests: the environment of a test, a real daemon, clients of other users,
//! and kernel state.
//!
//! Model: every test has the machine exclusively (a lock that other test programs honour too),
//! works in a folder of its own that any user may enter, and is watched: a test that hangs ends the
//! program. Whatever it started ends with it.
//!
//! Invariants. Results are read from the kernel (`sched_getattr`, `/proc`, `sched/debug`), never
//! from the daemon's own ledger. Waiting is for a condition with a deadline, never for a time.
#![forbid(unsafe_code)]

pub mod agent;
pub mod bench;
pub mod config;
pub mod daemon;
pub mod kernel;
pub mod lines;

pub use agent::{Agent, Client};
pub use bench::{Bench, eventually};
pub use daemon::Daemon;

/// Two users that exist on no machine.
pub const ALICE: u32 = 60_001;
/// The other user.
pub const BOB: u32 = 60_002;

/// Ends a test early where something is missing, unless the run requires everything.
#[macro_export]
macro_rules! needs {
    ($what:expr, $have:expr) => {
        if !$have {
            assert!(
                std::env::var_os("TALEA_KERNEL_TESTS").is_none_or(|v| v != "required"),
                "{} is missing",
                $what
            );
            eprintln!("skipped: needs {}", $what);
            return;
        }
    };
}

/// Ends a test early where it can't be other users or set real-time policies.
#[macro_export]
macro_rules! needs_root {
    () => {
        $crate::needs!("root with CAP_SYS_NICE", $crate::kernel::is_root());
        $crate::needs!("real-time policies in this control group", $crate::kernel::has_fifo());
    };
}
