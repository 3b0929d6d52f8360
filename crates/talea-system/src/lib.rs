//! System files: TOML to trees, tasks and a workload, and back to TOML ([`write()`]).
//!
//! Model: schedulers and tasks name the scheduler above them by `in`. So a file reads from the CPU
//! down, and parts by independent teams fit together by names alone ([`Include`]). A scheduler
//! without `in` is a root. The reader reads each table by itself first, then resolves names. Then
//! `talea_core` checks each tree, and the reader reports its errors at the lines that cause them. A
//! file with an error yields no system.

//!
//! Absent on purpose: opening files ([`Include`]), and formats of other programs (`talea-import`).
#![forbid(unsafe_code)]

mod build;
mod draft;
mod include;
pub mod keys;
mod modes;
mod read;
mod registry;
mod system;
pub mod what_if;
mod write;

pub use include::{Beside, Include, folded};
pub use registry::Registry;
pub use system::{Chain, ChainTask, Expectation, Mode, Root, System};
pub use talea_config::{Diagnostic, diagnostic};
pub use write::{Unwritable, write};

use include::gather;
use talea_config::source::{Findings, Source};
use talea_config::syntax;
use toml::de::DeTable;

/// Reads a system. `origin` is the name of the file in diagnostics.
///
/// # Errors
/// All diagnostics, in file order. At least one is an error.
pub fn read(text: &str, origin: &str, include: &dyn Include) -> Result<System, Vec<Diagnostic>> {
    read_with(text, origin, include, &Registry::default())
}

/// Reads a system as [`read`] does, for a program that adds policies and selections to those of
/// Talea.
///
/// # Errors
/// See [`read`].
pub fn read_with(
    text: &str,
    origin: &str,
    include: &dyn Include,
    registry: &Registry,
) -> Result<System, Vec<Diagnostic>> {
    let mut parts = Vec::new();
    gather(text.to_owned(), origin.to_owned(), include, &mut parts, 0)?;
    let sources: Vec<Source<'_>> =
        parts.iter().map(|part| Source::new(&part.origin, &part.text)).collect();
    let mut findings: Vec<Findings<'_>> = sources.iter().map(Findings::new).collect();
    let mut documents = Vec::new();
    for (part, findings) in parts.iter().zip(&mut findings) {
        let (document, errors) = DeTable::parse_recoverable(&part.text);
        let is_whole = syntax::report(errors, document.get_ref(), findings);
        documents.push(if is_whole { document.into_inner() } else { DeTable::new() });
    }
    modes::system(&documents, registry, findings)
}
