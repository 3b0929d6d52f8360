//! First in, first out, by nominal arrival. Jobs run to completion, because no later job arrives
//! before the running job.

use super::keyed::Key;
use crate::criteria::Criteria;
use crate::mutate;

#[derive(Debug)]
pub(crate) struct Fifo;

impl Key for Fifo {
    #[inline]
    fn of(criteria: &Criteria) -> u64 {
        mutate!("core-policy-fifo", criteria.arrival.as_ns(), criteria.deadline.as_ns())
    }
}
