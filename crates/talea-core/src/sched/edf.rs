//! Earliest deadline first.
//!
//! Liu and Layland, J. ACM 20(1), 1973, section 7. The policy is optimal on one CPU for independent
//! preemptive jobs. EDF guarantees nothing under overload, unless a reservation limits the load.

use super::keyed::Key;
use crate::criteria::Criteria;
use crate::mutate;

#[derive(Debug)]
pub(crate) struct Edf;

impl Key for Edf {
    #[inline]
    fn of(criteria: &Criteria) -> u64 {
        mutate!("core-policy-edf", criteria.deadline.as_ns(), criteria.relative_deadline.as_ns())
    }
}
