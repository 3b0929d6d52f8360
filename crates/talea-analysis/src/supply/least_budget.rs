//! The least budget that is enough for a period.
//!
//! More budget is more supply in every window, so that a test which accepts a budget accepts every
//! larger one: halving finds the least. Budgets are whole nanoseconds (budgets of interfaces are to
//! be rounded up, never down).

use crate::verdict::Why;
use talea_core::mutate;
use talea_core::{Span, Work};

/// The least budget up to `period` that `is_enough` accepts; `None` where not even the whole period
/// is enough.
///
/// `is_enough` must be monotone: what is enough stays enough with more budget. About 40 questions
/// for a period of seconds.
///
/// # Errors
/// The first that `is_enough` meets.
pub fn least_budget(
    period: Span,
    mut is_enough: impl FnMut(Work) -> Result<bool, Why>,
) -> Result<Option<Work>, Why> {
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
