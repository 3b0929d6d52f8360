//! The periodic resource Γ = (Π, Θ): each period Π supplies Θ, anywhere in the period.
//!
//! I. Shin and I. Lee, "Periodic resource model for compositional real-time guarantees", RTSS 2003,
//! equation 6:
//!
//! > sbf(t) = yΘ + max(0, t − 2(Π − Θ) − yΠ) for t ≥ Π − Θ with y = ⌊(t − (Π − Θ))/Π⌋, else 0.
//!
//! Assumptions:
//! 1. Θ ≤ Π, integers, Π ≥ 1.
//! 2. Every period supplies its Θ. Additional supply is ignored.
//!
//! The resource is Ω = (Π, Θ, Π): see [`super::explicit_deadline`], also for the attainment of the
//! bound.

use super::{ExplicitDeadline, Rate, Supply, Tightness};
use talea_core::mutate;
use talea_core::{Span, Work};

/// Supply of a periodic resource Γ = (Π, Θ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodicResource(ExplicitDeadline);

impl PeriodicResource {
    /// Creates the supply of `budget` in every `period`.
    ///
    /// # Panics
    /// Unless `budget` ≤ `period`, and the period is positive.
    pub fn new(budget: Work, period: Span) -> PeriodicResource {
        PeriodicResource(ExplicitDeadline::new(
            budget,
            period,
            mutate!("supply-periodic", period, Span::from_ns(budget.as_ns())),
        ))
    }
}

impl Supply for PeriodicResource {
    fn time_for(&self, work: Work) -> Option<Span> {
        self.0.time_for(work)
    }
    fn sbf(&self, window: Span) -> Work {
        self.0.sbf(window)
    }
    fn rate(&self) -> Option<Rate> {
        self.0.rate()
    }

    fn tightness(&self) -> Tightness {
        Tightness::ByOnePattern
    }
}
