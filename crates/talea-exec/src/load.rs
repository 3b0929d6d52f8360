//! Load of a task: when its jobs are released, and how long each is.
//!
//! Model: lists, generated before the run from the same random streams as a simulation. Nothing is
//! generated while threads wait, and a run and a simulation of one seed have the same jobs. An
//! application that runs until it is stopped has a rule instead, or activates each job
//! ([`RunControl`](crate::RunControl)).

use talea_core::workload::Cost;
use talea_core::{Span, Time, Work};

/// Arrival of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time at which the engine is notified.
    pub observed: Time,
    /// Time from which the deadline counts; not after `observed`.
    pub nominal: Time,
}

/// Arrivals of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// A list, sorted by `observed`.
    List(Vec<Arrival>),
    /// One at `first`, and one every `period` after it, until the run ends.
    Periodic {
        /// Time of the first arrival.
        first: Time,
        /// Period; more than zero.
        period: Span,
    },
    /// None by rule: a graph or a thread activates each job.
    OnDemand,
}

/// Load of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Arrivals.
    pub arrivals: Arrivals,
    /// Costs of the jobs in the order in which they start, by version; the last list is for all
    /// further versions. A list repeats when it is used up; an empty one means no work.
    pub costs: Vec<Vec<Work>>,
    /// Steps within jobs; only the steps of this cost count.
    pub marks: Cost,
    /// Whether jobs report the tokens that they pop and push ([`Flow`](crate::Flow)); then `marks`
    /// does not count.
    pub explicit_tokens: bool,
    /// A program and its arguments, run instead of the body. The run observes its jobs: the first
    /// is released at the start, then one at each wake-up. Only on a root with one CPU.
    pub program: Option<Vec<String>>,
}

impl Default for Load {
    /// Returns an empty load.
    fn default() -> Load {
        let marks = Cost::Constant(Work::ZERO);
        Load {
            arrivals: Arrivals::OnDemand,
            costs: Vec::new(),
            marks,
            explicit_tokens: false,
            program: None,
        }
    }
}

impl Load {
    /// Creates the load that was generated for a simulation: observed and nominal arrivals, costs
    /// by version, and steps.
    pub fn generated(arrivals: &[(Time, Time)], costs: Vec<Vec<Work>>, marks: Cost) -> Load {
        let arrivals =
            arrivals.iter().map(|&(seen, nominal)| Arrival { observed: seen, nominal }).collect();
        Load { arrivals: Arrivals::List(arrivals), costs, marks, ..Load::default() }
    }

    /// Creates the load of a program with its arguments.
    pub fn for_program(words: Vec<String>) -> Load {
        let begin = Arrival { observed: Time::ZERO, nominal: Time::ZERO };
        Load { program: Some(words), ..Load::new(vec![begin], Vec::new()) }
    }

    /// Creates the load of a task with one version whose jobs only work.
    pub fn new(arrivals: Vec<Arrival>, costs: Vec<Work>) -> Load {
        Load { arrivals: Arrivals::List(arrivals), costs: vec![costs], ..Load::default() }
    }
}

/// Position in a load.
#[derive(Debug)]
pub(crate) struct Cursor {
    load: Load,
    released: u64,
    begun: usize,
}

impl Cursor {
    /// Whether jobs report their tokens.
    pub(crate) fn has_explicit_tokens(&self) -> bool {
        self.load.explicit_tokens
    }

    pub(crate) fn new(load: Load) -> Cursor {
        Cursor { load, released: 0, begun: 0 }
    }

    /// Returns the next arrival.
    pub(crate) fn next(&self) -> Option<Arrival> {
        match &self.load.arrivals {
            Arrivals::List(list) => list.get(usize::try_from(self.released).ok()?).copied(),
            Arrivals::Periodic { first, period } => {
                let after = self.released.checked_mul(period.as_ns())?;
                let nominal = Time::from_ns(first.as_ns().checked_add(after)?);
                Some(Arrival { observed: nominal, nominal })
            }
            Arrivals::OnDemand => None,
        }
    }

    /// Advances to the next arrival.
    pub(crate) fn advance(&mut self) {
        self.released += 1;
    }

    /// Returns the cost of the job that starts now, in this version.
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
