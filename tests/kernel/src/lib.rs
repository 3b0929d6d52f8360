//! Support of the kernel tests: the environment of a test, a real daemon, clients of other users,
//! and kernel state.
//!
//! Model: every test has the machine exclusively (by a lock that other test programs use too) and
//! works in a folder of its own that any user may enter. A watchdog ends the program if a test
//! hangs. Everything that a test has started ends with it.
//!
//! Invariants. Tests read results from the kernel (`sched_getattr`, `/proc`, `sched/debug`), never
//! from the daemon's own ledger. Tests wait for a condition with a deadline, never for a time.
#![forbid(unsafe_code)]

pub mod agent;
pub mod bench;
pub mod conclusive;
pub mod config;
pub mod crowd;
pub mod daemon;
pub mod deployd;
pub mod kernel;
pub mod lines;

pub use agent::{Agent, Client};
pub use bench::{Bench, discharge, enlist, eventually, program};
pub use conclusive::Runs;
pub use daemon::Daemon;

/// User that exists on no machine.
pub const ALICE: u32 = 60_001;
/// Another user that exists on no machine.
pub const BOB: u32 = 60_002;

/// Ends a test early if a requirement is missing; fails instead if `TALEA_KERNEL_TESTS` is
/// `required`.
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

/// Ends a test early if it cannot change its user or set real-time policies.
#[macro_export]
macro_rules! needs_root {
    () => {
        $crate::needs!("root with CAP_SYS_NICE", $crate::kernel::is_root());
        $crate::needs!("real-time policies in this control group", $crate::kernel::has_fifo());
    };
}
