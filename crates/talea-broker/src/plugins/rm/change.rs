//! Hypothetical change of one CPU, and the classes after it.

use crate::ledger::{Claim, Place};
use crate::levels::Member;
use crate::plugins::base::HigherPriorityTask;
use crate::rm_bounds::RmSum;
use talea_core::Span;

/// Span and work, in nanoseconds, of a task that outranks the plugin.
pub(super) type HigherWork = (u64, u128);

/// Hypothetical change of one CPU.
#[derive(Clone, Copy, Default)]
pub(super) struct Change<'a> {
    pub(super) leaving: Option<&'a Member>,
    pub(super) candidate: Option<&'a Member>,
    /// Period of `candidate`.
    pub(super) period: Span,
    pub(super) above_leaving: Option<&'a Claim>,
    pub(super) above_coming: Option<&'a HigherPriorityTask>,
    /// Whether only the guaranteed levels count.
    pub(super) promised: bool,
}

/// Classes of a CPU, with the class concerned kept separate.
pub(super) struct Sums {
    /// All other classes.
    pub(super) rest: RmSum,
    /// Class concerned: span, and all its work.
    pub(super) mine: (u64, u128),
    /// [`RmSum`] of `mine`; `None` if it is not computed yet.
    pub(super) class: Option<RmSum>,
}

impl Sums {
    pub(super) fn all(&self) -> RmSum {
        self.rest.combined(self.class.unwrap_or_else(|| RmSum::class(self.mine.1, self.mine.0)))
    }
}

impl Change<'_> {
    /// Returns the removed and the added task among the pinned higher tasks, or among those of the
    /// domain: span and work.
    pub(super) fn of(&self, domain: bool) -> (Option<HigherWork>, Option<HigherWork>) {
        let is_domain = |place| matches!(place, Place::Domain(_));
        let gone = self
            .above_leaving
            .filter(|claim| is_domain(claim.place) == domain && claim.work_ns > 0);
        let come = self
            .above_coming
            .filter(|candidate| is_domain(candidate.place) == domain && candidate.work_ns > 0);
        (
            gone.map(|claim| (claim.span_ns, u128::from(claim.work_ns) * weight(claim.place))),
            come.map(|candidate| {
                (candidate.span_ns, u128::from(candidate.work_ns) * weight(candidate.place))
            }),
        )
    }
}

/// Returns the weight of a task: under global EDF it counts twice, because part of it may come from
/// another CPU.
pub(super) fn weight(place: Place) -> u128 {
    match place {
        Place::Cpu(_) | Place::Set(_) => 1,
        Place::Domain(_) => 2,
    }
}
