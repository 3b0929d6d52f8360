//! Rate monotonic: the shorter the period, the more urgent.
//!
//! Liu and Layland, J. ACM 20(1), 1973, section 4. The policy is optimal among fixed priorities on
//! one CPU for D = T.

use super::keyed::Key;
use crate::criteria::Criteria;
use crate::mutate;

#[derive(Debug)]
pub(crate) struct RateMonotonic;

impl Key for RateMonotonic {
    #[inline]
    fn of(criteria: &Criteria) -> u64 {
        mutate!("core-policy-rm", criteria.period.as_ns(), criteria.relative_deadline.as_ns())
    }
}
