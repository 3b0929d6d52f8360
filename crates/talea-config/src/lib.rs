//! The daemon's configuration, and what readers of all of Talea's files share: diagnostics, TOML
//! tables with positions, durations and decimals.
//!
//! Model: the reader reads a whole file and finds all errors in one pass. Each diagnostic has line
//! and column, reason and remedy. A file with an error yields no setup at all.
//!
//! Absent on purpose: opening files, finding users, counting CPUs. The caller passes text,
//! [`Names`] and a [`Target`]. So a configuration can be checked for another computer, and tests
//! need no real users and CPUs. Absent too: formats of other programs. The daemon links this crate
//! as root, and TOML is the only language that it reads.
#![forbid(unsafe_code)]

// Shared with readers of other files, from the lowest up.
pub mod decimal;
pub mod diagnostic;
pub mod duration;
pub mod key;
pub mod source;
pub mod suggest;
pub mod syntax;
pub mod table;

// The daemon's configuration.
mod checks;
mod daemon;
pub mod keys;
pub mod lexis;
mod plugin;
mod read;
mod rule;
mod setup;
mod target;
pub mod write;

pub use diagnostic::{Diagnostic, Severity};
pub use read::{read, read_bytes};
pub use rule::RULES_MAX;
pub use setup::{DaemonSetup, Loaded, LogLevel, SOCKET_PATH_MAX};
pub use source::FILE_MAX;
pub use target::{Names, RootDomains, Target};
