//! Check of the chains of a real run against their bounds.
//!
//! A latency counts unless a stall or a perturbation overlaps the time from its sample to its
//! output. The tolerance applies to each task of the chain.

use super::Tolerance;
use super::job_times::{JobLog, JobTimes};
use super::model::Model;
use super::stall_filter::StallFilter;
use talea_analysis::tree::{ChainLatencies, ChainModel, RootModel};
use talea_core::Span;
use talea_core::chain::{LatencyKind, ReadWrite, for_each_latency};
use talea_core::engine::TaskId;
use talea_core::mutate;
use talea_system::{Chain, Root};

/// Latencies of one chain in real runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainFindings {
    /// Longest reaction time that counts.
    pub reaction: Option<Span>,
    /// Largest data age that counts.
    pub age: Option<Span>,
    /// Number of outputs that count.
    pub outputs: u64,
    /// Number of outputs that a stall may have delayed.
    pub excluded: u64,
    /// Number of latencies above the bound and the tolerance.
    pub violations: u64,
    /// First of these latencies, with the excess.
    pub first_violation: Option<(LatencyKind, Span)>,
}

/// Returns the bounds of a chain with the bounds of its tasks: those of the file, and those that a
/// real run must keep.
pub fn chain_bounds(
    chain: &Chain,
    roots: &[Root],
    models: &[Model],
) -> [Option<ChainLatencies>; 2] {
    let roots: Vec<RootModel<'_>> =
        roots.iter().map(|root| RootModel::new(&root.tree, &root.sources)).collect();
    let tasks: Vec<(usize, usize)> = chain.tasks.iter().map(|of| (of.root, of.task)).collect();
    let bound = |is_tolerant: bool| {
        let response = |bound: &super::model::Bound| {
            if is_tolerant { bound.tolerant } else { bound.nominal }
        };
        let responses: Vec<Vec<Option<Span>>> =
            models.iter().map(|model| model.bounds.iter().map(response).collect()).collect();
        let (links, logical) = (&chain.links, &vec![false; tasks.len()]);
        let model = ChainModel { roots: &roots, tasks: &tasks, links, logical };
        model.bound(&responses).bounds.ok()
    };
    [bound(false), bound(true)]
}

/// Adds the latencies of a chain in one run to `found`. `logs[r]` and `filters[r]` belong to root
/// `r`; `bound` is the one that the run must keep.
pub fn check_chain(
    chain: &Chain,
    (logs, filters): (&[JobLog], &[StallFilter]),
    bound: Option<ChainLatencies>,
    tolerance: Tolerance,
    found: &mut ChainFindings,
) {
    let jobs = |root: usize, task: usize| -> Vec<ReadWrite> {
        let task = TaskId(task as u32);
        let times = logs[root].jobs.range((task, 0)..=(task, u64::MAX));
        let read_write =
            |(_, times): (_, &JobTimes)| Some(ReadWrite { read: times.begin?, write: times.end? });
        times.map_while(read_write).collect()
    };
    let jobs: Vec<_> = chain.tasks.iter().map(|of| jobs(of.root, of.task)).collect();
    let first = &jobs[0];
    let outputs = &jobs[jobs.len() - 1];
    for_each_latency(&chain.links, &jobs, |kind, latency| {
        let times = JobTimes {
            release: Some(first[latency.sample as usize].read),
            end: Some(outputs[latency.output as usize].write),
            ..JobTimes::default()
        };
        let is_disturbed = chain.tasks.iter().any(|of| {
            let filter = &filters[of.root];
            filter.excludes(&times) || filter.perturbs(&times)
        });
        if mutate!("compare-chain-stalls", is_disturbed, false) {
            found.excluded += u64::from(kind == LatencyKind::Age);
            return;
        }
        let (longest, most) = match kind {
            LatencyKind::Reaction => (&mut found.reaction, bound.map(|of| of.reaction)),
            LatencyKind::Age => {
                found.outputs += 1;
                (&mut found.age, bound.map(|of| of.age))
            }
        };
        *longest = (*longest).max(Some(latency.length));
        let slack = tolerance.of(latency.length).as_ns().saturating_mul(chain.tasks.len() as u64);
        let limit = most.map(|most| most.as_ns().saturating_add(slack));
        let over = limit.and_then(|limit| latency.length.as_ns().checked_sub(limit));
        if let Some(over) = over.filter(|&over| mutate!("compare-chain-bound", over > 0, false)) {
            found.violations += 1;
            found.first_violation.get_or_insert((kind, Span::from_ns(over)));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Time;
    use talea_core::chain::Link;
    use talea_core::engine::{SchedulerSpec, Tree};
    use talea_core::sched::PolicySpec;
    use talea_system::ChainTask;

    const TOLERANCE: Tolerance = Tolerance { min: Span::from_ns(1_000_000), permille: 0 };

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    fn ms(ms: u64) -> Span {
        Span::from_ns(ms * 1_000_000)
    }

    /// Two tasks with a job every 10 ms; the second reads at `read` after each job of the first.
    fn check(read: u64, bound: Option<ChainLatencies>, filter: StallFilter) -> ChainFindings {
        let mut log = JobLog::default();
        for job in 0..10 {
            for (task, begin) in [(0, 0), (1, read)] {
                let (begin, end) = (at(10 * job + begin), at(10 * job + begin + 2));
                let times = JobTimes { begin: Some(begin), end: Some(end), ..JobTimes::default() };
                log.jobs.insert((TaskId(task), job), times);
            }
        }
        let chain = Chain {
            name: "chain".into(),
            tasks: vec![ChainTask { root: 0, task: 0 }, ChainTask { root: 0, task: 1 }],
            links: vec![Link::Register],
            reaction: None,
            age: None,
            line: 1,
        };
        let mut found = ChainFindings::default();
        check_chain(&chain, (&[log], &[filter]), bound, TOLERANCE, &mut found);
        found
    }

    #[test]
    fn a_latency_above_its_bound_and_the_tolerance_of_each_task_is_found() {
        let bound = |age| Some(ChainLatencies { reaction: ms(100), age: ms(age) });
        let found = check(4, bound(4), StallFilter::default());
        assert_eq!((found.age, found.reaction), (Some(ms(6)), Some(ms(16))));
        assert_eq!((found.outputs, found.violations, found.excluded), (10, 0, 0));
        let beyond = check(4, bound(3), StallFilter::default());
        assert_eq!(beyond.first_violation, Some((LatencyKind::Age, ms(1))));
        assert_eq!(beyond.violations, 10);
        assert_eq!(check(4, None, StallFilter::default()).violations, 0);
    }

    #[test]
    fn a_latency_during_a_stall_does_not_count() {
        let stall = talea_exec::Stall { cpu: 0, from: at(31), to: at(34) };
        let tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
        let log = JobLog::default();
        let filter = StallFilter::of(&tree, &[0], (&[stall], &[]), &log, TOLERANCE);
        let found = check(4, None, filter);
        assert!(found.excluded > 0 && found.outputs + found.excluded == 10, "{found:?}");
    }
}
