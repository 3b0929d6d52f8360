//! System files on disk, with the files that they include.

use crate::exit::{Unreadable, invalid_file};
use anyhow::Context;
use std::path::Path;
use talea_config::FILE_MAX;
use talea_core::mutate;
use talea_os::bounded_read::read_bounded;
use talea_system::{self as system, Beside, Include, Registry, System};

/// Returns the resolver of included files, relative to the including file.
pub fn file_includes() -> impl Include {
    Beside(read_include)
}

/// Reads an included file. The system file itself may be a pipe. An included file must be regular,
/// because reading a pipe or terminal would block and is not repeatable.
pub fn read_include(path: &Path) -> Result<String, String> {
    // Follows symbolic links, as opening does. A file that is replaced in between may block only
    // its own user.
    match std::fs::metadata(path) {
        Ok(found)
            if mutate!(
                "cli-include-pipe",
                !found.is_file(),
                found.is_dir() && !found.is_file()
            ) =>
        {
            Err(format!("{} is no regular file", path.display()))
        }
        _ => read_text(path).map_err(|error| format!("{error:#}")),
    }
}

/// Reads a text file of bounded size.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let bytes = read_bounded(path, FILE_MAX).with_context(|| Unreadable::file(path))?;
    String::from_utf8(bytes)
        .map_err(|_| anyhow::anyhow!("it is not UTF-8 text"))
        .with_context(|| Unreadable::file(path))
}

/// Reads a system file with its included files and prints the warnings. The file may name what
/// `registry` has.
///
/// # Errors
/// The file cannot be read, or it is invalid.
pub fn load(path: &Path, registry: &Registry) -> anyhow::Result<System> {
    let origin = path.display().to_string();
    let system = system::read_with(&read_text(path)?, &origin, &file_includes(), registry)
        .map_err(invalid_file)?;
    print_warnings(&system);
    Ok(system)
}

/// Prints the warnings of a system file to standard error, separate from data.
pub fn print_warnings(system: &System) {
    eprint!("{}", talea_config::diagnostic::render(&system.warnings, false));
}
