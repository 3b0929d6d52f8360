//! Exit codes: one table for the program, the man page and the tests.
//!
//! Absent on purpose: a code per refusal. A script needs to know whether the caller or the
//! administrator must act. The reason with its numbers is in the message and in `--json`.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use talea_config::Diagnostic;
use talea_config::diagnostic::render;
use talea_proto::{Code, Refusal};

/// Exit status of `talea` and `talea-lab`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Ok,
    /// Failure.
    Failure,
    /// Wrong arguments, or a file that is malformed or cannot be read.
    Usage,
    /// The request is valid and does not fit.
    Refused,
    /// An access rule, a quota or ownership denies the request.
    Denied,
    /// The daemon is not reachable.
    Unreachable,
    /// The measurement is inconclusive because of CPU stalls.
    Inconclusive,
    /// A measured value is below its threshold; for `talea-lab` only.
    BelowThreshold,
    /// The program's exit code, or 125 to 127 if the program did not run; for `run` only.
    Program(u8),
}

/// `run` itself failed; the program was not started.
pub const RUN_FAILED: u8 = 125;
/// The program was found but could not be executed.
pub const RUN_NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub const RUN_NOT_FOUND: u8 = 127;

/// Table for the manual: code and meaning.
pub const TABLE: [(&str, &str); 7] = [
    (
        "0",
        "success; for doctor: no check failed; for check: the file is valid; for analyze: every task is proved",
    ),
    (
        "1",
        "failure: an operation failed; for analyze: not every task is proved; for deploy plan and apply: a job is known to be late; for deploy status: a task has failed or a value is contended; for deploy diff: something differs",
    ),
    ("2", "wrong arguments, or a file that is malformed or cannot be read"),
    (
        "3",
        "refused: the request does not fit (by admission, or into this machine), or the kernel refused it",
    ),
    ("4", "denied: by an access rule, a quota, or because it belongs to another user"),
    ("5", "the daemon cannot be reached"),
    ("6", "inconclusive: measured, but CPU stalls disturbed too many jobs"),
];

/// Additional rows for `run`, which returns 125 for the codes above.
pub const RUN_TABLE: [(&str, &str); 5] = [
    (
        "125",
        "run itself failed (refused, denied, no daemon, wrong arguments); the program was not started",
    ),
    ("126", "the program was found but could not be executed"),
    ("127", "the program was not found"),
    ("128+N", "the program was ended by signal N"),
    ("else", "the program's own exit code"),
];

impl Exit {
    /// Returns the exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Denied => 4,
            Exit::Unreachable => 5,
            Exit::Inconclusive => 6,
            Exit::BelowThreshold => 7,
            Exit::Program(code) => code,
        }
    }

    /// Returns the exit code of an error that ends a command.
    pub fn from_error(error: &anyhow::Error) -> Exit {
        match error.downcast_ref::<CommandError>() {
            Some(error) => error.exit(),
            None if error.is::<Unreadable>() => Exit::Usage,
            None => Exit::Failure,
        }
    }

    /// Classifies a refusal by the person who must act.
    pub fn from_refusal(refusal: &Refusal) -> Exit {
        match refusal.code {
            Code::NotAllowed
            | Code::RuleBound
            | Code::RuleOmission
            | Code::NotOwner
            | Code::ForeignThread
            | Code::NotRoot
            | Code::NotFrontEnd
            | Code::BadToken
            | Code::Quota => Exit::Denied,
            Code::NoPlugin if refusal.is_denied_everywhere() => Exit::Denied,
            Code::NoPlugin | Code::Kernel => Exit::Refused,
            Code::Malformed | Code::UnknownPlugin => Exit::Usage,
            Code::NoSuchSpec
            | Code::NoSuchThread
            | Code::ThreadTaken
            | Code::SpecTaken
            | Code::NotAttached
            | Code::Version
            | Code::TidNotAccepted
            | Code::Stopping
            | Code::Busy
            | Code::NotRecorded
            | Code::Starvation => Exit::Failure,
        }
    }
}

/// Error that ends a command with an exit code of its own.
#[derive(Debug)]
pub enum CommandError {
    /// The request of the user is invalid.
    Usage(String),
    /// A file of the user is invalid.
    File(Vec<Diagnostic>),
    /// This computer does not execute the system, for this reason.
    NotExecutable(String),
}

impl CommandError {
    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        match self {
            CommandError::Usage(_) | CommandError::File(_) => Exit::Usage,
            CommandError::NotExecutable(_) => Exit::Refused,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Usage(why) | CommandError::NotExecutable(why) => f.write_str(why),
            CommandError::File(diagnostics) => f.write_str(&render(diagnostics, false)),
        }
    }
}

impl std::error::Error for CommandError {}

/// Returns the error of an invalid request.
pub fn usage(why: impl Into<String>) -> anyhow::Error {
    CommandError::Usage(why.into()).into()
}

/// Returns the error of a file with these diagnostics.
pub fn invalid_file(diagnostics: Vec<Diagnostic>) -> anyhow::Error {
    CommandError::File(diagnostics).into()
}

/// Returns the error of a system that this computer does not execute.
pub fn not_executable(why: impl Into<String>) -> anyhow::Error {
    CommandError::NotExecutable(why.into()).into()
}

/// Context of an error: a file that the user has named cannot be read. The exit code is that of
/// [`Exit::Usage`].
#[derive(Debug)]
pub struct Unreadable(String);

impl Unreadable {
    /// Names the file.
    pub fn file(path: &Path) -> Unreadable {
        Unreadable(path.display().to_string())
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {}", self.0)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
