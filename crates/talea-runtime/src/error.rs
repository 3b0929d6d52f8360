//! Errors of declarations and runs.

use std::fmt;
use talea_exec::Failure;

/// Reason why there is no run, or why it failed.
#[derive(Debug)]
pub enum Error {
    /// The declaration is invalid.
    Declared(String),
    /// The system does not have what the configuration requires.
    Machine(String),
    /// This system cannot execute the run, or the run had to be ended.
    Run(Failure),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Declared(why) | Error::Machine(why) => f.write_str(why),
            Error::Run(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Run(failure) => Some(failure),
            _ => None,
        }
    }
}
