//! The explicit-deadline periodic resource Ω = (Π, Θ, Δ): Θ within Δ of the beginning of every
//! period Π.
//!
//! A. Easwaran, M. Anand and I. Lee, "Compositional analysis framework using EDP resource models",
//! RTSS 2007, equation 1:
//!
//! > sbf(t) = yΘ + max(0, t − x − yΠ) for t ≥ Δ − Θ with x = Π + Δ − 2Θ and y = ⌊(t − (Δ − Θ))/Π⌋,
//! else 0.
//!
//! Assumptions: 1. Θ ≤ Δ ≤ Π, integers, Π ≥ 1; 2. every period supplies its Θ somewhere within its
//! first Δ, and nothing more is counted on.
//!
//! The worst window begins as a budget ends that came as early as can be, and all later ones come
//! as late as can be: a blackout of Π + Δ − 2Θ, then Θ at the beginning of every Π. That is one
//! pattern for all lengths at once, so that the bound is reached (*exact*), and the printed
//! equation is its other spelling.

use super::pulse::{self, Pulse};
use super::{Rate, Reached, Supply};
use talea_core::mutate;
use talea_core::{Span, Work};

/// Ω = (Π, Θ, Δ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplicitDeadline(Pulse);

impl ExplicitDeadline {
    /// `budget` within `deadline` of the beginning of every `period`.
    ///
    /// # Panics
    /// Unless `budget` ≤ `deadline` ≤ `period`, and there is a period.
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
    fn least(&self, window: Span) -> Work {
        self.0.least(window)
    }
    fn rate(&self) -> Option<Rate> {
        Some(self.0.rate())
    }

    fn reached(&self) -> Reached {
        Reached::ByOnePattern
    }
}
