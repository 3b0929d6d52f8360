//! Distributions of relative deadlines.

use crate::rng::Rng;
use talea_core::{Span, Work};

/// Distribution of relative deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deadlines {
    /// The deadline equals the period.
    #[default]
    Implicit,
    /// Uniform, in whole nanoseconds, from `C + from · (T - C)` to T.
    ///
    /// `from` is in thousandths, up to 1000. The value 0 is the [C, T] of the literature, and 700
    /// is "at least 0.7 of the slack".
    Constrained {
        /// Lower limit of the deadline, as a share of T - C in thousandths.
        from: u32,
    },
}

impl Deadlines {
    /// Generates a deadline. `cost` is at most `period`.
    pub(super) fn draw(self, cost: Work, period: Span, rng: &mut Rng) -> Span {
        match self {
            Deadlines::Implicit => period,
            Deadlines::Constrained { from } => {
                let (cost, period) = (cost.as_ns().min(period.as_ns()), period.as_ns());
                let spare = u128::from(period - cost) * u128::from(from.min(1_000)) / 1_000;
                Span::from_ns(rng.between(cost + spare as u64, period))
            }
        }
    }
}
