//! Entries of the catalogue of tests: the scope of a test, the meaning of its verdicts, and its
//! source. The table of the manual is generated from these entries.

/// Meaning of a positive or negative verdict of a test.
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
    /// One processor that serves at certain times: a server, a partition.
    Supply,
}

/// Description of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestInfo {
    /// Name in the tools, in kebab-case.
    pub name: &'static str,
    /// Scheduling policy: `FP`, `EDF`, `EDF within FP`, `any work-conserving`.
    pub policy: &'static str,
    /// Processors that the test covers.
    pub platform: Platform,
    /// Task model in terms of the literature: deadlines, jitter, blocking, preemption.
    pub model: &'static str,
    /// Meaning of the verdicts of the test.
    pub kind: TestKind,
    /// Authors, venue, year, theorem or equation.
    pub paper: &'static str,
    /// Parameters whose relaxation keeps accepted sets accepted; empty if no parameter is proved.
    pub sustainable: &'static str,
    /// Tests that verify the implementation: file from the repository's root, `::`, name.
    pub tests: &'static [&'static str],
}
