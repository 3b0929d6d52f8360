//! Job sources: arrivals and costs of a workload, generated from one seed.

use crate::rng::Rng;
use std::collections::VecDeque;
use talea_core::mutate;
use talea_core::workload::distances::{DistanceFunction, DistanceSpec};
use talea_core::workload::{Arrivals, Cost, CostMode, Source};
use talea_core::{Span, Time, Work};

/// Generator of one task's arrivals and costs.
///
/// Arrivals and costs use streams of their own, so neither depends on the scheduler.
#[derive(Clone, Debug)]
pub(crate) struct JobSource {
    arrivals: Arrivals,
    /// `costs[v]`: cost model of version `v`. The last element applies to all further versions.
    costs: Vec<Cost>,
    /// Cost of all jobs, if there is one cost model and it is constant.
    constant: Option<Work>,
    nominal: Option<Time>,
    /// Last observation: jitter does not change the order of jobs.
    seen: Time,
    /// Past arrivals of a curve.
    history: Option<Box<CurveHistory>>,
    next: usize,
    arrival_rng: Rng,
    cost_rng: Rng,
    /// Whether a cost is random.
    is_random: bool,
    /// Number of jobs with an assigned cost.
    job: u64,
}

/// Past arrivals of a task with a distance function.
#[derive(Clone, Debug)]
struct CurveHistory {
    /// `distances[k − 1]`: minimum distance to the k-th arrival after one.
    distances: Vec<Span>,
    /// The last arrivals, the latest last; as many as there are distances.
    arrivals: VecDeque<Time>,
    /// Period, jitter, and the earliest next arrival that they permit.
    grid: Option<(Span, Span, Time)>,
}

impl CurveHistory {
    fn new(distances: &DistanceFunction) -> CurveHistory {
        let (distances, grid) = match distances.spec() {
            DistanceSpec::List(list) => (list.clone(), None),
            DistanceSpec::Jittered { period, jitter, separation } => {
                (vec![*separation], Some((*period, *jitter, Time::ZERO)))
            }
        };
        CurveHistory { arrivals: VecDeque::with_capacity(distances.len()), distances, grid }
    }

    /// Returns the earliest arrival after the one at `arrival`, which joins the history.
    fn earliest_after(&mut self, arrival: Time) -> Time {
        self.arrivals.truncate(self.distances.len() - 1);
        self.arrivals.push_front(arrival);
        let by_list = self.arrivals.iter().zip(&self.distances).map(|(&at, &least)| at + least);
        let earliest = by_list.max().unwrap_or(arrival);
        let Some((period, jitter, before)) = &mut self.grid else { return earliest };
        // k arrivals are at least k periods less the jitter apart: `before` is the latest of all
        // past arrivals plus their periods, before the jitter is subtracted.
        *before = (*before).max(arrival) + *period;
        let by_grid = before.since(Time::ZERO).checked_sub(*jitter);
        by_grid.map_or(earliest, |at| earliest.max(Time::ZERO + at))
    }
}

/// Returns a cost without its steps.
fn plain(cost: &Cost) -> Cost {
    match cost {
        Cost::WithSteps { base: of, .. } => plain(of),
        cost => cost.clone(),
    }
}

impl JobSource {
    pub(crate) fn new(source: &Source, seed: u64, task: u64) -> JobSource {
        let nominal = match &source.arrivals {
            Arrivals::Periodic { offset, .. }
            | Arrivals::Sporadic { offset, .. }
            | Arrivals::Curve { offset, .. } => {
                Some(Time::ZERO + mutate!("sim-offset", *offset, Span::from_ns(offset.as_ns() * 0)))
            }
            Arrivals::List(times) => times.first().copied(),
            Arrivals::Observed(times) => times.first().map(|&(nominal, _)| nominal),
        };
        let costs: Vec<Cost> = source.cost.by_version().into_iter().map(plain).collect();
        let constant = match costs[..] {
            [Cost::Constant(cost)] => Some(cost),
            _ => None,
        };
        JobSource {
            constant,
            arrivals: source.arrivals.clone(),
            is_random: costs
                .iter()
                .any(|cost| matches!(cost, Cost::Uniform { .. } | Cost::Pair { .. })),
            costs,
            nominal,
            seen: Time::ZERO,
            history: match &source.arrivals {
                Arrivals::Curve { distances, .. } => Some(Box::new(CurveHistory::new(distances))),
                _ => None,
            },
            next: 0,
            arrival_rng: Rng::for_part(mutate!("sim-seed", seed, 2), 2 * task),
            cost_rng: Rng::for_part(seed, 2 * task + 1),
            job: 0,
        }
    }

    /// Returns the time of observation and the nominal time of the next arrival; `None` after the
    /// last.
    #[inline]
    pub(crate) fn arrival(&mut self) -> Option<(Time, Time)> {
        let nominal = self.nominal?;
        let mut seen = nominal;
        self.nominal = match &self.arrivals {
            Arrivals::Periodic { period, jitter, .. } => {
                if !jitter.is_zero() {
                    seen = mutate!(
                        "sim-jitter",
                        nominal + Span::from_ns(self.arrival_rng.between(0, jitter.as_ns())),
                        nominal
                            + *jitter
                            + Span::from_ns(self.arrival_rng.between(0, jitter.as_ns()))
                    );
                    seen = mutate!("sim-jitter-order", seen.max(self.seen), seen);
                    self.seen = seen;
                }
                Some(mutate!("sim-drift", nominal, seen) + *period)
            }
            Arrivals::Sporadic { separation, extra_separation: slack, .. } => Some(
                nominal
                    + mutate!("sim-sporadic", *separation, Span::from_ns(separation.as_ns() / 2))
                    + Span::from_ns(self.arrival_rng.between(0, slack.as_ns())),
            ),
            Arrivals::Curve { extra_delay, .. } => {
                let history = self.history.as_mut().expect("the history of a curve");
                let earliest = history.earliest_after(nominal);
                let delay = Span::from_ns(self.arrival_rng.between(0, extra_delay.as_ns()));
                Some(mutate!("sim-curve", earliest, nominal) + delay)
            }
            Arrivals::List(times) => {
                self.next += 1;
                times.get(self.next).copied()
            }
            Arrivals::Observed(times) => {
                seen = times.get(self.next).map_or(nominal, |&(_, seen)| {
                    mutate!("sim-arrivals-seen", seen.max(nominal), seen.min(nominal).max(nominal))
                });
                self.next += 1;
                times.get(self.next).map(|&(nominal, _)| nominal)
            }
        };
        Some((seen, nominal))
    }

    /// Returns the cost of the next job in `version`.
    ///
    /// Jobs of a task run in order, and each consumes one random number in any version. The cost is
    /// therefore the same for every scheduler.
    #[inline]
    pub(crate) fn cost(&mut self, version: u32, mode: CostMode) -> Work {
        self.constant.unwrap_or_else(|| self.sample(version, mode))
    }

    fn sample(&mut self, version: u32, mode: CostMode) -> Work {
        let job = mutate!("sim-cost-list", self.job, self.job + 1);
        self.job += 1;
        let random = mutate!(
            "sim-cost-version",
            if self.is_random { self.cost_rng.next() } else { 0 },
            if self.is_random && version < 1 { self.cost_rng.next() } else { 0 }
        );
        // [`Rng::below`] of a number that was generated before.
        let below = |n: u64| ((u128::from(random) * u128::from(n)) >> 64) as u64;
        match &self.costs[(version as usize).min(self.costs.len() - 1)] {
            Cost::Constant(cost) => *cost,
            Cost::Uniform { min, max } => match (mode, max.as_ns() - min.as_ns()) {
                (CostMode::Best, _) => *min,
                (CostMode::Worst, _) => *mutate!("sim-cost-case", max, min),
                (CostMode::Sampled, u64::MAX) => Work::from_ns(random),
                (CostMode::Sampled, range) => *min + Work::from_ns(below(range + 1)),
            },
            Cost::List(costs) => costs[(job % costs.len() as u64) as usize],
            Cost::Pair { low, high, share } => match mode {
                // A cost with probability zero is no worst case.
                CostMode::Worst if *share > 0 => *high,
                CostMode::Best | CostMode::Worst => *low,
                CostMode::Sampled => {
                    *if mutate!(
                        "sim-cost-pair",
                        below(1_000) < u64::from(*share),
                        below(1_000) <= 1_000 - u64::from(*share)
                    ) {
                        high
                    } else {
                        low
                    }
                }
            },
            Cost::Versions(_) | Cost::WithSteps { .. } => {
                panic!("nested costs by version")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(of: Arrivals, seed: u64, count: usize) -> Vec<(Time, Time)> {
        let source = Source { arrivals: of, cost: Cost::Constant(Work::from_ns(1)) };
        let mut generator = JobSource::new(&source, seed, 0);
        std::iter::from_fn(|| generator.arrival()).take(count).collect()
    }

    #[test]
    fn arrivals_of_a_curve_are_the_densest_or_late_and_always_conform() {
        let list =
            |of: &[u64]| DistanceSpec::List(of.iter().map(|&at| Span::from_ns(at)).collect());
        let jittered = |period, jitter, apart| DistanceSpec::Jittered {
            period: Span::from_ns(period),
            jitter: Span::from_ns(jitter),
            separation: Span::from_ns(apart),
        };
        let specs = [
            list(&[7]),
            list(&[0, 0, 30]),
            list(&[1, 5, 40, 41]),
            list(&[3, 4, 5, 100]),
            jittered(10, 0, 10),
            jittered(10, 35, 0),
            jittered(10, 57, 3),
        ];
        for (spec, extra) in specs.iter().flat_map(|spec| [0, 1, 9, 200].map(|extra| (spec, extra)))
        {
            let distances = DistanceFunction::new(spec.clone()).expect("a function");
            let offset = Span::from_ns(4);
            let curve = Arrivals::Curve {
                offset,
                distances: Box::new(distances.clone()),
                extra_delay: Span::from_ns(extra),
            };
            let seen = arrivals(curve, 3, 80);
            assert!(seen.iter().all(|(observed, nominal)| observed == nominal));
            for (first, &(at, _)) in seen.iter().enumerate() {
                for (n, &(later, _)) in seen[first..].iter().enumerate() {
                    let apart = later.since(at).as_ns();
                    assert!(apart >= distances.distance(n as u64), "{n} of {spec:?}");
                    if extra == 0 && first == 0 {
                        assert_eq!(apart, distances.distance(n as u64), "{n} of {spec:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn jitter_beyond_the_period_keeps_the_order_of_jobs() {
        let span = Span::from_ns;
        let late = Arrivals::Periodic { offset: span(3), period: span(10), jitter: span(45) };
        let seen = arrivals(late, 5, 500);
        assert!(seen.windows(2).all(|two| two[0].0 <= two[1].0));
        let delay = |&(observed, nominal): &(Time, Time)| observed.since(nominal);
        assert!(seen.iter().all(|arrival| delay(arrival) <= span(45)));
        assert!(seen.iter().any(|arrival| delay(arrival) > span(40)));
        assert!(seen.windows(4).any(|four| four[3].0.since(four[0].0) < span(10)), "a burst");
    }

    #[test]
    fn listed_arrivals_are_observed_at_their_time_and_never_before_the_nominal_time() {
        let at = Time::from_ns;
        let arrivals = Arrivals::Observed(vec![(at(5), at(9)), (at(15), at(15)), (at(25), at(20))]);
        let mut generator =
            JobSource::new(&Source { arrivals, cost: Cost::Constant(Work::from_ns(1)) }, 1, 0);
        let seen: Vec<_> = std::iter::from_fn(|| generator.arrival()).collect();
        assert_eq!(seen, [(at(9), at(5)), (at(15), at(15)), (at(25), at(25))]);
    }
}
