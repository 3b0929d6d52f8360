//! Least sufficient budget for a period.
//!
//! More budget is more supply in every window, so a test that accepts a budget accepts every larger
//! budget. Bisection finds the least. Budgets are integer nanoseconds (budgets of interfaces must
//! be rounded up, never down).

use crate::verdict::Inconclusive;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Returns the least budget of 1 ns to `period` that `is_enough` accepts. `None` if not even the
/// whole period is enough, or if the period is zero.
///
/// `is_enough` must be monotonic: a sufficient budget stays sufficient if it grows. The search
/// takes about 30 calls for a period of one second.
///
/// # Errors
/// The first error of `is_enough`.
pub fn least_budget(
    period: Span,
    mut is_enough: impl FnMut(Work) -> Result<bool, Inconclusive>,
) -> Result<Option<Work>, Inconclusive> {
    if period.is_zero() || !is_enough(Work::from_ns(period.as_ns()))? {
        return Ok(None);
    }
    let (mut short, mut enough) = (0, period.as_ns());
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        if is_enough(Work::from_ns(middle))? { enough = middle } else { short = middle }
    }
    Ok(Some(Work::from_ns(mutate!("supply-least", enough, short.max(1)))))
}
