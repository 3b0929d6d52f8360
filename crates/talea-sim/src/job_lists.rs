//! Jobs for a driver: generated in advance as lists, or one by one during a run.

use crate::job_source::JobSource;
use talea_core::workload::{CostMode, Source, Workload};
use talea_core::{Time, Work};

/// Jobs of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobList {
    /// Time of observation and nominal time of each arrival.
    pub arrivals: Vec<(Time, Time)>,
    /// `costs[v]`: cost of each started job in version `v`, in order.
    pub costs: Vec<Vec<Work>>,
}

/// Generator of the jobs of one task.
#[derive(Clone, Debug)]
pub struct JobStream {
    source: JobSource,
    until: Time,
}

impl JobStream {
    /// Returns the time of observation and the nominal time of the next arrival; `None` if it is
    /// not observed before the end.
    pub fn next_arrival(&mut self) -> Option<(Time, Time)> {
        self.source.arrival().filter(|&(seen, _)| seen < self.until)
    }

    /// Returns the cost of the next started job, in `version`.
    pub fn next_cost(&mut self, version: u32) -> Work {
        self.source.cost(version, CostMode::Sampled)
    }
}

/// Returns a generator for each task. Its jobs are those of [`generate_jobs`].
pub fn stream_jobs(workload: &Workload, until: Time) -> Vec<JobStream> {
    let of_task = |(task, source): (u64, &Source)| JobStream {
        source: JobSource::new(source, workload.seed, task),
        until,
    };
    (0..).zip(&workload.sources).map(of_task).collect()
}

/// Generates the jobs of each task that are observed before `until`, as in a
/// [`Simulation`](crate::Simulation) of this workload.
///
/// `jobs` returns the minimum number of costs of a task, because graphs and tables release jobs
/// without an arrival.
pub fn generate_jobs(
    workload: &Workload,
    until: Time,
    jobs: impl Fn(usize) -> usize,
) -> Vec<JobList> {
    let of_task = |(task, source): (u64, &Source)| {
        let mut generator = JobSource::new(source, workload.seed, task);
        let mut list = JobList::default();
        while let Some(arrival) = generator.arrival().filter(|&(seen, _)| seen < until) {
            list.arrivals.push(arrival);
        }
        let count = list.arrivals.len().max(jobs(task as usize));
        for version in 0..source.cost.by_version().len() as u32 {
            // Each job consumes one random number, whatever its version. Every version therefore
            // restarts the source.
            let mut generator = JobSource::new(source, workload.seed, task);
            list.costs
                .push((0..count).map(|_| generator.cost(version, CostMode::Sampled)).collect());
        }
        list
    };
    (0..).zip(&workload.sources).map(of_task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Span;
    use talea_core::workload::{Arrivals, Cost};

    #[test]
    fn jobs_are_the_same_in_advance_and_one_by_one() {
        let (span, work) = (Span::from_ns, Work::from_ns);
        let arrivals = Arrivals::Periodic { offset: span(3), period: span(10), jitter: span(7) };
        let cost = Cost::Uniform { min: work(1), max: work(1_000) };
        let versions = Cost::Versions(vec![cost.clone(), Cost::Constant(work(5)), cost]);
        let workload = Workload { sources: vec![Source { arrivals, cost: versions }], seed: 9 };
        let until = Time::from_ns(2_000);
        let list = &generate_jobs(&workload, until, |_| 0)[0];
        let stream = &mut stream_jobs(&workload, until)[0];
        let mut versions = (0..3).cycle();
        for (job, &arrival) in list.arrivals.iter().enumerate() {
            assert_eq!(stream.next_arrival(), Some(arrival));
            let version = versions.next().expect("endless");
            assert_eq!(stream.next_cost(version), list.costs[version as usize][job]);
        }
        assert!(list.arrivals.len() > 190 && stream.next_arrival().is_none());
    }
}
