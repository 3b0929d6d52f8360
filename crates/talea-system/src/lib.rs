//! Talea's files: text in, a checked setup or exact complaints out, and back to text.
//!
//! Model: a file is read whole, every problem in it is found in one pass and carries its line and
//! column, the reason, and what would be right. A file with an error yields no setup at all, never
//! half of one.
//!
//! Absent on purpose: opening files, looking up users, counting CPUs. The caller passes text, a
//! [`config::Names`] and a [`config::Target`]; so a configuration can be checked for another
//! machine, and tests need none.
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
