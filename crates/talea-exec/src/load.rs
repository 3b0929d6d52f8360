//! Load of a task: when its jobs are released, and how long each is.
//!
//! Model: a generator that draws each job when the engine needs it, or lists that were generated
//! before the run. Both use the random streams of a simulation, so a run and a simulation of one
//! seed have the same jobs. With a generator the memory of a run is independent of its length. An
//! application that runs until it is stopped has a rule instead, or activates each job
//! ([`RunControl`](crate::RunControl)).

use std::fmt;
use std::sync::Arc;
use talea_core::workload::Cost;
use talea_core::{Span, Time, Work};
use talea_os::cgroup::Cgroup;
use talea_os::users::Account;

/// Arrival of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time at which the engine receives the arrival.
    pub observed: Time,
    /// Time from which the deadline counts; not after `observed`.
    pub nominal: Time,
}

/// Arrivals of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// A list, sorted by `observed`.
    List(Vec<Arrival>),
    /// Arrivals at `first` and at every `period` after it, until the run ends.
    Periodic {
        /// Time of the first arrival.
        first: Time,
        /// Period; more than zero.
        period: Span,
    },
    /// No arrivals by rule: a graph or a thread activates each job.
    OnDemand,
}

/// Generator of the jobs of a task. Its functions run within steps of the engine.
pub trait JobGenerator: Send + fmt::Debug {
    /// Returns the next arrival. Successive arrivals are in order of `observed`.
    fn arrival(&mut self) -> Option<Arrival>;
    /// Returns the cost of the next job to start, for version `version`.
    fn cost(&mut self, version: u32) -> Work;
}

/// Load of one task.
#[derive(Debug)]
pub struct Load {
    /// Generator of arrivals and costs, in place of `arrivals` and `costs`.
    pub generator: Option<Box<dyn JobGenerator>>,
    /// Arrivals.
    pub arrivals: Arrivals,
    /// `costs[v]`: costs of the jobs in version `v`, in the order in which the jobs start. The last
    /// list applies to all further versions. A list repeats when it is used up. An empty list means
    /// no work.
    pub costs: Vec<Vec<Work>>,
    /// Steps within jobs. The executor uses only the steps of this cost.
    pub marks: Cost,
    /// Whether jobs report the tokens that they pop and push ([`Flow`](crate::Flow)). Then `marks`
    /// has no effect.
    pub explicit_tokens: bool,
    /// Whether the body may sleep while its job keeps the CPU. No other worker may have the CPU
    /// then.
    pub sleeps_with_cpu: bool,
    /// Program with its arguments, run in place of the body. The executor observes the program's
    /// jobs: the first is released at the start, and another one at each wake-up. Only valid on a
    /// root with one CPU.
    pub program: Option<Vec<String>>,
    /// Account under which the program runs; `None` stands for the account of this process.
    pub account: Option<Account>,
    /// Cgroup that another process fills with a program, governed in place of the body: a job is
    /// released when the first process enters, and at each wake-up. A process enters an empty,
    /// frozen cgroup. Only valid on a root with one CPU.
    pub group: Option<Arc<Cgroup>>,
}

impl Default for Load {
    /// Returns a load without arrivals and costs.
    fn default() -> Load {
        let marks = Cost::Constant(Work::ZERO);
        Load {
            generator: None,
            arrivals: Arrivals::OnDemand,
            costs: Vec::new(),
            marks,
            explicit_tokens: false,
            sleeps_with_cpu: false,
            program: None,
            account: None,
            group: None,
        }
    }
}

impl Load {
    /// Creates the load that was generated for a simulation. `arrivals` are pairs of observed and
    /// nominal arrivals, `costs[v]` the costs of version `v`, and `marks` the steps within jobs.
    pub fn generated(arrivals: &[(Time, Time)], costs: Vec<Vec<Work>>, marks: Cost) -> Load {
        let arrivals =
            arrivals.iter().map(|&(seen, nominal)| Arrival { observed: seen, nominal }).collect();
        Load { arrivals: Arrivals::List(arrivals), costs, marks, ..Load::default() }
    }

    /// Creates a load whose jobs are generated during the run.
    pub fn streamed(generator: Box<dyn JobGenerator>, marks: Cost) -> Load {
        Load { generator: Some(generator), marks, ..Load::default() }
    }

    /// Creates the load of a program with its arguments.
    pub fn for_program(words: Vec<String>) -> Load {
        let begin = Arrival { observed: Time::ZERO, nominal: Time::ZERO };
        Load { program: Some(words), ..Load::new(vec![begin], Vec::new()) }
    }

    /// Creates the load of a cgroup that another process fills.
    pub fn for_group(group: Arc<Cgroup>) -> Load {
        Load { group: Some(group), ..Load::default() }
    }

    /// Whether a program plays the task, started by the run or by another process.
    pub(crate) fn is_program(&self) -> bool {
        self.program.is_some() || self.group.is_some()
    }

    /// Creates the load of a task with one version whose jobs only work.
    pub fn new(arrivals: Vec<Arrival>, costs: Vec<Work>) -> Load {
        Load { arrivals: Arrivals::List(arrivals), costs: vec![costs], ..Load::default() }
    }
}

/// Position in a load: the next arrival and the next cost.
#[derive(Debug)]
pub(crate) struct Cursor {
    load: Load,
    released: u64,
    begun: usize,
    /// Next arrival of the generator.
    generated: Option<Arrival>,
}

impl Cursor {
    /// Whether jobs report the tokens that they pop and push.
    pub(crate) fn has_explicit_tokens(&self) -> bool {
        self.load.explicit_tokens
    }

    pub(crate) fn new(load: Load) -> Cursor {
        let mut cursor = Cursor { load, released: 0, begun: 0, generated: None };
        cursor.generate();
        cursor
    }

    fn generate(&mut self) {
        self.generated = self.load.generator.as_mut().and_then(|generator| generator.arrival());
    }

    /// Returns the next arrival.
    pub(crate) fn next(&self) -> Option<Arrival> {
        if self.load.generator.is_some() {
            return self.generated;
        }
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
        self.generate();
    }

    /// Returns the cost of the job that starts now, for version `version`.
    pub(crate) fn cost(&mut self, version: u32) -> Work {
        if let Some(generator) = &mut self.load.generator {
            return generator.cost(version);
        }
        let at = self.begun;
        self.begun += 1;
        let costs = self.load.costs.get(version as usize).or(self.load.costs.last());
        match costs.map_or(&[][..], Vec::as_slice) {
            [] => Work::ZERO,
            costs => costs[at % costs.len()],
        }
    }
}
