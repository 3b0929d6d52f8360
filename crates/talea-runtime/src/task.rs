//! Declarations of tasks and versions.

use crate::device_wait::DeviceWait;
use crate::server::ServerId;
use std::time::Duration;
use talea_core::engine::{self, Affinity, TaskSpec};
use talea_core::mutate;
use talea_core::workload::{self, Cost};
use talea_core::{Span, Time, Work};
use talea_exec::Arrivals;

/// Task of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(crate) u32);

impl TaskId {
    /// Returns the task with this [`number`](TaskId::number). The task need not exist.
    pub fn from_number(number: u32) -> TaskId {
        TaskId(number)
    }

    /// Returns the number of the task in the order of declaration, from 0.
    pub fn number(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn from_index(number: usize) -> TaskId {
        TaskId(number as u32)
    }

    pub(crate) fn to_engine(self) -> engine::TaskId {
        engine::TaskId(self.0)
    }
}

/// Version of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionId {
    pub(crate) task: TaskId,
    pub(crate) number: usize,
}

/// Task (YASMIN Table 1, `TData`): the releases of its jobs, and their urgency.
#[derive(Clone, Debug)]
pub struct Task {
    pub(crate) spec: TaskSpec,
    /// Offset and period. `None` for a task that is activated.
    periodic: Option<(Span, Span)>,
    /// Expected distance of activations, for models of the application.
    expected: Option<Span>,
    /// CPU of the task, with partitioned mapping.
    pub(crate) core: u32,
    /// CPUs of the task, one bit each, with clustered mapping.
    pub(crate) cores: Affinity,
    /// Server of the task.
    pub(crate) server: Option<ServerId>,
}

/// Converts a duration. Durations of more than 584 years become the maximum.
fn span(duration: Duration) -> Span {
    Span::from_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Task {
    /// Creates a task with a job every `period` from the start on. Each job is due at the next
    /// release.
    pub fn periodic(name: &str, period: Duration) -> Task {
        let every = Some((Span::ZERO, span(period)));
        Task { periodic: every, ..Task::of(TaskSpec::new(name, span(period))) }
    }

    /// Creates a task that is activated, with releases at least `separation` apart. The engine
    /// releases an early activation late (docs/model.md, Y2.5-10).
    pub fn sporadic(name: &str, separation: Duration) -> Task {
        let mut spec = TaskSpec::new(name, span(separation));
        spec.enforced = true;
        Task { expected: Some(spec.period), ..Task::of(spec) }
    }

    /// Creates a task that is activated at any time, with jobs due after `deadline`.
    pub fn activated(name: &str, deadline: Duration) -> Task {
        Task::of(TaskSpec::activated(name, span(deadline)))
    }

    /// Creates a node of a graph. The jobs of the node are released when all inputs are available,
    /// and are due when the graph is due.
    pub fn node(name: &str) -> Task {
        Task::of(TaskSpec::node(name))
    }

    fn of(spec: TaskSpec) -> Task {
        Task { spec, periodic: None, expected: None, core: 0, cores: Affinity::ANY, server: None }
    }

    /// Sets the expected distance of activations.
    ///
    /// Under [`Priorities::RateMonotonic`](crate::Priorities::RateMonotonic) this distance orders
    /// the task. Models of the application ([`Application::describe`]) have jobs at this distance.
    /// The runtime does not enforce the distance. The default for a sporadic task is its
    /// separation.
    ///
    /// [`Application::describe`]: crate::Application::describe
    #[must_use]
    pub fn expected(mut self, every: Duration) -> Task {
        if self.periodic.is_none() && !self.spec.inherits {
            self.expected = Some(span(every));
            if !self.spec.enforced {
                self.spec.period = span(every);
            }
        }
        self
    }

    /// Sets the relative deadline, which may be shorter or longer than the period.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Task {
        self.spec.deadline = span(deadline);
        self
    }

    /// Sets the offset of the first job of a periodic task; no effect on other tasks.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Task {
        if let Some((first, _)) = &mut self.periodic {
            *first = span(offset);
        }
        self
    }

    /// Sets the priority for [`Priorities::User`](crate::Priorities::User). A larger priority
    /// precedes a smaller one.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Task {
        self.spec.priority = priority;
        self
    }

    /// Sets the CPU of the task, from 0, for [`Mapping::Partitioned`](crate::Mapping::Partitioned).
    #[must_use]
    pub fn core(mut self, core: u32) -> Task {
        self.core = core;
        self
    }

    /// Sets the CPUs of the task, from 0, for [`Mapping::Clustered`](crate::Mapping::Clustered).
    /// The default is all CPUs of the application. Sets of different tasks may overlap.
    #[must_use]
    pub fn cores(mut self, cores: impl IntoIterator<Item = u32>) -> Task {
        let bits = cores.into_iter().map(|core| 1_u64.checked_shl(core).unwrap_or(0));
        self.cores = Affinity(bits.fold(0, |all, bit| all | bit));
        self
    }

    /// Makes the jobs of the task share the budget of `server` with the other tasks of the server.
    #[must_use]
    pub fn served_by(mut self, server: ServerId) -> Task {
        self.server = Some(server);
        self
    }

    /// Sets the capacity of the backlog behind the running job. The engine refuses and counts
    /// further jobs.
    #[must_use]
    pub fn backlog(mut self, jobs: u32) -> Task {
        self.spec.backlog.capacity = jobs;
        self
    }

    /// Whether the jobs of the task are released periodically.
    pub(crate) fn is_periodic(&self) -> bool {
        self.periodic.is_some()
    }

    /// Returns the minimum distance of the task's releases; `None` if there is no minimum.
    pub(crate) fn separation(&self) -> Option<Span> {
        match self.periodic {
            Some((_, period)) => Some(period),
            None => self.spec.enforced.then_some(self.spec.period),
        }
    }

    /// Returns the arrivals in a model of the task. Jobs of a sporadic task arrive as often as they
    /// may.
    pub(crate) fn workload_arrivals(&self) -> workload::Arrivals {
        match (self.periodic, self.expected) {
            (Some((offset, period)), _) => {
                let offset_in_model = mutate!("runtime-describe-offset", offset, Span::ZERO);
                workload::Arrivals::Periodic { offset: offset_in_model, period, jitter: Span::ZERO }
            }
            // An expected distance beyond the separation is modelled by random arrivals.
            (None, Some(every)) if every > self.spec.period => workload::Arrivals::Sporadic {
                offset: Span::ZERO,
                separation: self.spec.period,
                extra_separation: every.checked_sub(self.spec.period).unwrap_or(Span::ZERO),
            },
            (None, Some(_)) => {
                let period = self.spec.period;
                workload::Arrivals::Periodic { offset: Span::ZERO, period, jitter: Span::ZERO }
            }
            (None, None) => workload::Arrivals::List(Vec::new()),
        }
    }

    pub(crate) fn arrivals(&self) -> Arrivals {
        self.periodic.map_or(Arrivals::OnDemand, |(first, period)| Arrivals::Periodic {
            first: Time::ZERO + first,
            period,
        })
    }
}

/// Version of a task (YASMIN section 3.2), with the values that [`Selection`](crate::Selection)
/// uses.
#[derive(Clone, Debug)]
pub struct Version {
    pub(crate) spec: engine::Version,
    /// Cost of a job, if the version declares it.
    pub(crate) cost: Option<Cost>,
    /// Total length of the waits of a job for devices, and use of the CPU meanwhile.
    pub(crate) wait: Option<(Span, DeviceWait)>,
}

impl Version {
    /// Creates a version without requirements.
    pub fn new(name: &str) -> Version {
        Version { spec: engine::Version::new(name), cost: None, wait: None }
    }

    /// Sets the maximum cost of a job, alone on its CPU and including its accelerators, without its
    /// declared [waits](Version::waits). This is the WCET of analysis and simulation
    /// ([`Application::describe`](crate::Application::describe)). The runtime does not enforce the
    /// cost.
    #[must_use]
    pub fn cost(mut self, most: Duration) -> Version {
        self.cost = Some(Cost::Constant(Work::from_ns(span(most).as_ns())));
        self
    }

    /// Sets minimum and maximum cost of a job. A simulated job has a cost between the two.
    #[must_use]
    pub fn costs(mut self, least: Duration, most: Duration) -> Version {
        let (min, max) = (Work::from_ns(span(least).as_ns()), Work::from_ns(span(most).as_ns()));
        self.cost = Some(Cost::Uniform { min, max });
        self
    }

    /// Declares the waits of a job for devices: their maximum total length, and the use of the CPU
    /// meanwhile. [`wait_for_device`](crate::wait_for_device) waits in this way. The cost of the
    /// version does not include the waits.
    ///
    /// The runtime does not enforce the length. In models of the application
    /// ([`Application::describe`](crate::Application::describe)) each job waits once, at its start.
    /// A length of zero declares only the use of the CPU. The analysis counts
    /// [`DeviceWait::Spin`] as cost, and has no bound for [`DeviceWait::Hold`].
    #[must_use]
    pub fn waits(mut self, most: Duration, cpu: DeviceWait) -> Version {
        self.wait = Some((span(most), cpu));
        self
    }

    /// Sets the energy of a job, in the unit of the battery.
    #[must_use]
    pub fn energy(mut self, energy: u64) -> Version {
        self.spec.energy = energy;
        self
    }

    /// Sets the time of a job for [`Selection::TradeOff`](crate::Selection::TradeOff). The default
    /// is the maximum cost of a job.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Version {
        self.spec.time = Work::from_ns(span(time).as_ns());
        self
    }

    /// Sets the modes of the version: bit k stands for mode k.
    #[must_use]
    pub fn modes(mut self, modes: u64) -> Version {
        self.spec.modes = modes;
        self
    }

    /// Sets the required permissions, one bit each.
    #[must_use]
    pub fn needs(mut self, needs: u64) -> Version {
        self.spec.needs = needs;
        self
    }
}

impl Version {
    /// Returns the version in the form of the engine.
    pub(crate) fn to_spec(&self) -> engine::Version {
        let mut spec = self.spec.clone();
        if let Some(cost) = self.cost.as_ref().filter(|_| spec.time.is_zero()) {
            spec.time = cost.max();
        }
        spec
    }

    /// Returns the cost of a job in a model: with the declared wait, at the start of the job.
    pub(crate) fn cost_with_wait(&self) -> Option<Cost> {
        let cost = self.cost.clone()?;
        Some(match self.wait.filter(|(most, _)| !most.is_zero()) {
            None => cost,
            Some((most, DeviceWait::Free)) => cost.suspending(Work::ZERO, most),
            Some((most, cpu)) => cost.occupying(Work::ZERO, most, cpu == DeviceWait::Spin),
        })
    }

    /// Returns the maximum CPU time of a job, with that of polling.
    pub(crate) fn max_work(&self) -> Option<Work> {
        Some(self.cost_with_wait()?.max_with_polling())
    }
}

impl From<&str> for Version {
    fn from(name: &str) -> Version {
        Version::new(name)
    }
}
