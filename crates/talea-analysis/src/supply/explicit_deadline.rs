//! The explicit-deadline periodic resource Ω = (Π, Θ, Δ): each period Π supplies Θ within Δ of its
//! beginning.
//!
//! A. Easwaran, M. Anand and I. Lee, "Compositional analysis framework using EDP resource models",
//! RTSS 2007, equation 1:
//!
//! > sbf(t) = yΘ + max(0, t − x − yΠ) for t ≥ Δ − Θ, else 0,
//! > with x = Π + Δ − 2Θ and y = ⌊(t − (Δ − Θ))/Π⌋.
//!
//! Assumptions:
//! 1. Θ ≤ Δ ≤ Π, integers, Π ≥ 1.
//! 2. Every period supplies its Θ somewhere within its first Δ. Additional supply is ignored.
//!
//! The worst window begins at the end of a budget that was served as early as possible. All later
//! budgets are served as late as possible. So the pattern is a blackout of Π + Δ − 2Θ, then Θ at
//! the beginning of every Π. One pattern applies to all lengths at once, so the bound is attained
//! (*exact*). The printed equation is an equivalent form.

use super::pulse::{self, Pulse};
use super::{Rate, Supply, Tightness};
use talea_core::mutate;
use talea_core::{Span, Work};

/// Supply of an explicit-deadline periodic resource Ω = (Π, Θ, Δ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplicitDeadline(Pulse);

impl ExplicitDeadline {
    /// Creates the supply of `budget` within `deadline` of the beginning of every `period`.
    ///
    /// # Panics
    /// Unless `budget` ≤ `deadline` ≤ `period`, and the period is positive.
    pub fn new(budget: Work, period: Span, deadline: Span) -> ExplicitDeadline {
        pulse::check(budget, deadline, period);
        let budget_span = budget.as_ns();
        let blackout = (period.as_ns() - budget_span)
            + mutate!(
                "supply-blackout",
                deadline.as_ns() - budget_span,
                deadline.as_ns().saturating_sub(budget_span + 1)
            );
        ExplicitDeadline(Pulse { budget, period, blackout: Span::from_ns(blackout) })
    }
}

impl Supply for ExplicitDeadline {
    fn time_for(&self, work: Work) -> Option<Span> {
        self.0.time_for(work)
    }
    fn sbf(&self, window: Span) -> Work {
        self.0.sbf(window)
    }
    fn rate(&self) -> Option<Rate> {
        Some(self.0.rate())
    }

    fn tightness(&self) -> Tightness {
        Tightness::ByOnePattern
    }
}
