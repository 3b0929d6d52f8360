//! First in, first out: by nominal arrival. Jobs run to completion, because nobody arrives before who is running.

use super::keyed::Key;
use crate::criteria::Criteria;

#[derive(Debug)]
pub(crate) struct Fifo;

impl Key for Fifo {
    #[inline]
    fn of(criteria: &Criteria) -> u64 {
        criteria.arrival.as_ns()
    }
}
