//! Jobs that CPU stalls have delayed.
//!
//! During a stall, jobs accumulate, and later jobs wait for them. So every job of the root is
//! affected from the stall until no job is pending, and until each server has had a new period. A
//! stall is detected by a late probe, so it may have begun up to one probe period earlier. Time
//! that is lost in slices shorter than the probe period is exact: it is missing from the CPU clocks
//! of the workers. If the sum of the losses up to an idle time is within the tolerance, the jobs
//! are only perturbed.

use super::Tolerance;
use super::job_times::{JobLog, JobTimes};
use super::model::{MAX_COST_PERMILLE, MAX_ORDER_DELAY};
use talea_core::engine::{NodeSpec, Tree};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_exec::stalls::PROBE_PERIOD;
use talea_exec::{LostTime, Stall};

/// Intervals of a run in which jobs of a root are excluded or perturbed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StallFilter {
    /// Intervals in which jobs are excluded.
    excluded: Vec<(Time, Time)>,
    /// Intervals with losses within the tolerance. Such a loss can let other jobs interfere, so
    /// that a job is late by much more than the tolerance.
    perturbed: Vec<(Time, Time)>,
}

/// Upper bound of the CPU time that a CPU lost in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loss {
    from: Time,
    to: Time,
    max: Span,
}

impl Loss {
    fn from_stall(stall: &Stall) -> Loss {
        Loss { from: stall.earliest_start(), to: stall.to, max: stall.length() + PROBE_PERIOD }
    }

    /// Returns the lost time beyond the allowance of the simulations and bounds, and beyond the
    /// detected stalls.
    fn from_lost_time(stretch: &LostTime, stalls: &[Loss]) -> Option<Loss> {
        let LostTime { from, to, amount: by, .. } = *stretch;
        let explained = stalls.iter().filter(|stall| stall.from <= to && from <= stall.to);
        let explained: u64 = explained.map(|stall| stall.max.as_ns()).sum();
        let most = Span::from_ns(by.as_ns().saturating_sub(explained));
        // In terms of the executed time, as in the bounds: two losses that are ignored here may
        // together not exceed the allowance of a bound.
        let done = to.since(from).checked_sub(by).unwrap_or(Span::ZERO);
        let ordinary = mutate!(
            "compare-stretch-length",
            MAX_ORDER_DELAY + Span::from_ns(done.as_ns() / 1_000 * MAX_COST_PERMILLE),
            MAX_ORDER_DELAY
                + MAX_ORDER_DELAY
                + Span::from_ns(done.as_ns() / 1_000 * MAX_COST_PERMILLE)
        );
        mutate!("cli-compare-slices", most > ordinary, most > ordinary && most < ordinary)
            .then_some(Loss { from, to, max: most })
    }
}

impl StallFilter {
    /// Builds the filter of a root on these CPUs.
    pub fn of(
        tree: &Tree,
        cpus: &[u32],
        (stalls, stretches): (&[Stall], &[LostTime]),
        log: &JobLog,
        tolerance: Tolerance,
    ) -> StallFilter {
        let settles = max_server_period(tree);
        let of_cpu = |number| -> Vec<Loss> {
            stalls.iter().filter(|stall| Some(&stall.cpu) == number).map(Loss::from_stall).collect()
        };
        let mut losses: Vec<Loss> = cpus.iter().flat_map(|cpu| of_cpu(Some(cpu))).collect();
        losses.extend(stretches.iter().filter_map(|stretch| {
            // Stalls explain lost time on their own CPU only.
            Loss::from_lost_time(stretch, &of_cpu(cpus.get(stretch.cpu as usize)))
        }));
        losses.sort_by_key(|loss| loss.to);
        // Losses between two idle times add up.
        let clear = |loss: &Loss| log.idle_times.partition_point(|&at| at < loss.to);
        let stretch = |losses: &[Loss]| {
            let (from, last) = (losses.iter().map(|loss| loss.from).min()?, losses.last()?);
            let most: u64 = losses.iter().map(|loss| loss.max.as_ns()).sum();
            let to = log.idle_times.get(clear(last)).copied().unwrap_or(Time::NEVER);
            Some((
                most > tolerance.min.as_ns(),
                (
                    from,
                    mutate!(
                        "cli-compare-stalls",
                        to.max(last.to.saturating_add(settles)),
                        to.min(last.to.saturating_add(settles))
                    ),
                ),
            ))
        };
        let all = losses.chunk_by(|a, b| clear(a) == clear(b)).filter_map(stretch);
        let (excluded, perturbed): (Vec<_>, Vec<_>) = all.partition(|&(is_bad, _)| is_bad);
        let stretches = |of: Vec<(bool, _)>| of.into_iter().map(|(_, stretch)| stretch).collect();
        StallFilter { excluded: stretches(excluded), perturbed: stretches(perturbed) }
    }

    /// Whether a job is excluded, because no statement about it is possible.
    pub fn excludes(&self, times: &JobTimes) -> bool {
        overlaps(&self.excluded, times)
    }

    /// Whether a job is perturbed, because losses within the tolerance may have inverted it with
    /// others.
    pub fn perturbs(&self, times: &JobTimes) -> bool {
        overlaps(&self.perturbed, times)
    }
}

/// Whether the intervals overlap the job. A job that has not ended lasts forever.
fn overlaps(stretches: &[(Time, Time)], times: &JobTimes) -> bool {
    let from = times.release.or(times.begin).unwrap_or(Time::ZERO);
    let to = times.end.unwrap_or(Time::NEVER);
    stretches.iter().any(|&(begin, end)| begin <= to && from <= end)
}

fn max_server_period(tree: &Tree) -> Span {
    let period = |body: &NodeSpec| match body {
        NodeSpec::Scheduler(spec) => spec.reservation.map(|reservation| reservation.period),
        NodeSpec::Task(_) => None,
    };
    tree.nodes().filter_map(|(_, node)| period(&node.spec)).max().unwrap_or(Span::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::engine::SchedulerSpec;
    use talea_core::sched::PolicySpec;

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_stall_affects_jobs_until_nothing_is_left_to_do() {
        let tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
        let log = JobLog { idle_times: vec![at(8), at(30), at(60)], ..JobLog::default() };
        let stall = |cpu| Stall { cpu, from: at(10), to: at(12) };
        let tolerance = Tolerance { min: Span::from_ns(2_999_999), permille: 0 };
        let of =
            |cpu, log: &JobLog| StallFilter::of(&tree, &[cpu], (&[stall(3)], &[]), log, tolerance);
        let filter = of(3, &log);
        let times = |from, to| JobTimes {
            release: Some(at(from)),
            end: Some(at(to)),
            ..JobTimes::default()
        };
        // The stall may have begun a millisecond before its detection.
        for (from, to, is) in
            [(0, 8, false), (0, 9, true), (11, 20, true), (29, 40, true), (31, 40, false)]
        {
            assert_eq!(filter.excludes(&times(from, to)), is, "{from} to {to}");
        }
        assert!(
            filter.excludes(&JobTimes { release: Some(at(5)), ..JobTimes::default() }),
            "it never ended"
        );
        assert!(!of(2, &log).excludes(&times(11, 12)), "another CPU's");
        let wide = Tolerance { min: Span::from_ns(3_000_000), permille: 0 };
        let calm = StallFilter::of(&tree, &[3], (&[stall(3)], &[]), &log, wide);
        assert!(
            !calm.excludes(&times(11, 12)) && calm.perturbs(&times(11, 12)),
            "that is tolerated"
        );
        assert!(!calm.perturbs(&times(31, 40)));
        let both = [stall(3), Stall { cpu: 3, from: at(20), to: at(20) }];
        let twice = StallFilter::of(&tree, &[3], (&both, &[]), &log, wide);
        assert!(twice.excludes(&times(11, 12)), "but not one more in the same backlog");
        let none = of(3, &JobLog::default());
        assert!(none.excludes(&times(1_000, 1_001)), "it never came to rest");
    }
    #[test]
    fn time_lost_in_slices_counts_unless_a_stall_explains_it() {
        let tree = Tree::new(2, SchedulerSpec::new("cpus", PolicySpec::Edf));
        let log = JobLog { idle_times: vec![at(8), at(30)], ..JobLog::default() };
        let tolerance = Tolerance { min: Span::from_ns(2_000_000), permille: 0 };
        let times = JobTimes { release: Some(at(11)), end: Some(at(12)), ..JobTimes::default() };
        let lost = |us: u64| LostTime {
            cpu: 1,
            from: at(10),
            to: at(20),
            amount: Span::from_ns(us * 1_000),
        };
        let of = |stalls: &[Stall], us: &[u64]| {
            let stretches: Vec<LostTime> = us.iter().map(|&us| lost(us)).collect();
            let filter = StallFilter::of(&tree, &[3, 5], (stalls, &stretches), &log, tolerance);
            (filter.excludes(&times), filter.perturbs(&times))
        };
        // The allowance of the perturbed simulations for one order, and for nine and a half
        // milliseconds of work.
        assert_eq!(of(&[], &[441, 441, 441]), (false, false));
        assert_eq!(of(&[], &[442]), (false, true));
        assert_eq!(of(&[], &[2_000]), (false, true));
        assert_eq!(of(&[], &[2_001]), (true, false));
        assert_eq!(of(&[], &[1_000, 1_001]), (true, false), "one backlog");
        // A stall on its CPU explains the loss; one on the other CPU does not.
        let stall = |cpu| Stall { cpu, from: at(13), to: Time::from_ns(13_500_000) };
        assert_eq!(of(&[stall(5)], &[1_750]), (false, true));
        assert_eq!(of(&[stall(3)], &[1_750]), (true, false));
    }

    #[test]
    fn s18_a_bound_covers_two_losses_that_do_not_perturb_a_job() {
        let text = r#"
            duration = "1s"
            [[scheduler]]
            name = "cpu"
            policy = "edf"
            [[task]]
            name = "one"
            in = "cpu"
            period = "20ms"
            cost = "9ms"
        "#;
        let system = talea_system::read(text, "the test's own", &()).expect("a sound file");
        let bound = super::super::model::bounds(&system.roots[0])[0].tolerant.expect("a bound");
        // Half of its work in each interval.
        let lets_pass = |lost: u64| {
            let to = Time::from_ns(14_500_000 + lost);
            Loss::from_lost_time(
                &LostTime { cpu: 0, from: at(10), to, amount: Span::from_ns(lost) },
                &[],
            )
            .is_none()
        };
        let most = (bound.as_ns() - 9_000_000) / 2;
        assert!(lets_pass(most) && !lets_pass(most + 1), "{most} of {bound:?}");
    }
}
