//! Common worst-case shape of supplies: a blackout, then `budget` without interruption at the
//! beginning of every `period`.

use super::{Rate, span};
use talea_core::mutate;
use talea_core::{Span, Work};

/// Supply in pulses: none within `blackout`, then `budget` at the beginning of every `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pulse {
    pub(super) budget: Work,
    pub(super) period: Span,
    pub(super) blackout: Span,
}

impl Pulse {
    pub(super) fn sbf(&self, window: Span) -> Work {
        let Some(since) = window.checked_sub(self.blackout) else { return Work::ZERO };
        let (since, period) = (since.as_ns(), self.period.as_ns());
        // At most the window, since the budget is at most the period.
        let whole = since / period * self.budget.as_ns();
        Work::from_ns(
            whole
                + mutate!(
                    "supply-pulse",
                    (since % period).min(self.budget.as_ns()),
                    since % period
                ),
        )
    }

    pub(super) fn time_for(&self, work: Work) -> Option<Span> {
        if work.is_zero() {
            return Some(Span::ZERO);
        }
        let (work, budget) = (work.as_ns(), self.budget.as_ns());
        let before = (work - 1).checked_div(budget)?;
        let rest = work - before * budget;
        span(
            u128::from(self.blackout.as_ns())
                + u128::from(before) * u128::from(self.period.as_ns())
                + u128::from(rest),
        )
    }

    pub(super) fn rate(&self) -> Rate {
        Rate { work: self.budget, every: self.period }
    }
}

/// Checks that the budget is at most the deadline, the deadline at most the period, and the period
/// positive.
///
/// # Panics
/// If the check fails. The caller refuses an impossible contract when it reads the contract.
pub(super) fn check(budget: Work, within: Span, period: Span) {
    assert!(!period.is_zero(), "a resource without a period");
    assert!(
        budget.as_ns() <= within.as_ns() && within <= period,
        "a budget within its deadline within the period"
    );
}
