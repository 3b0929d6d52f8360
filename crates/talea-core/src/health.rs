//! Health of a program that plays a task: readiness, failures, restarts.
//!
//! The vocabulary is that of the health tables of ARINC 653 and of the recovery actions of Eclipse
//! S-CORE. `talea-system` reads it, and `talea-deploy` decides by it.

use crate::Span;

/// Readiness of a program, and actions at its failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Time from the start within which the program reports that it is ready; `None` if it reports
    /// nothing.
    pub ready: Option<Span>,
    /// Action at a failure.
    pub on_failure: OnFailure,
    /// Restarts.
    pub restart: Restart,
}

/// Action at a failure: an exit with another status than success, or a program that is not ready in
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The program is started again, within the limits of [`Restart`].
    #[default]
    Restart,
    /// The program is stopped and not started again.
    Idle,
    /// No action: a program that is not ready runs on, and one that exited stays away.
    Ignore,
}

/// Exits after which a program is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartOn {
    /// Failures only.
    #[default]
    Failure,
    /// Every exit, also a successful one.
    Always,
}

/// Limits of restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Exits after which the program is started again.
    pub when: RestartOn,
    /// Maximum number of restarts within `within`. After that the task has failed.
    pub attempts: u32,
    /// Window of `attempts`.
    pub within: Span,
    /// Time before the first restart; each further one within the window waits twice as long, up to
    /// the window.
    pub backoff: Span,
}

impl Default for Restart {
    /// Returns the limits of a file without `[task.restart]`: three restarts within a minute, the
    /// first after a second.
    fn default() -> Restart {
        Restart {
            when: RestartOn::Failure,
            attempts: 3,
            within: Span::from_ns(60_000_000_000),
            backoff: Span::from_ns(1_000_000_000),
        }
    }
}
