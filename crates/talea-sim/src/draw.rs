//! A workload drawn in advance: what a world would ask for, as lists, for a driver that must not draw while it runs.

use crate::stream::Stream;
use talea_core::workload::{Case, Workload};
use talea_core::{Time, Work};

/// The jobs of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// When each is seen, and its nominal time.
    pub arrivals: Vec<(Time, Time)>,
    /// What each costs in its task's first version.
    pub costs: Vec<Work>,
}

/// The jobs of each task that are seen before `until`, the same as in a [`World`](crate::World) of this workload.
pub fn draw(workload: &Workload, until: Time) -> Vec<Drawn> {
    let of_task = |(task, source)| {
        let mut stream = Stream::new(source, workload.seed, task);
        let mut drawn = Drawn::default();
        while let Some(arrival) = stream.arrival().filter(|&(seen, _)| seen < until) {
            drawn.arrivals.push(arrival);
            drawn.costs.push(stream.cost(0, Case::Drawn));
        }
        drawn
    };
    (0..).zip(&workload.sources).map(of_task).collect()
}
