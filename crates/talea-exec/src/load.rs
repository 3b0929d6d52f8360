//! How many jobs come, when, and how long each is.
//!
//! Model: lists, made before the run from the same streams that a simulation draws from. Nothing is drawn while threads
//! wait for it, and a run and a simulation of one seed have the same jobs.

use talea_core::workload::Cost;
use talea_core::{Time, Work};

/// One job to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the machine is told.
    pub seen: Time,
    /// From when its deadline counts; not after `seen`.
    pub nominal: Time,
}

/// What one task has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Sorted by `seen`.
    pub arrivals: Vec<Arrival>,
    /// By version, the last for all others: of its jobs in the order in which they begin; when they are used up, from the start
    /// again. None: no work at all.
    pub costs: Vec<Vec<Work>>,
    /// What its jobs do on their way, whatever they cost: the marks of this count.
    pub marks: Cost,
}

impl Default for Load {
    /// Nothing to do.
    fn default() -> Load {
        Load { arrivals: Vec::new(), costs: Vec::new(), marks: Cost::Constant(Work::ZERO) }
    }
}

impl Load {
    /// Of a task with one version, whose jobs do nothing but work.
    pub fn new(arrivals: Vec<Arrival>, costs: Vec<Work>) -> Load {
        Load { arrivals, costs: vec![costs], ..Load::default() }
    }
}

/// How far a load has come.
#[derive(Debug)]
pub(crate) struct Cursor {
    load: Load,
    come: usize,
    begun: usize,
}

impl Cursor {
    pub(crate) fn new(load: Load) -> Cursor {
        Cursor { load, come: 0, begun: 0 }
    }

    /// The job that comes next.
    pub(crate) fn next(&self) -> Option<Arrival> {
        self.load.arrivals.get(self.come).copied()
    }

    /// It has come.
    pub(crate) fn advance(&mut self) {
        self.come += 1;
    }

    /// What the job that begins now costs in this version.
    pub(crate) fn cost(&mut self, version: u32) -> Work {
        let at = self.begun;
        self.begun += 1;
        let costs = self.load.costs.get(version as usize).or(self.load.costs.last());
        match costs.map_or(&[][..], Vec::as_slice) {
            [] => Work::ZERO,
            costs => costs[at % costs.len()],
        }
    }
}
