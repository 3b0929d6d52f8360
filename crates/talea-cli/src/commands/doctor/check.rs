//! Result of one check.

use serde::{Serialize, Serializer};

/// Status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// There is nothing to do.
    Ok,
    /// Real-time scheduling works with a restriction.
    Warn,
    /// Real-time scheduling fails because of the finding.
    Fail,
}

impl Status {
    /// Returns the word of the status for text and JSON.
    pub(super) fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
        }
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// Result of one check.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    /// Stable name of the check.
    pub(super) id: &'static str,
    /// Status of the check.
    pub(super) status: Status,
    /// Observed state.
    pub(super) finding: String,
    /// Consequence for real-time threads.
    pub(super) meaning: String,
    /// Remedy, if there is one.
    pub(super) fix: Option<String>,
}

impl Check {
    /// Creates a check that requires no action.
    pub(super) fn ok(
        id: &'static str,
        finding: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Check {
        Check {
            id,
            status: Status::Ok,
            finding: finding.into(),
            meaning: meaning.into(),
            fix: None,
        }
    }

    /// Creates a check of a restriction.
    pub(super) fn warn(
        id: &'static str,
        finding: impl Into<String>,
        meaning: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        let status = Status::Warn;
        Check {
            id,
            status,
            finding: finding.into(),
            meaning: meaning.into(),
            fix: Some(fix.into()),
        }
    }

    /// Creates a check that makes real-time scheduling fail.
    pub(super) fn fail(
        id: &'static str,
        finding: impl Into<String>,
        meaning: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        Check { status: Status::Fail, ..Check::warn(id, finding, meaning, fix) }
    }
}
