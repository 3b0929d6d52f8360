//! Counts of events since the start of the daemon, for monitoring.
//!
//! No count ever decreases. Each has its event in the audit trail, except the refusals that concern
//! no connection, and the times of requests.

/// Number of counts of refusals. The number of every [`Code`](crate::Code) is smaller.
pub const CODES: usize = 32;

/// Upper bounds of all counts but the last one of [`RequestTimes`], in nanoseconds.
pub const TIME_BOUNDS_NS: [u64; 11] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    100_000_000,
];

/// Counts of events. Fields are in the order of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Specs that were accepted.
    pub grants: u64,
    /// Grants of an earlier daemon that were adopted.
    pub adoptions: u64,
    /// Specs that another client has taken over.
    pub claims: u64,
    /// Changes of the terms of a spec.
    pub changes: u64,
    /// Specs that have ended.
    pub releases: u64,
    /// Threads that became real-time under a spec.
    pub attaches: u64,
    /// Threads that ceased to be real-time under a spec, without demotions.
    pub detaches: u64,
    /// Threads that the daemon or an administrator has demoted.
    pub demotions: u64,
    /// Times at which a thread had other credentials, CPUs or attributes than those of its grant.
    pub drifts: u64,
    /// Overruns: times at which a thread exceeded its limit.
    pub overruns: u64,
    /// Times at which ordinary threads got no time on a CPU, and no thread of a grant was the
    /// cause.
    pub starvations: u64,
    /// Configurations that were read again.
    pub reloads: u64,
    /// Threads without a grant that got a nice value.
    pub nice_changes: u64,
    /// `refusals[c]`: requests that were refused with the code of this number.
    pub refusals: [u64; CODES],
    /// Times of requests.
    pub request_times: RequestTimes,
}

/// Times of requests. The time of a request begins when it has been received and its connection has
/// no earlier request without an answer. It ends with the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// `counts[i]`: requests that took at most `TIME_BOUNDS_NS[i]`, and more than the bound before;
    /// the last one has the rest.
    pub counts: [u64; TIME_BOUNDS_NS.len() + 1],
    /// Sum of the times, in nanoseconds.
    pub sum_ns: u64,
}

impl RequestTimes {
    /// Counts a request.
    pub fn add(&mut self, ns: u64) {
        let bucket = TIME_BOUNDS_NS.partition_point(|&bound| bound < ns);
        self.counts[bucket] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }
}

impl Counters {
    /// Number of counts.
    pub(crate) const LEN: usize = 13 + CODES + TIME_BOUNDS_NS.len() + 1 + 1;

    /// Returns all counts, in the order of the wire.
    pub(crate) fn to_words(self) -> [u64; Counters::LEN] {
        let mut copy = self;
        let mut words = [0; Counters::LEN];
        for (word, count) in words.iter_mut().zip(copy.counts_mut()) {
            *word = *count;
        }
        words
    }

    pub(crate) fn from_words(words: impl Iterator<Item = u64>) -> Counters {
        let mut counters = Counters::default();
        for (word, count) in words.zip(counters.counts_mut()) {
            *count = word;
        }
        counters
    }

    /// Returns all counts, in the order of the wire.
    fn counts_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        [
            &mut self.grants,
            &mut self.adoptions,
            &mut self.claims,
            &mut self.changes,
            &mut self.releases,
            &mut self.attaches,
            &mut self.detaches,
            &mut self.demotions,
            &mut self.drifts,
            &mut self.overruns,
            &mut self.starvations,
            &mut self.reloads,
            &mut self.nice_changes,
        ]
        .into_iter()
        .chain(&mut self.refusals)
        .chain(&mut self.request_times.counts)
        .chain([&mut self.request_times.sum_ns])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_a_place_on_the_wire() {
        assert_eq!(Counters::default().counts_mut().count(), Counters::LEN);
    }

    #[test]
    fn a_time_at_a_bound_belongs_to_its_bucket() {
        let mut times = RequestTimes::default();
        for ns in [0, 10_000, 10_001, 100_000_000, 100_000_001, u64::MAX] {
            times.add(ns);
        }
        assert_eq!(times.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(times.sum_ns, u64::MAX, "the sum saturates");
    }
}
