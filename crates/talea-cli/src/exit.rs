//! Exit codes: one table, used by the program, the man page and the tests.
//!
//! Absent on purpose: a code per refusal. A script needs to know who must act (the caller, the
//! administrator, nobody); the reason with its numbers is in the message and in `--json`.

use std::process::ExitCode;
use talea_proto::{Code, Refusal};

/// How `talea` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Ok,
    /// Something failed.
    Failure,
    /// Wrong arguments, or a malformed configuration.
    Usage,
    /// Asked properly, but it does not fit.
    Refused,
    /// An access rule, a quota or ownership says no.
    Denied,
    /// There is no daemon to talk to.
    Unreachable,
    /// Measured, but the machine disturbed too much to say anything.
    Inconclusive,
    /// `lab` only: measured, and not as good as it must be.
    Missed,
    /// `run` only: as the program that was run, or 125 to 127 where it was not.
    Program(u8),
}

/// `run` itself failed; the program was not started.
pub(crate) const RUN_FAILED: u8 = 125;
/// The program was found but could not be executed.
pub(crate) const RUN_NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub(crate) const RUN_NOT_FOUND: u8 = 127;

/// The table for the manual: code and meaning.
pub(crate) const TABLE: [(&str, &str); 8] = [
    (
        "0",
        "done; for doctor: no check failed; for check: the file is sound; for analyze: every task is proved",
    ),
    (
        "1",
        "failure: something did not work that should have; for analyze: not every task is proved",
    ),
    ("2", "wrong arguments, or a malformed configuration"),
    (
        "3",
        "refused: the request does not fit (by admission, or into this machine), or the kernel said no",
    ),
    ("4", "denied: by an access rule, a quota, or because it belongs to another user"),
    ("5", "the daemon cannot be reached"),
    ("6", "inconclusive: it was measured, but this machine disturbed too much to say anything"),
    ("7", "lab only: it was measured, and something is not as good as it must be (MISSED)"),
];

/// The rows that `run` adds; there the codes above come as 125.
pub(crate) const RUN_TABLE: [(&str, &str); 5] = [
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
    /// The number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Denied => 4,
            Exit::Unreachable => 5,
            Exit::Inconclusive => 6,
            Exit::Missed => 7,
            Exit::Program(code) => code,
        }
    }

    /// Who has to act on this refusal.
    pub(crate) fn of(refusal: &Refusal) -> Exit {
        match refusal.code {
            Code::NotAllowed
            | Code::RuleBound
            | Code::RuleOmission
            | Code::NotYours
            | Code::OthersThread
            | Code::NotRoot
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
            | Code::BareTid
            | Code::Stopping
            | Code::Busy => Exit::Failure,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
