//! The catalogue entry of a test: what it is, for whom, and who proved it. The manual's table is
//! written from these.

/// What a positive or negative answer of a test means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Accepts exactly the schedulable sets.
    Exact,
    /// What it accepts is schedulable.
    Sufficient,
    /// What it refuses is not schedulable.
    Necessary,
}

/// How many processors a test speaks about, and what they supply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// One processor that always serves.
    One,
    /// Several equal processors; tasks move freely.
    Global,
    /// One processor that serves now and then: a server, a partition.
    Supply,
}

/// One test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// The name by which the tools call it, in kebab-case.
    pub name: &'static str,
    /// The scheduling policy: `FP`, `EDF`, `EDF within FP`, `any work-conserving`.
    pub policy: &'static str,
    /// Where.
    pub platform: Platform,
    /// The task model in the field's terms: deadlines, jitter, blocking, preemption.
    pub model: &'static str,
    /// What its answers mean.
    pub kind: Kind,
    /// Authors, venue, year, theorem or equation.
    pub paper: &'static str,
    /// Parameters in which accepted sets stay accepted when they are relaxed; empty where that is
    /// not proved.
    pub sustainable: &'static str,
    /// The tests that hold it to its word: a file from the repository's root, `::`, and the test's
    /// name.
    pub tests: &'static [&'static str],
}
