//! Deadline monotonic: the shorter the relative deadline, the more urgent.
//!
//! Leung and Whitehead, Performance Evaluation 2(4), 1982. The policy is optimal among fixed
//! priorities on one CPU for D ≤ T.

use super::keyed::Key;
use crate::criteria::Criteria;
use crate::mutate;

#[derive(Debug)]
pub(crate) struct DeadlineMonotonic;

impl Key for DeadlineMonotonic {
    #[inline]
    fn of(criteria: &Criteria) -> u64 {
        mutate!("core-policy-dm", criteria.relative_deadline.as_ns(), criteria.period.as_ns())
    }
}
