//! Constructors of task sets for the tests of this module.

use crate::Sporadic;
use crate::Verdict;
use alloc::vec::Vec;
use talea_core::{Span, Work};

/// Returns tasks from triples (C, D, T).
pub(crate) fn set(tasks: &[(u64, u64, u64)]) -> Vec<Sporadic> {
    let task = |&(c, d, t): &(u64, u64, u64)| {
        Sporadic::new(Work::from_ns(c), Span::from_ns(t), Span::from_ns(d))
    };
    tasks.iter().map(task).collect()
}

/// Returns tasks with implicit deadlines from pairs (C, T).
pub(crate) fn implicit(tasks: &[(u64, u64)]) -> Vec<Sporadic> {
    set(&tasks.iter().map(|&(c, t)| (c, t, t)).collect::<Vec<_>>())
}

/// Returns the bounds of a proof, in nanoseconds.
pub(crate) fn bounds(verdict: &Verdict) -> Vec<u64> {
    match verdict {
        Verdict::Proved { bounds } => bounds.iter().map(|bound| bound.as_ns()).collect(),
        other => panic!("{other:?}"),
    }
}
