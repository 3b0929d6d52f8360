//! The load of a system: arrivals and costs of jobs, and the environment of the CPUs.
//!
//! The module is plain data. The simulator generates jobs from it, and the executor runs it.

pub mod distances;
pub mod job_program;

use crate::engine::{ChannelId, Condition, Cpu, MAX_RUN, ResourceId};
use crate::{Span, Time, Work};
use alloc::boxed::Box;
use alloc::vec::Vec;
use distances::DistanceFunction;

/// Arrival model of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Arrivals at the nominal times `offset + k · period`, from which deadlines count. Each is
    /// observed up to `jitter` later.
    Periodic {
        /// Nominal time of the first arrival.
        offset: Span,
        /// Distance of two nominal times.
        period: Span,
        /// Largest delay of the observation after the nominal time. Observations keep the order of
        /// the nominal times, also if the delay exceeds the period.
        jitter: Span,
    },
    /// Arrivals at least `separation` apart, with random separation of up to `extra_separation` in
    /// addition.
    Sporadic {
        /// Time of the first arrival.
        offset: Span,
        /// Minimum distance between arrivals.
        separation: Span,
        /// Largest random addition to the minimum distance.
        extra_separation: Span,
    },
    /// Arrivals as dense as a distance function permits, with a random delay of each.
    Curve {
        /// Time of the first arrival.
        offset: Span,
        /// Minimum distances between arrivals.
        distances: Box<DistanceFunction>,
        /// Largest random delay of an arrival beyond the earliest conforming time.
        extra_delay: Span,
    },
    /// Arrivals at these times, sorted.
    List(Vec<Time>),
    /// Arrivals at these nominal times, sorted; deadlines count from the nominal times. The second
    /// time of a pair is the time of the observation.
    Observed(Vec<(Time, Time)>),
}

/// Cost model of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A constant cost.
    Constant(Work),
    /// A random cost in `min..=max`, from best to worst case.
    Uniform {
        /// Smallest cost.
        min: Work,
        /// Largest cost.
        max: Work,
    },
    /// The costs of this list in order, repeated from the start.
    List(Vec<Work>),
    /// A mixed-criticality pair (Vestal, RTSS 2007): the costs assumed at low and at high
    /// criticality.
    Pair {
        /// C(LO).
        low: Work,
        /// C(HI), at least `low`.
        high: Work,
        /// Thousandths of the jobs that take `high`.
        share: u32,
    },
    /// One cost model for each version of a task.
    Versions(Vec<Cost>),
    /// A cost with steps at offsets of the work.
    WithSteps {
        /// Cost of the job, neither [`Cost::WithSteps`] nor [`Cost::Versions`].
        base: Box<Cost>,
        /// Steps in the order of their offsets. Steps at one offset are in execution order.
        steps: Vec<JobStep>,
    },
}

/// Action of a job at an offset of its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStep {
    /// Offset in the job's work.
    ///
    /// A job that costs less performs the action at its end, except that it neither locks a
    /// resource nor waits for an event there.
    pub at: Work,
    /// Action to perform.
    pub action: StepAction,
}

/// Actions of a job besides computing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// Locks a resource. The job waits if another job holds it.
    Lock(ResourceId),
    /// Unlocks a resource.
    Unlock(ResourceId),
    /// Suspends itself for a span, in which the job waits for an event other than a CPU.
    Suspend(Span),
    /// Waits for a device and keeps its CPU until the device completes, a span later.
    ///
    /// The device completes also while the job is preempted.
    Occupy {
        /// Time that the device takes.
        length: Span,
        /// Whether the job polls the device, which consumes CPU time. Otherwise the CPU is idle.
        is_spinning: bool,
    },
    /// Passes a preemption point, at which siblings may preempt the job. The section that begins
    /// here is nonpreemptive and ends at the next point, or with the job.
    PreemptionPoint,
    /// Executes nonpreemptive sections at random offsets, all of them up to `longest`, and one of
    /// `last` at the end of the job. The offset of this step has no meaning.
    FloatingSections {
        /// Longest section.
        longest: Work,
        /// Section at the end of the job; zero means that the job may end outside of a section.
        last: Work,
    },
    /// Pushes tokens into a channel: job k pushes `counts[k mod n]`.
    ///
    /// A job without this step pushes one token into each data channel at its end.
    Push(ChannelId, Vec<u32>),
    /// Pops tokens from a channel: job k pops `counts[k mod n]`.
    ///
    /// A job without this step pops the tokens of its activation at its start.
    Pop(ChannelId, Vec<u32>),
}

impl Cost {
    /// Inserts a step. With `first` the step precedes all steps at the same offset.
    fn with_step(self, at: Work, first: bool, action: StepAction) -> Cost {
        let (base, mut steps) = match self {
            Cost::WithSteps { base, steps } => (base, steps),
            base => (Box::new(base), Vec::new()),
        };
        let place = steps.partition_point(|step| step.at < at || (step.at == at && !first));
        steps.insert(place, JobStep { at, action });
        Cost::WithSteps { base, steps }
    }

    /// Adds a critical section: `resource` is held from offset `from` to offset `to`.
    ///
    /// If sections begin or end at one offset, the outer section must be added first. An empty
    /// section adds nothing.
    #[must_use]
    pub fn locking(self, resource: ResourceId, from: Work, to: Work) -> Cost {
        if from >= to {
            return self;
        }
        // At one offset, sections end before others begin, and sections added later end first.
        self.with_step(from, false, StepAction::Lock(resource)).with_step(
            to,
            true,
            StepAction::Unlock(resource),
        )
    }

    /// Adds a self-suspension of `span` at the offset `at`.
    #[must_use]
    pub fn suspending(self, at: Work, span: Span) -> Cost {
        self.with_step(at, false, StepAction::Suspend(span))
    }

    /// Adds a wait for a device at the offset `at`: [`StepAction::Occupy`].
    #[must_use]
    pub fn occupying(self, at: Work, length: Span, is_spinning: bool) -> Cost {
        self.with_step(at, false, StepAction::Occupy { length, is_spinning })
    }

    /// Adds preemption points at the offsets `points`, between nonpreemptive sections.
    #[must_use]
    pub fn preemptible_at(self, points: &[Work]) -> Cost {
        points.iter().fold(self, |cost, &at| cost.with_step(at, false, StepAction::PreemptionPoint))
    }

    /// Adds nonpreemptive sections at random offsets: [`StepAction::FloatingSections`].
    #[must_use]
    pub fn with_floating_sections(self, longest: Work, last: Work) -> Cost {
        self.with_step(Work::ZERO, true, StepAction::FloatingSections { longest, last })
    }

    /// Adds a step that pushes `counts[k mod n]` tokens into `channel` at the end of job k.
    #[must_use]
    pub fn pushing(self, channel: ChannelId, counts: &[u32]) -> Cost {
        self.with_step(Work::from_ns(u64::MAX), false, StepAction::Push(channel, counts.into()))
    }

    /// Adds a step that pops `counts[k mod n]` tokens from `channel` at the start of job k.
    #[must_use]
    pub fn popping(self, channel: ChannelId, counts: &[u32]) -> Cost {
        self.with_step(Work::ZERO, false, StepAction::Pop(channel, counts.into()))
    }
}

/// Choice among the costs that a job may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CostMode {
    /// A cost by the model of [`Cost`].
    #[default]
    Sampled,
    /// The smallest cost: `min`, `low`.
    Best,
    /// The largest cost: `max`, `high`.
    Worst,
}

impl Cost {
    /// Returns the costs of each version. The last element applies to all further versions.
    pub fn by_version(&self) -> Vec<&Cost> {
        match self {
            Cost::Versions(costs) => costs.iter().collect(),
            cost => alloc::vec![cost],
        }
    }

    /// Returns the largest CPU time of a job, over all versions, with that of polling devices.
    pub fn max_with_polling(&self) -> Work {
        match self {
            Cost::Versions(costs) => {
                costs.iter().map(Cost::max_with_polling).max().unwrap_or(Work::ZERO)
            }
            Cost::WithSteps { base, steps } => steps.iter().fold(base.max(), |sum, step| {
                let polling = match step.action {
                    StepAction::Occupy { length, is_spinning: true } => length.as_ns(),
                    _ => 0,
                };
                Work::from_ns(sum.as_ns().saturating_add(polling))
            }),
            cost => cost.max(),
        }
    }

    /// Whether a job waits for a device with an idle CPU: [`StepAction::Occupy`].
    pub fn sleeps_with_cpu(&self) -> bool {
        match self {
            Cost::Versions(costs) => costs.iter().any(Cost::sleeps_with_cpu),
            Cost::WithSteps { steps, .. } => steps
                .iter()
                .any(|step| matches!(step.action, StepAction::Occupy { is_spinning: false, .. })),
            _ => false,
        }
    }

    /// Returns the largest cost of a job, over all versions.
    pub fn max(&self) -> Work {
        match self {
            Cost::Constant(work)
            | Cost::Uniform { max: work, .. }
            | Cost::Pair { high: work, .. } => *work,
            Cost::List(list) => list.iter().copied().max().unwrap_or(Work::ZERO),
            Cost::Versions(costs) => costs.iter().map(Cost::max).max().unwrap_or(Work::ZERO),
            Cost::WithSteps { base, .. } => base.max(),
        }
    }
}

/// Cost of a job that never completes: the length of the longest run.
pub const ENDLESS_COST: Work = Work::from_ns(MAX_RUN.as_ns());

/// Arrivals and costs of the jobs of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Arrival model.
    pub arrivals: Arrivals,
    /// Cost model.
    pub cost: Cost,
}

impl Source {
    /// Returns a strictly periodic source from time zero with a constant cost.
    pub fn periodic(period: Span, cost: Work) -> Source {
        let arrivals = Arrivals::Periodic { offset: Span::ZERO, period, jitter: Span::ZERO };
        Source { arrivals, cost: Cost::Constant(cost) }
    }

    /// Returns a source of one job at time zero that never completes: a permanent CPU load.
    pub fn endless() -> Source {
        Source {
            arrivals: Arrivals::List(alloc::vec![Time::ZERO]),
            cost: Cost::Constant(ENDLESS_COST),
        }
    }

    /// Whether a job of this source may never complete.
    pub fn is_endless(&self) -> bool {
        self.cost.max() >= ENDLESS_COST
    }

    /// Returns a source without arrivals: a graph, a table or a caller activates its jobs.
    pub fn activated(cost: Cost) -> Source {
        Source { arrivals: Arrivals::List(Vec::new()), cost }
    }
}

/// One source for each task of an engine, in task order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// `sources[t]`: source of task `t`.
    pub sources: Vec<Source>,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Scheduling overheads, as time spent on a CPU. Zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overheads {
    /// Overhead of each release, on the CPU where its task ran last.
    pub release: Span,
    /// Overhead of each order to run, on its CPU.
    pub decision: Span,
    /// Additional overhead for each scheduler above the task of the order.
    pub level: Span,
    /// Overhead of each switch of a CPU to another job.
    pub switch: Span,
    /// Additional overhead if the job ran on another CPU before.
    pub migration: Span,
}

/// A CPU stall: an interval `[from, to)` in which no job progresses on a CPU.
///
/// The kernel's `hwlat` and `osnoise` tracers report such intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The stalled CPU.
    pub cpu: Cpu,
    /// Start of the stall.
    pub from: Time,
    /// End of the stall.
    pub to: Time,
}

/// Environment of the CPUs of one root: external influences on the root. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Scheduling overheads.
    pub overheads: Overheads,
    /// CPU stalls.
    pub stalls: Vec<Stall>,
    /// Changes of the battery, the mode or the mask. Changes at one time are in execution order.
    pub changes: Vec<(Time, Condition)>,
}
