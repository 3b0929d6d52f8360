//! Catalogue entry of a test: its scope, the meaning of its answers, and its source. The manual's
//! table is generated from these entries.

/// Meaning of a positive or negative answer of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestKind {
    /// The test accepts exactly the schedulable sets.
    Exact,
    /// Every accepted set is schedulable.
    Sufficient,
    /// Every refused set is unschedulable.
    Necessary,
}

/// Processors that a test covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// One processor that always serves.
    One,
    /// Several equal processors; tasks migrate freely.
    Global,
    /// One processor that serves at times: a server, a partition.
    Supply,
}

/// Description of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestInfo {
    /// Name in the tools, in kebab-case.
    pub name: &'static str,
    /// Scheduling policy: `FP`, `EDF`, `EDF within FP`, `any work-conserving`.
    pub policy: &'static str,
    /// Processors.
    pub platform: Platform,
    /// Task model in the field's terms: deadlines, jitter, blocking, preemption.
    pub model: &'static str,
    /// Meaning of its answers.
    pub kind: TestKind,
    /// Authors, venue, year, theorem or equation.
    pub paper: &'static str,
    /// Parameters in which accepted sets stay accepted if they are relaxed; empty if that is not
    /// proved.
    pub sustainable: &'static str,
    /// Tests that verify it: a file from the repository's root, `::`, and the test's name.
    pub tests: &'static [&'static str],
}
