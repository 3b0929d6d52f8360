//! Jobs generated in advance, for a driver that must not generate them during a run.

use crate::job_source::JobSource;
use talea_core::workload::{CostMode, Source, Workload};
use talea_core::{Time, Work};

/// The jobs of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobList {
    /// Time of observation and nominal time of each arrival.
    pub arrivals: Vec<(Time, Time)>,
    /// `costs[v]`: cost of each started job in version `v`, in order.
    pub costs: Vec<Vec<Work>>,
}

/// Generates the jobs of each task that are observed before `until`, as in a
/// [`Simulation`](crate::Simulation) of this workload.
///
/// `jobs` returns the minimum number of costs of a task: graphs and tables release jobs without an
/// arrival.
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
