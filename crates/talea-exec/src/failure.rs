//! Reasons why a run fails.

use std::fmt;
use std::io;
use talea_core::engine::TreeError;

/// Reason why there was no run, or why it was ended.
#[derive(Debug)]
pub enum Failure {
    /// The plan cannot be executed.
    Plan(String),
    /// A tree cannot be built.
    Tree(TreeError),
    /// The kernel refused an operation that needs CAP_SYS_NICE, or RLIMIT_RTPRIO up to the
    /// watchdog's priority.
    NoRight(io::Error),
    /// The kernel refused another operation.
    Os(io::Error),
    /// The run did not end by itself, so the watchdog ended it.
    Hung,
    /// A policy or version selector, probably of the application, panicked with this message. The
    /// state of the engine was unknown, so the run was ended at once.
    Panicked(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Plan(why) => f.write_str(why),
            Failure::Tree(wrong) => write!(f, "node {} of the tree: {}", wrong.node.0, wrong.kind),
            Failure::NoRight(error) => write!(
                f,
                "no right to real-time priorities ({error}): run it as root or with CAP_SYS_NICE, outside control \
                 groups without real-time runtime; `talea simulate` needs no right"
            ),
            Failure::Os(error) => write!(f, "the kernel refused: {error}"),
            Failure::Hung => {
                f.write_str("the run did not end by itself and was ended by its watchdog")
            }
            Failure::Panicked(said) => write!(
                f,
                "a scheduling decision panicked, and the run was ended: {said} (a policy or version selector of the application must not \
                 panic; if it has none, this is a bug in Talea)"
            ),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Failure::NoRight(error) | Failure::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::PermissionDenied {
            Failure::NoRight(error)
        } else {
            Failure::Os(error)
        }
    }
}
