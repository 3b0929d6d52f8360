//! How response times are distributed, in a fixed amount of memory.
//!
//! Model: buckets whose width grows with the value, 32 to each power of two, so that a quantile is
//! at most 1/32 above the truth and never below it; least and largest are exact.

use talea_core::Span;
use talea_core::mutate;

const MINOR: u32 = 5;

/// A distribution of lengths of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    least: Span,
    largest: Span,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            buckets: Vec::new(),
            count: 0,
            sum: 0,
            least: Span::from_ns(u64::MAX),
            largest: Span::ZERO,
        }
    }
}

fn bucket(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(MINOR + 1);
    ((shift as usize) << MINOR) + (value >> shift) as usize
}

/// The largest value of a bucket.
fn top(bucket: usize) -> u64 {
    let within = 1usize << MINOR;
    if bucket < 2 * within {
        return bucket as u64;
    }
    let shift = bucket / within - 1;
    let base = (bucket - shift * within) as u64;
    ((base << shift) - 1).saturating_add(1 << shift)
}

impl Tally {
    /// One more.
    pub fn add(&mut self, span: Span) {
        let at = bucket(span.as_ns());
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] += 1;
        self.count += 1;
        self.sum += u128::from(span.as_ns());
        self.least = self.least.min(span);
        self.largest = self.largest.max(span);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least; `None` when there is none.
    pub fn least(&self) -> Option<Span> {
        (self.count > 0).then_some(self.least)
    }

    /// The largest.
    pub fn largest(&self) -> Option<Span> {
        (self.count > 0).then_some(self.largest)
    }

    /// The mean, rounded down.
    pub fn mean(&self) -> Option<Span> {
        (self.count > 0).then(|| Span::from_ns((self.sum / u128::from(self.count)) as u64))
    }

    /// The value that `thousandths` of all don't exceed; at most 1/32 too large.
    pub fn quantile(&self, thousandths: u64) -> Option<Span> {
        let wanted = mutate!(
            "sim-tally-quantile",
            (self.count * thousandths).div_ceil(1_000),
            self.count * thousandths / 1_000
        )
        .max(1);
        let mut seen = 0;
        let found = self.buckets.iter().position(|&n| {
            seen += n;
            seen >= wanted
        })?;
        Some(Span::from_ns(top(found)).min(self.largest).max(self.least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn quantiles_are_right_to_a_thirtysecond_and_never_too_small() {
        let mut dice = Dice::new(1);
        for bits in 1..60 {
            let mut tally = Tally::default();
            let mut all: Vec<u64> = (0..999).map(|_| dice.below(1 << bits)).collect();
            for &value in &all {
                tally.add(Span::from_ns(value));
            }
            all.sort_unstable();
            for thousandths in [1, 500, 990, 1_000] {
                let exact = all[(999 * thousandths as usize).div_ceil(1_000).max(1) - 1];
                let said = tally.quantile(thousandths).expect("some").as_ns();
                assert!(exact <= said && said <= exact + exact / 32 + 1, "{bits}: {exact} {said}");
            }
            assert_eq!(tally.least().expect("some").as_ns(), all[0]);
            assert_eq!(tally.largest().expect("some").as_ns(), all[998]);
        }
    }

    #[test]
    fn every_bucket_ends_where_the_next_begins() {
        for value in (0..5_000u64).chain((12..63).map(|bits| 1 << bits)) {
            let at = bucket(value);
            assert!(top(at) >= value && (at == 0 || top(at - 1) < value), "{value}");
        }
        assert_eq!(Tally::default().quantile(500), None);
        assert_eq!(Tally::default().mean(), None);
    }
}
