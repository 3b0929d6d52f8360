//! What is declared of a task and of a version.

use std::time::Duration;
use talea_core::machine::{self, TaskSpec};
use talea_core::{Span, Time, Work};
use talea_exec::Arrivals;

/// A task (YASMIN Table 1, `TData`): when its jobs come, and how urgent they are.
#[derive(Clone, Debug)]
pub struct Task {
    pub(crate) spec: TaskSpec,
    /// Nothing for one that a graph activates, or somebody.
    every: Option<(Span, Span)>,
    /// Which CPU of the application, where tasks are partitioned.
    pub(crate) core: u32,
}

/// Beyond 584 years a duration is as long as can be.
fn span(duration: Duration) -> Span {
    Span::from_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Task {
    /// A job every `period` from the start on, each due when the next one comes.
    pub fn periodic(name: &str, period: Duration) -> Task {
        let every = Some((Span::ZERO, span(period)));
        Task { spec: TaskSpec::new(name, span(period)), every, core: 0 }
    }

    /// Jobs come when somebody activates it, and never nearer to each other than `separation`: one that comes early is released
    /// late (docs/model.md, Y2.5-10).
    pub fn sporadic(name: &str, separation: Duration) -> Task {
        let mut spec = TaskSpec::new(name, span(separation));
        spec.enforced = true;
        Task { spec, every: None, core: 0 }
    }

    /// Jobs come when somebody activates it, whenever that is, each due after `deadline`.
    pub fn activated(name: &str, deadline: Duration) -> Task {
        Task { spec: TaskSpec::activated(name, span(deadline)), every: None, core: 0 }
    }

    /// A node of a graph: its jobs come when all that it needs is there, and are due when the graph is.
    pub fn node(name: &str) -> Task {
        Task { spec: TaskSpec::node(name), every: None, core: 0 }
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

    /// For [`Mapping::Partitioned`](crate::Mapping::Partitioned): which of the application's CPUs, from 0.
    #[must_use]
    pub fn core(mut self, core: u32) -> Task {
        self.core = core;
        self
    }

    /// So many jobs may wait behind the one under way; more are refused, and counted.
    #[must_use]
    pub fn backlog(mut self, jobs: u32) -> Task {
        self.spec.backlog.capacity = jobs;
        self
    }

    pub(crate) fn arrivals(&self) -> Arrivals {
        self.every
            .map_or(Arrivals::Asked, |(first, period)| Arrivals::Every { first: Time::ZERO + first, period })
    }
}

/// What is said of a version beside what it does (YASMIN section 3.2): what [`Selection`](crate::Selection) chooses by.
#[derive(Clone, Debug)]
pub struct Version(pub(crate) machine::Version);

impl Version {
    /// A version that needs nothing.
    pub fn new(name: &str) -> Version {
        Version(machine::Version::new(name))
    }

    /// What a job uses up, in the unit of the battery.
    #[must_use]
    pub fn energy(mut self, energy: u64) -> Version {
        self.0.energy = energy;
        self
    }

    /// What a job takes.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Version {
        self.0.time = Work::from_ns(span(time).as_ns());
        self
    }

    /// The modes in which it is meant to be used, bit k for mode k.
    #[must_use]
    pub fn modes(mut self, modes: u64) -> Version {
        self.0.modes = modes;
        self
    }

    /// The permissions that it needs, a bit each.
    #[must_use]
    pub fn needs(mut self, needs: u64) -> Version {
        self.0.needs = needs;
        self
    }
}

impl From<&str> for Version {
    fn from(name: &str) -> Version {
        Version::new(name)
    }
}
