//! Failure of the daemon, with a remedy.

use std::fmt;

/// Failure with a remedy, each a sentence without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    why: String,
    remedy: String,
}

impl Failure {
    pub(crate) fn new(why: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure { why: why.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.remedy)
    }
}

impl std::error::Error for Failure {}
