//! Verdicts of an analysis, and names of the kinds of tests.

use crate::output::Tone;
use serde::Serialize;
use talea_analysis::test_info::TestKind;

/// Verdict about a task or a latency.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Proved,
    Refuted,
    Unknown,
    /// The task has no deadline: a program that always wants the CPU.
    None,
}

impl Verdict {
    /// Returns the word of the verdict, with its tone.
    pub(super) fn word(self) -> (&'static str, Tone) {
        match self {
            Verdict::Proved => ("proved", Tone::Good),
            Verdict::Refuted => ("refuted", Tone::Bad),
            Verdict::Unknown => ("unknown", Tone::Doubtful),
            Verdict::None => ("no deadline", Tone::Doubtful),
        }
    }
}

/// Returns the name of the kind of a test.
pub(super) fn kind_name(kind: TestKind) -> &'static str {
    match kind {
        TestKind::Exact => "exact",
        TestKind::Sufficient => "sufficient",
        TestKind::Necessary => "necessary",
    }
}
