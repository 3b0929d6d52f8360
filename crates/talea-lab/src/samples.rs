//! Durations of one operation.

use serde::Serialize;
use talea_core::quantile;

/// Durations in nanoseconds, in order of measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<u64>);

impl From<Vec<u64>> for Samples {
    fn from(ns: Vec<u64>) -> Samples {
        Samples(ns)
    }
}

/// Quantiles of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    pub(super) count: usize,
    pub(super) median_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) max_ns: u64,
}

impl Samples {
    /// Runs and times one operation.
    pub(super) fn time<T>(
        &mut self,
        operation: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let start = talea_os::clock::now();
        let result = operation()?;
        self.0.push(talea_os::clock::now().since(start).as_ns());
        Ok(result)
    }

    /// Adds a duration.
    pub(super) fn push(&mut self, ns: u64) {
        self.0.push(ns);
    }

    /// Adds all samples of `others`.
    pub(super) fn extend(&mut self, others: &Samples) {
        self.0.extend_from_slice(&others.0);
    }

    /// Returns the last duration.
    pub(super) fn last(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }

    /// Returns the smallest value that `percent` % of all values do not exceed. Returns 0 without
    /// values.
    pub(super) fn quantile(&self, percent: usize) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        quantile(&sorted, percent).unwrap_or(0)
    }

    /// Returns the quantiles.
    pub(super) fn summary(&self) -> Summary {
        Summary {
            count: self.0.len(),
            median_ns: self.quantile(50),
            p99_ns: self.quantile(99),
            max_ns: self.quantile(100),
        }
    }
}

/// Returns the median: the lower one of an even number of values, and 0 without values.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 50).unwrap_or(0.0)
}

/// Returns `a / b`. The result is not a number if `b` is 0.
#[allow(clippy::cast_precision_loss, reason = "shown with a few digits")]
pub(super) fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { f64::NAN } else { a as f64 / b as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let mut samples = Samples::default();
        (1..=100).rev().for_each(|ns| samples.push(ns));
        assert_eq!(
            (samples.quantile(50), samples.quantile(99), samples.quantile(100)),
            (50, 99, 100)
        );
        assert_eq!(Samples::default().summary(), Summary::default());
        assert!((ratio(5, 4) - 1.25).abs() < f64::EPSILON);
        assert!(ratio(1, 0).is_nan() && ratio(0, 0).is_nan());
        for (values, middle) in
            [(&[][..], 0.0), (&[3.0], 3.0), (&[9.0, 1.0, 2.0], 2.0), (&[2.0, 1.0], 1.0)]
        {
            assert!((median(values.iter().copied()) - middle).abs() < f64::EPSILON);
        }
    }
}
