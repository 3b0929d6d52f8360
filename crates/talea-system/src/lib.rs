//! Talea's files: text to a checked setup or to diagnostics, and back to text.
//!
//! Model: the reader reads a whole file and finds all errors in one pass. Each diagnostic has line
//! and column, reason and remedy. A file with an error yields no setup at all.
//!
//! Absent on purpose: opening files, finding users, counting CPUs. The caller passes text, a
//! [`config::Names`] and a [`config::Target`]. So a configuration can be checked for another
//! computer, and tests need no real users and CPUs.
#![forbid(unsafe_code)]

pub mod config;
pub mod decimal;
pub mod diagnostic;
pub mod duration;
pub mod import;
mod source;
pub mod suggest;
pub mod system;
pub mod write;

pub use diagnostic::{Diagnostic, Severity};
