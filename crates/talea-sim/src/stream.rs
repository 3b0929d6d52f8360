//! A workload at work: streams of arrivals and costs, all from one seed.

use crate::dice::Dice;
use talea_core::mutate;
use talea_core::workload::{Arrivals, Case, Cost, Source};
use talea_core::{Span, Time, Work};

/// A source at work: one task's stream of arrivals and costs, each with dice of its own, so that
/// neither depends on what the scheduler does.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    arrivals: Arrivals,
    /// By version; the last for all others.
    costs: Vec<Cost>,
    /// The only one, when it is.
    constant: Option<Work>,
    nominal: Option<Time>,
    next: usize,
    times: Dice,
    rolls: Dice,
    /// Whether a cost is drawn.
    is_random: bool,
    /// Jobs that have been given a cost.
    job: u64,
}

/// A cost without its marks.
fn plain(cost: &Cost) -> Cost {
    match cost {
        Cost::Marked { of, .. } => plain(of),
        cost => cost.clone(),
    }
}

impl Stream {
    pub(crate) fn new(source: &Source, seed: u64, task: u64) -> Stream {
        let nominal = match &source.arrivals {
            Arrivals::Periodic { offset, .. } | Arrivals::Sporadic { offset, .. } => {
                Some(Time::ZERO + mutate!("sim-offset", *offset, Span::from_ns(offset.as_ns() * 0)))
            }
            Arrivals::List(times) => times.first().copied(),
            Arrivals::Seen(times) => times.first().map(|&(nominal, _)| nominal),
        };
        let costs: Vec<Cost> = source.cost.by_version().into_iter().map(plain).collect();
        let constant = match costs[..] {
            [Cost::Constant(cost)] => Some(cost),
            _ => None,
        };
        Stream {
            constant,
            arrivals: source.arrivals.clone(),
            is_random: costs
                .iter()
                .any(|cost| matches!(cost, Cost::Uniform { .. } | Cost::Pair { .. })),
            costs,
            nominal,
            next: 0,
            times: Dice::of(mutate!("sim-seed", seed, 2), 2 * task),
            rolls: Dice::of(seed, 2 * task + 1),
            job: 0,
        }
    }

    /// The next arrival: when it is seen, and when it should have been.
    #[inline]
    pub(crate) fn arrival(&mut self) -> Option<(Time, Time)> {
        let nominal = self.nominal?;
        let mut seen = nominal;
        self.nominal = match &self.arrivals {
            Arrivals::Periodic { period, jitter, .. } => {
                if !jitter.is_zero() {
                    seen = mutate!(
                        "sim-jitter",
                        nominal + Span::from_ns(self.times.between(0, jitter.as_ns())),
                        nominal + *jitter + Span::from_ns(self.times.between(0, jitter.as_ns()))
                    );
                }
                Some(mutate!("sim-drift", nominal, seen) + *period)
            }
            Arrivals::Sporadic { separation, slack, .. } => Some(
                nominal
                    + mutate!("sim-sporadic", *separation, Span::from_ns(separation.as_ns() / 2))
                    + Span::from_ns(self.times.between(0, slack.as_ns())),
            ),
            Arrivals::List(times) => {
                self.next += 1;
                times.get(self.next).copied()
            }
            Arrivals::Seen(times) => {
                seen = times.get(self.next).map_or(nominal, |&(_, seen)| {
                    mutate!("sim-arrivals-seen", seen.max(nominal), seen.min(nominal).max(nominal))
                });
                self.next += 1;
                times.get(self.next).map(|&(nominal, _)| nominal)
            }
        };
        Some((seen, nominal))
    }

    /// What the next job costs in `version`. Jobs of a task run in order and each rolls once,
    /// whatever its version, so this is the same for every scheduler.
    #[inline]
    pub(crate) fn cost(&mut self, version: u32, case: Case) -> Work {
        self.constant.unwrap_or_else(|| self.draw(version, case))
    }

    fn draw(&mut self, version: u32, case: Case) -> Work {
        let job = self.job;
        self.job += 1;
        let roll = mutate!(
            "sim-cost-version",
            if self.is_random { self.rolls.next() } else { 0 },
            if self.is_random && version < 1 { self.rolls.next() } else { 0 }
        );
        // The dice's own `below`, of a roll that was made before.
        let below = |n: u64| ((u128::from(roll) * u128::from(n)) >> 64) as u64;
        match &self.costs[(version as usize).min(self.costs.len() - 1)] {
            Cost::Constant(cost) => *cost,
            Cost::Uniform { min, max } => match (case, max.as_ns() - min.as_ns()) {
                (Case::Best, _) => *min,
                (Case::Worst, _) => *mutate!("sim-cost-case", max, min),
                (Case::Drawn, u64::MAX) => Work::from_ns(roll),
                (Case::Drawn, range) => *min + Work::from_ns(below(range + 1)),
            },
            Cost::List(costs) => costs[(job % costs.len() as u64) as usize],
            Cost::Pair { low, high, share } => match case {
                // What never happens is no worst case.
                Case::Worst if *share > 0 => *high,
                Case::Best | Case::Worst => *low,
                Case::Drawn => {
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
            Cost::Versions(_) | Cost::Marked { .. } => {
                panic!("a cost by version within a cost by version")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_arrivals_are_seen_when_it_is_said_and_never_before_they_are_due() {
        let at = Time::from_ns;
        let arrivals = Arrivals::Seen(vec![(at(5), at(9)), (at(15), at(15)), (at(25), at(20))]);
        let mut stream =
            Stream::new(&Source { arrivals, cost: Cost::Constant(Work::from_ns(1)) }, 1, 0);
        let seen: Vec<_> = std::iter::from_fn(|| stream.arrival()).collect();
        assert_eq!(seen, [(at(9), at(5)), (at(15), at(15)), (at(25), at(25))]);
    }
}
