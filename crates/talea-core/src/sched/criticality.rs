//! Criticality monotonic: higher criticality first, regardless of deadlines.
//!
//! Vestal, RTSS 2007. SF3P section IV names this policy *FP over criticality levels*.

use super::keyed::Key;
use crate::criteria::Criteria;
use crate::mutate;

#[derive(Debug)]
pub(crate) struct CriticalityMonotonic;

impl Key for CriticalityMonotonic {
    #[inline]
    fn of(criteria: &Criteria) -> u64 {
        u64::from(mutate!(
            "core-policy-criticality",
            u8::MAX - criteria.criticality,
            criteria.criticality
        ))
    }
}
