//! A histogram of response times in bounded memory.
//!
//! Model: buckets whose width grows with the value, 32 for each power of two. A quantile is at most
//! 1/32 above the exact value and never below it. Minimum and maximum are exact.

use talea_core::Span;
use talea_core::mutate;

const SUB_BUCKET_BITS: u32 = 5;

/// A distribution of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    min: Span,
    max: Span,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: Vec::new(),
            count: 0,
            sum: 0,
            min: Span::from_ns(u64::MAX),
            max: Span::ZERO,
        }
    }
}

fn bucket(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(SUB_BUCKET_BITS + 1);
    ((shift as usize) << SUB_BUCKET_BITS) + (value >> shift) as usize
}

/// Returns the largest value of a bucket.
fn top(bucket: usize) -> u64 {
    let within = 1usize << mutate!("sim-tally-buckets", SUB_BUCKET_BITS, SUB_BUCKET_BITS - 1);
    if bucket < 2 * within {
        return bucket as u64;
    }
    let shift = bucket / within - 1;
    let base = (bucket - shift * within) as u64;
    ((base << shift) - 1).saturating_add(1 << shift)
}

impl Histogram {
    /// Adds a value.
    pub fn add(&mut self, span: Span) {
        let at = bucket(span.as_ns());
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] += 1;
        self.count += 1;
        self.sum += u128::from(span.as_ns());
        self.min = self.min.min(span);
        self.max = self.max.max(span);
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the minimum; `None` without values.
    pub fn min(&self) -> Option<Span> {
        (self.count > 0).then_some(self.min)
    }

    /// Returns the maximum; `None` without values.
    pub fn max(&self) -> Option<Span> {
        (self.count > 0).then_some(self.max)
    }

    /// Returns the mean, rounded down; `None` without values.
    pub fn mean(&self) -> Option<Span> {
        (self.count > 0).then(|| Span::from_ns((self.sum / u128::from(self.count)) as u64))
    }

    /// Returns the value that `thousandths` of all values do not exceed. The result is at most 1/32
    /// too large; `None` without values.
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
        Some(Span::from_ns(top(found)).min(self.max).max(self.min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn quantiles_are_right_to_a_thirtysecond_and_never_too_small() {
        let mut rng = Rng::new(1);
        for bits in 1..60 {
            let mut histogram = Histogram::default();
            let mut all: Vec<u64> = (0..999).map(|_| rng.below(1 << bits)).collect();
            for &value in &all {
                histogram.add(Span::from_ns(value));
            }
            all.sort_unstable();
            for thousandths in [1, 500, 990, 1_000] {
                let exact = all[(999 * thousandths as usize).div_ceil(1_000).max(1) - 1];
                let quantile = histogram.quantile(thousandths).expect("some").as_ns();
                assert!(
                    exact <= quantile && quantile <= exact + exact / 32 + 1,
                    "{bits}: {exact} {quantile}"
                );
            }
            assert_eq!(histogram.min().expect("some").as_ns(), all[0]);
            assert_eq!(histogram.max().expect("some").as_ns(), all[998]);
        }
    }

    #[test]
    fn every_bucket_ends_where_the_next_begins() {
        for value in (0..5_000u64).chain((12..63).map(|bits| 1 << bits)) {
            let at = bucket(value);
            assert!(top(at) >= value && (at == 0 || top(at - 1) < value), "{value}");
        }
        assert_eq!(Histogram::default().quantile(500), None);
        assert_eq!(Histogram::default().mean(), None);
    }
}
