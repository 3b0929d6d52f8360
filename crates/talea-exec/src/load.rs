//! How many jobs come, when, and how long each is.
//!
//! Model: lists, made before the run from the same streams that a simulation draws from. Nothing is
//! drawn while threads wait for it, and a run and a simulation of one seed have the same jobs. An
//! application that runs until it is told to stop has a rule instead, or asks for each job itself
//! ([`Remote`](crate::Remote)).

use talea_core::workload::Cost;
use talea_core::{Span, Time, Work};

/// One job to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the machine is told.
    pub seen: Time,
    /// From when its deadline counts; not after `seen`.
    pub nominal: Time,
}

/// Which jobs come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// These, sorted by `seen`.
    List(Vec<Arrival>),
    /// One at `first` and one every `period` from then on, as long as the run is.
    Every {
        /// The first.
        first: Time,
        /// The distance; more than zero.
        period: Span,
    },
    /// None by themselves: only those that a graph activates, or somebody from outside.
    Asked,
}

/// What one task has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// When jobs come.
    pub arrivals: Arrivals,
    /// By version, the last for all others: of its jobs in the order in which they begin; when they
    /// are used up, from the start again. None: no work at all.
    pub costs: Vec<Vec<Work>>,
    /// What its jobs do on their way, whatever they cost: the marks of this count.
    pub marks: Cost,
    /// Its jobs say themselves what they take out of channels and put in ([`Flow`](crate::Flow));
    /// marks do not count then.
    pub tells: bool,
    /// A program and its arguments, which runs instead of the task's body. Its jobs are seen: the
    /// first comes with the run, then one each time that it wakes. Only on a root with one CPU.
    pub program: Option<Vec<String>>,
}

impl Default for Load {
    /// Nothing to do.
    fn default() -> Load {
        let marks = Cost::Constant(Work::ZERO);
        Load { arrivals: Arrivals::Asked, costs: Vec::new(), marks, tells: false, program: None }
    }
}

impl Load {
    /// As it was drawn for a simulation: when each job is seen and from when its deadline counts,
    /// costs by version, and marks.
    pub fn drawn(arrivals: &[(Time, Time)], costs: Vec<Vec<Work>>, marks: Cost) -> Load {
        let arrivals = arrivals.iter().map(|&(seen, nominal)| Arrival { seen, nominal }).collect();
        Load { arrivals: Arrivals::List(arrivals), costs, marks, ..Load::default() }
    }

    /// Of a program, with its arguments.
    pub fn of_program(words: Vec<String>) -> Load {
        let begin = Arrival { seen: Time::ZERO, nominal: Time::ZERO };
        Load { program: Some(words), ..Load::new(vec![begin], Vec::new()) }
    }

    /// Of a task with one version, whose jobs do nothing but work.
    pub fn new(arrivals: Vec<Arrival>, costs: Vec<Work>) -> Load {
        Load { arrivals: Arrivals::List(arrivals), costs: vec![costs], ..Load::default() }
    }
}

/// How far a load has come.
#[derive(Debug)]
pub(crate) struct Cursor {
    load: Load,
    come: u64,
    begun: usize,
}

impl Cursor {
    /// What its jobs do says nothing of the machine's: they tell it.
    pub(crate) fn tells(&self) -> bool {
        self.load.tells
    }

    pub(crate) fn new(load: Load) -> Cursor {
        Cursor { load, come: 0, begun: 0 }
    }

    /// The job that comes next.
    pub(crate) fn next(&self) -> Option<Arrival> {
        match &self.load.arrivals {
            Arrivals::List(list) => list.get(usize::try_from(self.come).ok()?).copied(),
            Arrivals::Every { first, period } => {
                let after = self.come.checked_mul(period.as_ns())?;
                let nominal = Time::from_ns(first.as_ns().checked_add(after)?);
                Some(Arrival { seen: nominal, nominal })
            }
            Arrivals::Asked => None,
        }
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
