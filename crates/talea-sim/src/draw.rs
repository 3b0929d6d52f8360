//! A workload drawn in advance: what a world would ask for, as lists, for a driver that must not
//! draw while it runs.

use crate::stream::Stream;
use talea_core::workload::{Case, Source, Workload};
use talea_core::{Time, Work};

/// The jobs of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// When each is seen, and its nominal time.
    pub arrivals: Vec<(Time, Time)>,
    /// By version, as a source has them: what each costs that begins, in order.
    pub costs: Vec<Vec<Work>>,
}

/// The jobs of each task that are seen before `until`, the same as in a [`World`](crate::World) of
/// this workload; and what so many jobs cost at least, `jobs` of the task's number: graphs and
/// tables make jobs that nobody sees arrive.
pub fn draw(workload: &Workload, until: Time, jobs: impl Fn(usize) -> usize) -> Vec<Drawn> {
    let of_task = |(task, source): (u64, &Source)| {
        let mut stream = Stream::new(source, workload.seed, task);
        let mut drawn = Drawn::default();
        while let Some(arrival) = stream.arrival().filter(|&(seen, _)| seen < until) {
            drawn.arrivals.push(arrival);
        }
        let count = drawn.arrivals.len().max(jobs(task as usize));
        for version in 0..source.cost.by_version().len() as u32 {
            // Each job rolls once, whatever its version: every version has a stream of its own from
            // the start.
            let mut stream = Stream::new(source, workload.seed, task);
            drawn.costs.push((0..count).map(|_| stream.cost(version, Case::Drawn)).collect());
        }
        drawn
    };
    (0..).zip(&workload.sources).map(of_task).collect()
}
