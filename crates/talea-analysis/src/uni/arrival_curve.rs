//! Upper arrival curves: how many jobs of a task are released within any window of a length.

use crate::demand::Demand;
use crate::verdict::Inconclusive;
use alloc::vec::Vec;
use talea_core::workload::distances::DistanceFunction;
use talea_core::{Span, Work};

/// Prefix of an upper arrival curve, which repeats after its horizon.
///
/// Within any window of length δ below the horizon, at most the jobs of the last step not beyond δ
/// are released. A window of k horizons and δ has k times the jobs of the whole prefix, and those
/// of δ. This extension is valid for every upper arrival curve, and exact if the releases repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivalCurve {
    horizon: u64,
    /// Pairs of a length, and the jobs within windows of this length; both increase.
    steps: Vec<(u64, u64)>,
}

/// Reason why a list of steps is no arrival curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveError {
    /// The first step must be at 1 ns.
    FirstStep,
    /// Lengths and numbers of jobs must increase, at this index.
    Order(usize),
    /// Lengths must be below the horizon, at this index.
    Horizon(usize),
}

impl ArrivalCurve {
    /// Creates a curve from its steps: pairs of a length and the greatest number of jobs within a
    /// window of this length.
    ///
    /// # Errors
    /// [`CurveError`].
    pub fn new(horizon: Span, steps: &[(Span, u64)]) -> Result<ArrivalCurve, CurveError> {
        let horizon = horizon.as_ns();
        let steps: Vec<(u64, u64)> =
            steps.iter().map(|&(length, jobs)| (length.as_ns(), jobs)).collect();
        if steps.first().is_none_or(|&(length, jobs)| length != 1 || jobs == 0) {
            return Err(CurveError::FirstStep);
        }
        let increases = |pair: &[(u64, u64)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
        if let Some(at) = steps.windows(2).position(|pair| !increases(pair)) {
            return Err(CurveError::Order(at + 1));
        }
        if let Some(at) = steps.iter().position(|&(length, _)| length >= horizon) {
            return Err(CurveError::Horizon(at));
        }
        Ok(ArrivalCurve { horizon, steps })
    }

    fn jobs_per_horizon(&self) -> u64 {
        self.steps.last().map_or(0, |&(_, jobs)| jobs)
    }
}

/// Releases of a task.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals<'a> {
    /// At least a period apart, each up to the jitter late.
    Periodic {
        /// Shortest distance without jitter.
        period: Span,
        /// Longest delay of a release; may exceed the period.
        jitter: Span,
    },
    /// Any releases within the curve.
    Curve(&'a ArrivalCurve),
    /// Any releases with these minimum distances.
    Distances(&'a DistanceFunction),
}

impl Arrivals<'_> {
    /// Returns the greatest number of jobs that a window of this length can contain; saturates.
    pub(crate) fn jobs(&self, window: u64) -> u64 {
        if window == 0 {
            return 0;
        }
        match self {
            Arrivals::Periodic { period, jitter } => {
                window.saturating_add(jitter.as_ns()).div_ceil(period.as_ns())
            }
            Arrivals::Distances(distances) => distances.arrivals_within(window),
            Arrivals::Curve(curve) => {
                let (whole, rest) = (window / curve.horizon, window % curve.horizon);
                let within = curve.steps.partition_point(|&(length, _)| length <= rest);
                let last = within.checked_sub(1).map_or(0, |at| curve.steps[at].1);
                whole.saturating_mul(curve.jobs_per_horizon()).saturating_add(last)
            }
        }
    }

    /// Returns the least window from `from` on that one more nanosecond gives another job.
    pub(crate) fn next_step(&self, from: u64) -> u64 {
        match self {
            Arrivals::Periodic { .. } if from == 0 => 0,
            Arrivals::Periodic { period, jitter } => {
                let (period, jitter) = (period.as_ns(), jitter.as_ns());
                from.saturating_add(jitter).div_ceil(period).saturating_mul(period) - jitter
            }
            Arrivals::Distances(distances) => distances.next_distance(from),
            Arrivals::Curve(curve) => {
                let (whole, rest) = (from / curve.horizon, from % curve.horizon);
                let next = curve.steps.iter().find(|&&(length, _)| length > rest);
                // The first step is at 1 ns.
                let next = next.map_or(curve.horizon, |&(length, _)| length - 1);
                (whole * curve.horizon).saturating_add(next)
            }
        }
    }

    /// Returns the long-run demand of jobs of this cost.
    ///
    /// # Errors
    /// [`Inconclusive::Limit`] if the demand of a horizon exceeds the range.
    pub(crate) fn demand(&self, cost: Work) -> Result<Demand, Inconclusive> {
        match self {
            Arrivals::Periodic { period, .. } => Ok(Demand::new(cost, *period)),
            Arrivals::Curve(curve) => {
                of_jobs(cost, curve.jobs_per_horizon(), Span::from_ns(curve.horizon))
            }
            Arrivals::Distances(distances) => {
                let (jobs, length) = distances.rate();
                of_jobs(cost, jobs, length)
            }
        }
    }
}

/// Returns the demand of `jobs` jobs of this cost in each `length`.
fn of_jobs(cost: Work, jobs: u64, length: Span) -> Result<Demand, Inconclusive> {
    let work = cost.as_ns().checked_mul(jobs).ok_or(Inconclusive::Limit)?;
    Ok(Demand::new(Work::from_ns(work), length))
}
