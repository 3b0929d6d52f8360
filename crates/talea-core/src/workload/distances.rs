//! Minimum distances between arrivals: the inverse of an upper arrival curve.
//!
//! M. Neukirchner, T. Michaels, P. Axer, S. Quinton and R. Ernst, "Monitoring arbitrary activation
//! patterns in real-time systems", RTSS 2012; K. Richter, "Compositional scheduling analysis using
//! standard event models", PhD thesis, TU Braunschweig, 2005, for period, jitter and minimum
//! distance.
//!
//! Model: D(n) is the minimum distance between an arrival and the n-th arrival after it. A list of
//! distances states d(1) to d(m), and implies
//!
//! > D(0) = 0, D(n) = max {D(n − k) + d(k) : 1 ≤ k ≤ min(n, m)}.
//!
//! A period T with the jitter J and the minimum distance s states D(n) = max(n·s, n·T − J).
//!
//! Invariants:
//! 1. D does not decrease, and D(a + b) ≥ D(a) + D(b). So arrivals at D(0), D(1), … conform, and no
//!    conforming arrivals are denser.
//! 2. D(n + q) = D(n) + L for all n from `prefix.len() − q` on, with q ≥ 1 jobs and the length
//!    L > 0. If this start exceeds [`MAX_PREFIX`], the function continues with a lower bound of D.

use crate::{Span, Time, mutate};
use alloc::vec::Vec;

/// Largest number of jobs after which D must repeat to be represented exactly.
pub const MAX_PREFIX: usize = 4096;
/// Largest number of declared distances.
pub const MAX_DISTANCES: usize = 1000;

/// Declaration of a [`DistanceFunction`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DistanceSpec {
    /// `list[k − 1]`: minimum distance of an arrival to the k-th after it.
    List(Vec<Span>),
    /// Periodic with jitter.
    Jittered {
        /// Mean distance T.
        period: Span,
        /// Largest delay J of an arrival, also beyond the period.
        jitter: Span,
        /// Minimum distance s of two arrivals, up to T.
        separation: Span,
    },
}

/// Reason why a declaration is no distance function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistanceError {
    /// The list is empty, or longer than [`MAX_DISTANCES`].
    Length,
    /// The distance at this index is below the one before it.
    Order(usize),
    /// All distances, or the period, are zero: the number of jobs at one instant is unlimited.
    Unlimited,
    /// The minimum distance exceeds the period.
    Separation,
    /// The jitter permits a burst of more than [`MAX_PREFIX`] jobs.
    Burst,
    /// A distance exceeds the range.
    Range,
}

/// Minimum distances D(n) between an arrival and the n-th arrival after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistanceFunction {
    spec: DistanceSpec,
    /// D(0), D(1), …
    prefix: Vec<u64>,
    /// q and L of invariant 2.
    repeat: (u64, u64),
    is_exact: bool,
}

impl DistanceFunction {
    /// Computes the distance function of a declaration, in O(m · [`MAX_PREFIX`]).
    ///
    /// # Errors
    /// [`DistanceError`].
    pub fn new(spec: DistanceSpec) -> Result<DistanceFunction, DistanceError> {
        let (prefix, repeat, is_exact) = match &spec {
            DistanceSpec::List(list) => close(list)?,
            DistanceSpec::Jittered { period, jitter, separation } => {
                let (period, jitter, apart) = (period.as_ns(), jitter.as_ns(), separation.as_ns());
                if period == 0 {
                    return Err(DistanceError::Unlimited);
                }
                if apart > period {
                    return Err(DistanceError::Separation);
                }
                let burst = if apart == period { 0 } else { jitter.div_ceil(period - apart) };
                if burst > MAX_PREFIX as u64 {
                    return Err(DistanceError::Burst);
                }
                let last = burst.checked_mul(period).ok_or(DistanceError::Range)?;
                let _ = last.checked_add(period).ok_or(DistanceError::Range)?;
                let at = |n: u64| (n * apart).max((n * period).saturating_sub(jitter));
                ((0..=burst).map(at).collect(), (1, period), true)
            }
        };
        Ok(DistanceFunction { spec, prefix, repeat, is_exact })
    }

    /// Returns the function of at most `jobs` arrivals in any window of the length `within`, at
    /// least `separation` apart.
    ///
    /// # Errors
    /// [`DistanceError`].
    pub fn burst(
        jobs: u32,
        within: Span,
        separation: Span,
    ) -> Result<DistanceFunction, DistanceError> {
        let apart = |n: u64| n.checked_mul(separation.as_ns()).ok_or(DistanceError::Range);
        let mut list = Vec::new();
        for n in 1..=u64::from(jobs) {
            let least = if n == u64::from(jobs) { within.as_ns() } else { 0 };
            list.push(Span::from_ns(apart(n)?.max(least)));
            if list.len() > MAX_DISTANCES {
                return Err(DistanceError::Length);
            }
        }
        DistanceFunction::new(DistanceSpec::List(list))
    }

    /// Returns the function of the densest windows of a trace: the least distances of 1 to `count`
    /// arrivals. `trace` is sorted.
    ///
    /// # Errors
    /// [`DistanceError::Length`] if the trace has fewer than `count + 1` arrivals; otherwise as
    /// [`DistanceFunction::new`].
    pub fn of_trace(trace: &[Time], count: usize) -> Result<DistanceFunction, DistanceError> {
        let least = |n: usize| {
            trace
                .windows(n + 1)
                .map(|part| part[n].since(part[0]))
                .min()
                .ok_or(DistanceError::Length)
        };
        let list = (1..=count).map(least).collect::<Result<Vec<Span>, _>>()?;
        DistanceFunction::new(DistanceSpec::List(list))
    }

    /// Returns the declaration.
    pub fn spec(&self) -> &DistanceSpec {
        &self.spec
    }

    /// Returns D(n) in nanoseconds; saturates.
    pub fn distance(&self, n: u64) -> u64 {
        let len = self.prefix.len() as u64;
        let (jobs, length) = self.repeat;
        let repeats = if n < len { 0 } else { (n - len) / jobs + 1 };
        self.prefix[(n - repeats * jobs) as usize].saturating_add(repeats.saturating_mul(length))
    }

    /// Returns the greatest number of arrivals in a half-open window of this length; saturates.
    pub fn arrivals_within(&self, window: u64) -> u64 {
        let (jobs, length) = self.repeat;
        let start = self.prefix[self.prefix.len() - jobs as usize];
        let repeats = mutate!(
            "core-distances-window",
            window.saturating_sub(start).saturating_sub(1) / length,
            window.saturating_sub(start) / length
        );
        let rest = window - repeats * length;
        let within = self.prefix.partition_point(|&at| at < rest) as u64;
        repeats.saturating_mul(jobs).saturating_add(within)
    }

    /// Returns the least D(n) that is not below `from`; saturates.
    pub fn next_distance(&self, from: u64) -> u64 {
        self.distance(self.arrivals_within(from))
    }

    /// Returns a number of jobs and the time in which no more jobs arrive in the long run.
    pub fn rate(&self) -> (u64, Span) {
        (self.repeat.0, Span::from_ns(self.repeat.1))
    }

    /// Returns the mean distance in the long run, at least a nanosecond.
    pub fn mean_distance(&self) -> Span {
        Span::from_ns((self.repeat.1 / self.repeat.0).max(1))
    }

    /// Whether the function represents D for all n. If not, it represents a lower bound from
    /// [`MAX_PREFIX`] jobs on.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }
}

/// Returns the prefix of D for a list of distances, q and L, and whether D repeats so.
#[allow(clippy::type_complexity, reason = "the parts of a distance function")]
fn close(list: &[Span]) -> Result<(Vec<u64>, (u64, u64), bool), DistanceError> {
    if list.is_empty() || list.len() > MAX_DISTANCES {
        return Err(DistanceError::Length);
    }
    if let Some(at) = list.windows(2).position(|two| two[0] > two[1]) {
        return Err(DistanceError::Order(at + 1));
    }
    if list.iter().all(|distance| distance.is_zero()) {
        return Err(DistanceError::Unlimited);
    }
    let next = |prefix: &[u64]| {
        let mut greatest = 0;
        for (&at, distance) in prefix.iter().rev().zip(list) {
            let sum = at.checked_add(distance.as_ns())?;
            greatest = mutate!("core-distances-closure", sum.max(greatest), sum);
        }
        Some(greatest)
    };
    let mut prefix: Vec<u64> = alloc::vec![0];
    while prefix.len() <= list.len() {
        prefix.push(next(&prefix).ok_or(DistanceError::Range)?);
    }
    // The largest D(k)/k; of equals the least k.
    let steeper = |best: usize, k: usize| {
        let (a, b) = (u128::from(prefix[best]) * k as u128, u128::from(prefix[k]) * best as u128);
        if b > a { k } else { best }
    };
    let jobs = (1..=list.len()).fold(1, steeper);
    let length = prefix[jobs];
    // D follows from its last m values: m repeated values in a row repeat forever.
    let mut equal = 0;
    while let Some(at) = next(&prefix) {
        prefix.push(at);
        let n = prefix.len() - 1;
        equal = if at == prefix[n - jobs] + length { equal + 1 } else { 0 };
        if equal >= list.len() {
            // D(n + q) = D(n) + L from the first of the equal values on.
            prefix.truncate(n + 1 - equal);
            return Ok((prefix, (jobs as u64, length), true));
        }
        if n > MAX_PREFIX + list.len() {
            break;
        }
    }
    // D(n + N) ≥ D(n) + D(N).
    let length = prefix.pop().expect("D(0) and more");
    Ok((prefix.clone(), (prefix.len() as u64, length), false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn list(distances: &[u64]) -> Result<DistanceFunction, DistanceError> {
        DistanceFunction::new(DistanceSpec::List(
            distances.iter().map(|&at| Span::from_ns(at)).collect(),
        ))
    }

    fn jittered(period: u64, jitter: u64, apart: u64) -> Result<DistanceFunction, DistanceError> {
        let (period, jitter, separation) =
            (Span::from_ns(period), Span::from_ns(jitter), Span::from_ns(apart));
        DistanceFunction::new(DistanceSpec::Jittered { period, jitter, separation })
    }

    /// Distances by the definition: of the sums of declared distances, the greatest.
    fn by_definition(distances: &[u64], count: usize) -> Vec<u64> {
        let mut all = alloc::vec![0];
        for n in 1..count {
            let parts = (1..=distances.len().min(n)).map(|k| all[n - k] + distances[k - 1]);
            all.push(parts.max().unwrap_or(0));
        }
        all
    }

    fn check(function: &DistanceFunction, expected: &[u64]) {
        for (n, &at) in expected.iter().enumerate() {
            assert_eq!(function.distance(n as u64), at, "D({n}) of {function:?}");
        }
        for window in 0..*expected.last().expect("distances") {
            let within = expected.iter().filter(|&&at| at < window).count() as u64;
            assert_eq!(function.arrivals_within(window), within, "{window} of {function:?}");
            let next = expected.iter().find(|&&at| at >= window).expect("below the last");
            assert_eq!(function.next_distance(window), *next, "{window} of {function:?}");
        }
    }

    #[test]
    fn all_small_lists_are_closed_as_defined() {
        let mut checked = 0;
        for a in 0..6 {
            for b in a..9 {
                for c in b..12 {
                    for d in [c, c + 1, c + 7] {
                        let distances = [a, b, c, d];
                        for length in 1..=4 {
                            let Ok(function) = list(&distances[..length]) else {
                                assert!(distances[..length].iter().all(|&at| at == 0));
                                continue;
                            };
                            assert!(function.is_exact());
                            check(&function, &by_definition(&distances[..length], 60));
                            checked += 1;
                        }
                    }
                }
            }
        }
        assert!(checked > 1_000, "{checked}");
    }

    #[test]
    fn jitter_and_separation_give_the_greater_of_two_lines() {
        for period in 1..9 {
            for apart in 0..=period {
                for jitter in 0..25 {
                    let function = jittered(period, jitter, apart).expect("a function");
                    let at = |n: u64| (n * apart).max((n * period).saturating_sub(jitter));
                    check(&function, &(0..40).map(at).collect::<Vec<u64>>());
                }
            }
        }
    }

    #[test]
    fn bursts_and_traces_are_lists() {
        let burst = |jobs, within, apart| {
            DistanceFunction::burst(jobs, Span::from_ns(within), Span::from_ns(apart))
        };
        check(&burst(3, 30, 2).expect("a burst"), &[0, 2, 4, 30, 32, 34, 60, 62]);
        assert_eq!(burst(0, 30, 2), Err(DistanceError::Length));
        assert_eq!(burst(3, 0, 0), Err(DistanceError::Unlimited));
        let trace: Vec<Time> = [3, 10, 11, 20, 29].map(Time::from_ns).to_vec();
        let function = DistanceFunction::of_trace(&trace, 2).expect("a trace");
        assert_eq!(
            function.spec(),
            &DistanceSpec::List([1, 8].map(Span::from_ns).to_vec()),
            "1 from 10 to 11, 8 from 3 to 11"
        );
        assert_eq!(DistanceFunction::of_trace(&trace, 5), Err(DistanceError::Length));
    }

    #[test]
    fn declarations_that_are_no_functions_are_refused() {
        assert_eq!(list(&[]), Err(DistanceError::Length));
        assert_eq!(list(&[1; MAX_DISTANCES + 1]), Err(DistanceError::Length));
        assert_eq!(list(&[4, 3]), Err(DistanceError::Order(1)));
        assert_eq!(list(&[0, 0]), Err(DistanceError::Unlimited));
        assert_eq!(list(&[u64::MAX - 1, u64::MAX]), Err(DistanceError::Range));
        assert_eq!(jittered(0, 1, 0), Err(DistanceError::Unlimited));
        assert_eq!(jittered(5, 1, 6), Err(DistanceError::Separation));
        assert_eq!(jittered(5, 5 * MAX_PREFIX as u64 + 1, 0), Err(DistanceError::Burst));
        assert_eq!(jittered(u64::MAX / 2, u64::MAX / 2 * 2, 0), Err(DistanceError::Range));
    }

    #[test]
    fn a_function_that_does_not_repeat_early_is_a_lower_bound() {
        // The slopes 1/1 and (10_000 · 2 + 1)/2 differ little: D repeats late.
        let function = list(&[10_000, 20_001, 30_001, 40_001, 50_001, 60_003]).expect("a list");
        let exact = by_definition(&[10_000, 20_001, 30_001, 40_001, 50_001, 60_003], 20_000);
        for (n, &at) in exact.iter().enumerate() {
            assert!(function.distance(n as u64) <= at, "{n}");
        }
        assert!(!function.is_exact() || function.distance(19_999) == exact[19_999]);
    }
}
