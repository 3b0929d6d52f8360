//! The bounded-delay resource (α, Δ): at least α·(t − Δ) of supply in every window of length t.
//!
//! A. K. Mok, X. Feng and D. Chen, "Resource partition for real-time systems", RTAS 2001,
//! definition 7.
//!
//! Assumptions:
//! 1. α = `share.work`/`share.every` ≤ 1.
//! 2. The guarantee holds for windows of any length. The supply is rounded down to an integer.

use super::{Rate, Supply, Tightness, span};
use talea_core::mutate;
use talea_core::{Span, Work};

/// Bounded-delay resource (α, Δ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedDelay {
    share: Rate,
    delay: Span,
}

impl BoundedDelay {
    /// Creates the supply of a share of the CPU after a delay.
    ///
    /// # Panics
    /// Unless the share has a positive length and its work is at most that length.
    pub fn new(share: Rate, delay: Span) -> BoundedDelay {
        assert!(
            !share.every.is_zero() && share.work.as_ns() <= share.every.as_ns(),
            "a share of a CPU"
        );
        BoundedDelay { share, delay }
    }
}

impl Supply for BoundedDelay {
    fn time_for(&self, work: Work) -> Option<Span> {
        if work.is_zero() {
            return Some(Span::ZERO);
        }
        let needed = u128::from(work.as_ns()) * u128::from(self.share.every.as_ns());
        let share = u128::from(self.share.work.as_ns());
        if share == 0 {
            return None;
        }
        span(
            u128::from(self.delay.as_ns())
                + mutate!("supply-delay", needed.div_ceil(share), needed / share),
        )
    }

    fn sbf(&self, window: Span) -> Work {
        let since = window.checked_sub(self.delay).unwrap_or(Span::ZERO);
        let most = u128::from(since.as_ns()) * u128::from(self.share.work.as_ns());
        // No more than the window.
        Work::from_ns((most / u128::from(self.share.every.as_ns())) as u64)
    }

    fn rate(&self) -> Option<Rate> {
        Some(self.share)
    }

    fn tightness(&self) -> Tightness {
        Tightness::ByOnePattern
    }
}
