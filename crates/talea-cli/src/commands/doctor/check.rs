//! One check and its verdict.

use serde::{Serialize, Serializer};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grade {
    /// Nothing to do.
    Ok,
    /// Works, with a catch.
    Warn,
    /// Real time fails because of this.
    Fail,
}

impl Grade {
    /// The word for people and programs.
    pub(super) fn word(self) -> &'static str {
        match self {
            Grade::Ok => "ok",
            Grade::Warn => "warn",
            Grade::Fail => "fail",
        }
    }
}

impl Serialize for Grade {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// One check and its verdict.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    /// Stable name.
    pub(super) id: &'static str,
    /// How it came out.
    pub(super) status: Grade,
    /// What was found.
    pub(super) finding: String,
    /// What that means for real-time threads.
    pub(super) meaning: String,
    /// What to do.
    pub(super) fix: Option<String>,
}

impl Check {
    /// Nothing to do.
    pub(super) fn ok(
        id: &'static str,
        finding: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Check {
        Check { id, status: Grade::Ok, finding: finding.into(), meaning: meaning.into(), fix: None }
    }

    /// Works, with a catch.
    pub(super) fn warn(
        id: &'static str,
        finding: impl Into<String>,
        meaning: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        let status = Grade::Warn;
        Check {
            id,
            status,
            finding: finding.into(),
            meaning: meaning.into(),
            fix: Some(fix.into()),
        }
    }

    /// Real time fails because of this.
    pub(super) fn fail(
        id: &'static str,
        finding: impl Into<String>,
        meaning: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        Check { status: Grade::Fail, ..Check::warn(id, finding, meaning, fix) }
    }
}
