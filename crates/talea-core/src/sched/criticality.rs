//! Criticality monotonic: the more critical, the more urgent, whatever the deadlines.
//!
//! Vestal, RTSS 2007, and SF3P section IV as *FP over criticality levels*: what must not suffer
//! goes first.

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
