//! Check of one root of a real run against its model.

use super::Tolerance;
use super::job_times::{JobId, JobLog, JobTimes};
use super::model::{Expected, Model, TimeRange};
use super::stall_filter::StallFilter;
use crate::live_run::KernelCheck;
use crate::validity::Exclusions;
use talea_core::engine::TaskId;
use talea_core::mutate;
use talea_core::{Span, Time};

/// Result of the check.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Number of jobs of the run.
    pub jobs: u64,
    /// Number of jobs that a stall has delayed.
    pub excluded: u64,
    /// Number of jobs that stalls within the tolerance have delayed. Such jobs are checked against
    /// bounds, not against order and end.
    pub perturbed: u64,
    /// `responses[task]`: response times of the jobs that count.
    pub responses: Vec<Vec<Span>>,
    /// `late[task]`: number of late jobs that count.
    pub late: Vec<u64>,
    /// Number of starts and ends that were checked against the order.
    pub instants: u64,
    /// First inversion: pair of instants whose order in the run contradicts the simulations.
    pub first_inversion: Option<Inversion>,
    /// Number of inversions: pairs of instants whose order in the run contradicts the simulations.
    pub inversions: u64,
    /// Number of jobs that ended outside of the range of the simulations.
    pub out_of_range: u64,
    /// First of these jobs, with its distance from the range.
    pub first_out_of_range: Option<(JobId, Span)>,
    /// Number of jobs with a response above their bound.
    pub bound_violations: u64,
    /// First of these jobs, with the excess.
    pub first_bound_violation: Option<(JobId, Span)>,
    /// Check of the orders against `sched_switch` events, if the kernel reports them.
    pub kernel: Option<KernelCheck>,
}

/// Guarantees that a check compares in addition to the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunGuarantee {
    /// Starts and ends have the order and the range of the simulations.
    Order,
    /// A job that meets its deadline in every simulation also meets its deadline in the run.
    Deadlines,
    /// There is no further guarantee.
    Bounds,
}

/// Start or end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobInstant {
    /// Start of the job.
    Begin(JobId),
    /// End of the job.
    End(JobId),
}

/// Pair of instants whose order in the run contradicts the simulations: `earlier` precedes `later`
/// in every simulation, but followed it in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inversion {
    /// Instant that comes first in every simulation.
    pub earlier: JobInstant,
    /// Instant that comes first in the run.
    pub later: JobInstant,
    /// Minimum distance of the two instants in the simulations.
    pub apart: Span,
    /// Distance of the two instants in the run.
    pub by: Span,
}

impl Findings {
    /// Whether the run contradicts neither the simulations nor the bounds nor the orders.
    pub fn agree(&self) -> bool {
        let is_obeyed = self.kernel.as_ref().is_none_or(KernelCheck::is_obeyed);
        self.inversions == 0 && self.out_of_range == 0 && self.bound_violations == 0 && is_obeyed
    }

    /// Whether too few jobs count.
    pub fn are_inconclusive(&self) -> bool {
        let Findings { jobs: total, excluded, perturbed, .. } = *self;
        Exclusions { total, excluded, perturbed }.are_inconclusive()
    }
}

/// Checks the jobs until `end` against the model. For a perturbed job, `lost_time_bound` returns
/// the bound with the tolerated lost time, because that lost time may have let other jobs
/// interfere.
pub fn check_run(
    model: &Model,
    lost_time_bound: impl Fn(TaskId) -> Option<Span>,
    log: &JobLog,
    filter: &StallFilter,
    (tolerance, guarantee): (Tolerance, RunGuarantee),
    end: Time,
) -> Findings {
    let tasks = model.bounds.len();
    let mut found = Findings {
        responses: vec![Vec::new(); tasks],
        late: vec![0; tasks],
        ..Findings::default()
    };
    let mut instants: Vec<(JobInstant, TimeRange, Time, Span)> = Vec::new();
    for (&name, times) in &log.jobs {
        found.jobs += 1;
        if filter.excludes(times) {
            found.excluded += 1;
            continue;
        }
        let task = name.0.0 as usize;
        let is_perturbed = filter.perturbs(times);
        let response =
            times.release.zip(times.end).map(|(release, end)| end.since(release.min(end)));
        let slack = tolerance.of(response.unwrap_or(Span::ZERO));
        let over =
            |bound: Span| response?.checked_sub(bound + slack).filter(|over| !over.is_zero());
        let mut beyond =
            mutate!("cli-compare-bound", model.bounds[task].tolerant.and_then(over), None);
        if beyond.is_some() && is_perturbed {
            let Some(bound) = lost_time_bound(name.0) else {
                // No test gives a bound with the lost time, so the job does not count.
                mutate!("compare-judge-boundless", found.excluded += 1, found.perturbed += 1);
                continue;
            };
            mutate!(
                "compare-judge-despite",
                beyond = mutate!(
                    "compare-judge-perturbed",
                    over(bound),
                    model.bounds[task].tolerant.and_then(over).filter(|_| bound > Span::ZERO)
                ),
                beyond = over(bound).filter(|_| false)
            );
        }
        if let Some(over) = beyond {
            found.bound_violations += 1;
            found.first_bound_violation.get_or_insert((name, over));
        }
        let due = times.deadline.is_some_and(|deadline| times.end.unwrap_or(end) > deadline);
        found.late[task] += u64::from(due);
        found.responses[task].extend(response);
        if is_perturbed {
            found.perturbed += 1;
            continue;
        }
        let Some(expected) = model.jobs.get(&name) else { continue };
        if guarantee != RunGuarantee::Order {
            if guarantee == RunGuarantee::Deadlines
                && let Some(off) = deadline_overrun(expected, times, slack, end)
            {
                found.out_of_range += 1;
                found.first_out_of_range.get_or_insert((name, off));
            }
            continue;
        }
        if let Some(off) = distance_from_range(expected, times, slack, end) {
            found.out_of_range += 1;
            found.first_out_of_range.get_or_insert((name, off));
        }
        let both = [
            (JobInstant::Begin(name), expected.begin.zip(times.begin)),
            (JobInstant::End(name), expected.end.zip(times.end)),
        ];
        instants.extend(both.into_iter().filter_map(|(instant, both)| {
            let (range, measured) = both?;
            Some((instant, range, measured, slack))
        }));
    }
    found.instants = instants.len() as u64;
    find_inversions(&instants, &mut found);
    found
}

/// Returns the distance of a job's end from the range of the simulations.
fn distance_from_range(
    expected: &Expected,
    times: &JobTimes,
    slack: Span,
    until: Time,
) -> Option<Span> {
    let TimeRange { first, last } = expected.end?;
    let latest = last.saturating_add(slack);
    match times.end {
        Some(end) if end > latest => Some(end.since(latest)),
        Some(end) if end < first => {
            first.since(end).checked_sub(slack).filter(|off| !off.is_zero())
        }
        None if until > latest => Some(until.since(latest)),
        _ => None,
    }
}

/// Returns the excess of a job over its deadline plus tolerance, if the job is late in no
/// simulation.
fn deadline_overrun(
    expected: &Expected,
    times: &JobTimes,
    slack: Span,
    until: Time,
) -> Option<Span> {
    let deadline =
        times.deadline.filter(|&deadline| expected.end.is_some_and(|end| end.last <= deadline))?;
    let latest = deadline.saturating_add(slack);
    let end = times.end.unwrap_or(until);
    (end > latest).then(|| end.since(latest))
}

/// Finds inversions: pairs of instants whose order in the run contradicts the simulations. A pair
/// counts if, in every simulation, the first instant precedes the second by more than the
/// tolerance.
fn find_inversions(instants: &[(JobInstant, TimeRange, Time, Span)], found: &mut Findings) {
    let mut by_last: Vec<_> = instants.iter().collect();
    by_last.sort_by_key(|(_, range, _, slack)| range.last.saturating_add(*slack));
    let mut by_first: Vec<_> = instants.iter().collect();
    by_first.sort_by_key(|(_, range, ..)| range.first);
    let mut certain = by_last.into_iter().peekable();
    let mut latest: Option<&(JobInstant, TimeRange, Time, Span)> = None;
    for later in by_first {
        // All instants that have certainly passed at the earliest time of this one.
        while let Some(earlier) = certain
            .next_if(|(_, range, _, slack)| range.last.saturating_add(*slack) < later.1.first)
        {
            if latest.is_none_or(|latest| latest.2 < earlier.2) {
                latest = Some(earlier);
            }
        }
        if let Some(earlier) = latest.filter(|earlier| {
            mutate!("cli-compare-order", earlier.2 > later.2, earlier.2 < later.1.first)
        }) {
            found.inversions += 1;
            found.first_inversion.get_or_insert(Inversion {
                earlier: earlier.0,
                later: later.0,
                apart: later.1.first.since(earlier.1.last),
                by: earlier.2.since(later.2),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Bound;
    use super::*;
    use std::collections::BTreeMap;

    const TOLERANCE: Tolerance = Tolerance { min: Span::from_ns(1_000_000), permille: 0 };

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    /// Job of a test, in milliseconds: range of its end in the simulations, bound, and measured
    /// end.
    type JobCase = ((u64, u64), Option<u64>, Option<u64>);

    /// Checks one job per task, released at zero.
    fn run(jobs: &[JobCase], filter: &StallFilter) -> Findings {
        run_with_bound(jobs, filter, None)
    }

    /// Variant of [`run`] with bound `lost_time_bound` for perturbed jobs.
    fn run_with_bound(
        jobs: &[JobCase],
        filter: &StallFilter,
        lost_time_bound: Option<Span>,
    ) -> Findings {
        let mut model = Model { jobs: BTreeMap::new(), bounds: Vec::new() };
        let mut log = JobLog::default();
        for (task, &((first, last), bound, end)) in (0..).map(TaskId).zip(jobs) {
            model.jobs.insert(
                (task, 0),
                Expected { begin: None, end: Some(TimeRange { first: at(first), last: at(last) }) },
            );
            let bound = bound.map(|ms| Span::from_ns(ms * 1_000_000));
            model.bounds.push(Bound { nominal: bound, tolerant: bound });
            let times = JobTimes {
                release: Some(at(0)),
                deadline: Some(at(50)),
                end: end.map(at),
                begin: None,
            };
            log.jobs.insert((task, 0), times);
        }
        check_run(
            &model,
            |_| lost_time_bound,
            &log,
            filter,
            (TOLERANCE, RunGuarantee::Order),
            at(100),
        )
    }

    #[test]
    fn instants_that_are_ordered_in_every_simulation_must_be_ordered_in_the_run() {
        let calm = StallFilter::default();
        let agrees = run(&[((10, 11), None, Some(11)), ((13, 14), None, Some(13))], &calm);
        assert!(agrees.agree() && agrees.instants == 2, "{agrees:?}");
        // Inverted, but within the tolerance.
        assert!(run(&[((10, 11), None, Some(12)), ((12, 13), None, Some(11))], &calm).agree());
        let turned = run(&[((10, 11), None, Some(12)), ((13, 14), None, Some(11))], &calm);
        assert_eq!((turned.inversions, turned.out_of_range), (1, 1));
        assert_eq!(turned.first_inversion.map(|turned| turned.by), Some(Span::from_ns(1_000_000)));
    }

    #[test]
    fn an_end_outside_of_the_simulated_range_and_a_missing_end_are_found() {
        let calm = StallFilter::default();
        for (end, off) in [(Some(9), 0), (Some(13), 0), (Some(8), 1), (Some(16), 3), (None, 87)] {
            let found = run(&[((10, 12), None, end)], &calm);
            let by = found.first_out_of_range.map_or(0, |(_, by)| by.as_ns() / 1_000_000);
            assert_eq!(by, off, "{end:?}");
        }
    }

    #[test]
    fn without_a_guaranteed_order_only_deadlines_met_in_every_simulation_count() {
        let held = |guarantee, end: Option<u64>, last: u64, bound: Option<u64>| {
            let ms = |ms: u64| Span::from_ns(ms * 1_000_000);
            let bound = Bound { nominal: bound.map(ms), tolerant: bound.map(ms) };
            let mut model = Model { jobs: BTreeMap::new(), bounds: vec![bound] };
            let name = (TaskId(0), 0);
            let range = Some(TimeRange { first: at(10), last: at(last) });
            model.jobs.insert(name, Expected { begin: None, end: range });
            let mut log = JobLog::default();
            let times = JobTimes {
                release: Some(at(0)),
                deadline: Some(at(50)),
                end: end.map(at),
                begin: None,
            };
            log.jobs.insert(name, times);
            check_run(
                &model,
                |_| None,
                &log,
                &StallFilter::default(),
                (TOLERANCE, guarantee),
                at(100),
            )
        };
        let run = |end, last, bound| held(RunGuarantee::Deadlines, end, last, bound);
        // Far from the simulated range, but in time; late by the tolerance; and later.
        assert!(run(Some(40), 12, None).agree());
        assert!(run(Some(51), 12, None).agree());
        assert_eq!(
            run(Some(53), 12, None).first_out_of_range,
            Some(((TaskId(0), 0), Span::from_ns(2_000_000)))
        );
        assert!(!run(None, 12, None).agree(), "it never ends");
        assert!(run(Some(53), 51, None).agree(), "a simulation has it late, too");
        assert!(!run(Some(40), 12, Some(30)).agree(), "a bound is a bound");
        assert!(held(RunGuarantee::Bounds, Some(90), 12, None).agree());
        assert!(!held(RunGuarantee::Bounds, Some(90), 12, Some(30)).agree());
    }

    #[test]
    fn a_response_beyond_the_bound_and_its_tolerance_is_found() {
        let calm = StallFilter::default();
        assert!(run(&[((10, 20), Some(19), Some(20))], &calm).agree());
        let beyond = run(&[((10, 20), Some(18), Some(20))], &calm);
        assert_eq!((beyond.bound_violations, beyond.out_of_range), (1, 0));
        assert_eq!(
            beyond.first_bound_violation.map(|(_, over)| over),
            Some(Span::from_ns(1_000_000))
        );
    }

    #[test]
    fn a_job_delayed_by_a_stall_is_excluded() {
        let stall = talea_exec::Stall { cpu: 0, from: at(30), to: at(33) };
        let tree = talea_core::engine::Tree::new(
            1,
            talea_core::engine::SchedulerSpec::new("cpu", talea_core::sched::PolicySpec::Edf),
        );
        let filter = StallFilter::of(&tree, &[0], (&[stall], &[]), &JobLog::default(), TOLERANCE);
        let found = run(&[((10, 11), None, Some(11)), ((13, 14), None, Some(60))], &filter);
        assert_eq!((found.jobs, found.excluded), (2, 1));
        assert!(found.agree() && found.are_inconclusive());
        assert_eq!(found.late, [0, 0], "the late one is not counted");
    }

    #[test]
    fn a_perturbed_job_is_checked_against_a_bound_with_lost_time() {
        // Half of the tolerance is lost at 5 ms.
        let stall = talea_exec::Stall { cpu: 0, from: at(5), to: Time::from_ns(5_300_000) };
        let tree = talea_core::engine::Tree::new(
            1,
            talea_core::engine::SchedulerSpec::new("cpu", talea_core::sched::PolicySpec::Edf),
        );
        let wide = Tolerance { min: Span::from_ns(3_000_000), permille: 0 };
        let filter = StallFilter::of(&tree, &[0], (&[stall], &[]), &JobLog::default(), wide);
        // Without such a bound the job is excluded, and counts towards an inconclusive run.
        for (bound, wanted) in [(Some(19), (0, 1, 0)), (Some(18), (0, 1, 1)), (None, (1, 0, 0))] {
            let bound = bound.map(|ms| Span::from_ns(ms * 1_000_000));
            let found = run_with_bound(&[((10, 11), Some(12), Some(20))], &filter, bound);
            assert_eq!(
                (found.excluded, found.perturbed, found.bound_violations),
                wanted,
                "{bound:?}"
            );
        }
    }
}
