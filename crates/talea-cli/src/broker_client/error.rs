//! Errors that end a command, and their exit codes.

use crate::grant_text;
use anyhow::bail;
use std::fmt;
use talea_proto::{Refusal, Reply};
use talea_study::exit::Exit;

/// Refusal of the broker. It is an error only here, where it ends the command.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Box<Refusal>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&grant_text::refusal(&self.0))
    }
}

impl std::error::Error for Refused {}

/// Error that no broker is available.
#[derive(Debug)]
pub(crate) struct Unreachable(pub(crate) String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

/// Returns the exit code of an error that ends a command.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    if let Some(refused) = error.downcast_ref::<Refused>() {
        Exit::from_refusal(&refused.0)
    } else if error.is::<Unreachable>() {
        Exit::Unreachable
    } else {
        Exit::from_error(error)
    }
}

/// Returns the error that the reply does not belong to the request.
pub(super) fn unexpected<T>(reply: &Reply) -> anyhow::Result<T> {
    bail!("the broker sent an unexpected reply: {reply:?}")
}
