//! What is declared of a task and of a version.

use crate::server::ServerId;
use std::time::Duration;
use talea_core::machine::{self, Affinity, TaskSpec};
use talea_core::workload::{self, Cost};
use talea_core::{Span, Time, Work};
use talea_exec::Arrivals;

/// A task (YASMIN Table 1, `TData`): when its jobs come, and how urgent they are.
#[derive(Clone, Debug)]
pub struct Task {
    pub(crate) spec: TaskSpec,
    /// Nothing for one that a graph activates, or somebody.
    every: Option<(Span, Span)>,
    /// How often somebody activates it, as far as a model of it goes.
    expected: Option<Span>,
    /// Which CPU of the application, where tasks are partitioned.
    pub(crate) core: u32,
    /// Which of them, a bit each, where there are clusters.
    pub(crate) cores: Affinity,
    /// The server that it shares.
    pub(crate) server: Option<ServerId>,
}

/// Beyond 584 years a duration is as long as can be.
fn span(duration: Duration) -> Span {
    Span::from_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Task {
    /// A job every `period` from the start on, each due when the next one comes.
    pub fn periodic(name: &str, period: Duration) -> Task {
        let every = Some((Span::ZERO, span(period)));
        Task { every, ..Task::of(TaskSpec::new(name, span(period))) }
    }

    /// Jobs come when somebody activates it, and never nearer to each other than `separation`: one
    /// that comes early is released late (docs/model.md, Y2.5-10).
    pub fn sporadic(name: &str, separation: Duration) -> Task {
        let mut spec = TaskSpec::new(name, span(separation));
        spec.enforced = true;
        Task { expected: Some(spec.period), ..Task::of(spec) }
    }

    /// Jobs come when somebody activates it, whenever that is, each due after `deadline`.
    pub fn activated(name: &str, deadline: Duration) -> Task {
        Task::of(TaskSpec::activated(name, span(deadline)))
    }

    /// A node of a graph: its jobs come when all that it needs is there, and are due when the graph
    /// is.
    pub fn node(name: &str) -> Task {
        Task::of(TaskSpec::node(name))
    }

    fn of(spec: TaskSpec) -> Task {
        Task { spec, every: None, expected: None, core: 0, cores: Affinity::ANY, server: None }
    }

    /// Of a task that somebody activates: about so often. It then stands under
    /// [`Priorities::RateMonotonic`](crate::Priorities::RateMonotonic) where its like stand, and is
    /// simulated and analysed with jobs that come so far apart ([`Application::describe`]); nobody
    /// keeps anybody to it. Of a sporadic task its separation is expected unless this is said.
    ///
    /// [`Application::describe`]: crate::Application::describe
    #[must_use]
    pub fn expected(mut self, every: Duration) -> Task {
        if self.every.is_none() && !self.spec.inherits {
            self.expected = Some(span(every));
            if !self.spec.enforced {
                self.spec.period = span(every);
            }
        }
        self
    }

    /// Due so long after the release, shorter or longer than the period.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Task {
        self.spec.deadline = span(deadline);
        self
    }

    /// The first job comes so long after the start; of a periodic task.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Task {
        if let Some((first, _)) = &mut self.every {
            *first = span(offset);
        }
        self
    }

    /// For [`Priorities::User`](crate::Priorities::User): larger goes first.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Task {
        self.spec.priority = priority;
        self
    }

    /// For [`Mapping::Partitioned`](crate::Mapping::Partitioned): which of the application's CPUs,
    /// from 0.
    #[must_use]
    pub fn core(mut self, core: u32) -> Task {
        self.core = core;
        self
    }

    /// For [`Mapping::Clustered`](crate::Mapping::Clustered): which of the application's CPUs, from
    /// 0; otherwise all. Sets of different tasks may meet.
    #[must_use]
    pub fn cores(mut self, cores: impl IntoIterator<Item = u32>) -> Task {
        let bits = cores.into_iter().map(|core| 1_u64.checked_shl(core).unwrap_or(0));
        self.cores = Affinity(bits.fold(0, |all, bit| all | bit));
        self
    }

    /// Its jobs have the budget of this server, with all others that say so, and nothing else.
    #[must_use]
    pub fn served_by(mut self, server: ServerId) -> Task {
        self.server = Some(server);
        self
    }

    /// So many jobs may wait behind the one under way; more are refused, and counted.
    #[must_use]
    pub fn backlog(mut self, jobs: u32) -> Task {
        self.spec.backlog.capacity = jobs;
        self
    }

    /// Whether its jobs come by themselves.
    pub(crate) fn is_periodic(&self) -> bool {
        self.every.is_some()
    }

    /// Its jobs are never nearer to each other.
    pub(crate) fn separation(&self) -> Option<Span> {
        match self.every {
            Some((_, period)) => Some(period),
            None => self.spec.enforced.then_some(self.spec.period),
        }
    }

    /// As a model of it has them: those of a sporadic task as often as they may come.
    pub(crate) fn modelled(&self) -> workload::Arrivals {
        match (self.every, self.expected) {
            (Some((offset, period)), _) => {
                workload::Arrivals::Periodic { offset, period, jitter: Span::ZERO }
            }
            // One that keeps its distance has no more than this: what comes less often comes at
            // random.
            (None, Some(every)) if every > self.spec.period => workload::Arrivals::Sporadic {
                offset: Span::ZERO,
                separation: self.spec.period,
                slack: every.checked_sub(self.spec.period).unwrap_or(Span::ZERO),
            },
            (None, Some(_)) => {
                let period = self.spec.period;
                workload::Arrivals::Periodic { offset: Span::ZERO, period, jitter: Span::ZERO }
            }
            (None, None) => workload::Arrivals::List(Vec::new()),
        }
    }

    pub(crate) fn arrivals(&self) -> Arrivals {
        self.every.map_or(Arrivals::Asked, |(first, period)| Arrivals::Every {
            first: Time::ZERO + first,
            period,
        })
    }
}

/// What is said of a version beside what it does (YASMIN section 3.2): what
/// [`Selection`](crate::Selection) chooses by.
#[derive(Clone, Debug)]
pub struct Version {
    pub(crate) spec: machine::Version,
    /// Of a job, if it was said.
    pub(crate) cost: Option<Cost>,
}

impl Version {
    /// A version that needs nothing.
    pub fn new(name: &str) -> Version {
        Version { spec: machine::Version::new(name), cost: None }
    }

    /// What a job costs at most, from its begin to its end with nobody else there, and with what an
    /// accelerator does for it: the WCET of analysis and simulation
    /// ([`Application::describe`](crate::Application::describe)). Nobody keeps jobs to it.
    #[must_use]
    pub fn cost(mut self, most: Duration) -> Version {
        self.cost = Some(Cost::Constant(Work::from_ns(span(most).as_ns())));
        self
    }

    /// The same, where a job may cost less: simulated jobs take something between.
    #[must_use]
    pub fn costs(mut self, least: Duration, most: Duration) -> Version {
        let (min, max) = (Work::from_ns(span(least).as_ns()), Work::from_ns(span(most).as_ns()));
        self.cost = Some(Cost::Uniform { min, max });
        self
    }

    /// What a job uses up, in the unit of the battery.
    #[must_use]
    pub fn energy(mut self, energy: u64) -> Version {
        self.spec.energy = energy;
        self
    }

    /// What a job takes, for [`Selection::TradeOff`](crate::Selection::TradeOff); if this is not
    /// said, what it costs at most.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Version {
        self.spec.time = Work::from_ns(span(time).as_ns());
        self
    }

    /// The modes in which it is meant to be used, bit k for mode k.
    #[must_use]
    pub fn modes(mut self, modes: u64) -> Version {
        self.spec.modes = modes;
        self
    }

    /// The permissions that it needs, a bit each.
    #[must_use]
    pub fn needs(mut self, needs: u64) -> Version {
        self.spec.needs = needs;
        self
    }
}

impl Version {
    /// As the machine knows it.
    pub(crate) fn of_machine(&self) -> machine::Version {
        let mut spec = self.spec.clone();
        if let Some(cost) = self.cost.as_ref().filter(|_| spec.time.is_zero()) {
            spec.time = cost.most();
        }
        spec
    }
}

impl From<&str> for Version {
    fn from(name: &str) -> Version {
        Version::new(name)
    }
}
