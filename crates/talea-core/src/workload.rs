//! What is asked of a system: when jobs arrive, and what they cost; and what surrounds it. Data:
//! the simulator draws from it, the executor works it off.

pub mod script;

use crate::machine::{ChannelId, Condition, Cpu, LONGEST, ResourceId};
use crate::{Span, Time, Work};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// When the jobs of a task arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At `offset + k · period`, the nominal times, from which deadlines count; each is seen up to
    /// `jitter` later.
    Periodic {
        /// The first.
        offset: Span,
        /// Their distance.
        period: Span,
        /// The latest that one is seen after its nominal time; shorter than the period.
        jitter: Span,
    },
    /// At least `separation` apart, up to `slack` more, at random.
    Sporadic {
        /// The first.
        offset: Span,
        /// The least distance.
        separation: Span,
        /// What is added at most.
        slack: Span,
    },
    /// At these times, sorted.
    List(Vec<Time>),
    /// At these nominal times, sorted, from which deadlines count; each with when it is seen, not
    /// before.
    Seen(Vec<(Time, Time)>),
}

/// What a job costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same each time.
    Constant(Work),
    /// `min..=max` at random: best and worst case.
    Uniform {
        /// The least.
        min: Work,
        /// The most.
        max: Work,
    },
    /// One after the other, and again from the start.
    List(Vec<Work>),
    /// A mixed-criticality pair (Vestal, RTSS 2007): what is assumed at low criticality, and what
    /// at high.
    Pair {
        /// C(LO).
        low: Work,
        /// C(HI), at least `low`.
        high: Work,
        /// How many of a thousand jobs take `high`.
        share: u32,
    },
    /// By version, for a task with several.
    Versions(Vec<Cost>),
    /// A cost with things that a job does on its way.
    Marked {
        /// The cost, which is not marked itself nor by version.
        of: Box<Cost>,
        /// Sorted by their offset; at one offset in this order.
        marks: Vec<Mark>,
    },
}

/// Something that a job does after so much work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Offset in the job's work. A job that costs less does it at its end, except that it locks
    /// nothing any more and does not suspend itself.
    pub at: Work,
    /// What it does.
    pub act: Act,
}

/// What a job may do besides working.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Locks a resource, and waits if it must.
    Lock(ResourceId),
    /// Unlocks it.
    Unlock(ResourceId),
    /// Suspends itself for so long: waits for something that is not a CPU.
    Suspend(Span),
    /// Puts tokens into a channel: job k puts in `counts[k mod n]`. A job that is not marked so
    /// puts one token into each channel with data when it ends.
    Push(ChannelId, Vec<u32>),
    /// Takes tokens out, in the same way. A job that is not marked so takes out what activated it,
    /// when it begins.
    Pop(ChannelId, Vec<u32>),
}

impl Cost {
    /// `first`: before everything else at its offset.
    fn marked(self, at: Work, first: bool, act: Act) -> Cost {
        let (of, mut marks) = match self {
            Cost::Marked { of, marks } => (of, marks),
            of => (Box::new(of), Vec::new()),
        };
        let place = marks.partition_point(|mark| mark.at < at || (mark.at == at && !first));
        marks.insert(place, Mark { at, act });
        Cost::Marked { of, marks }
    }

    /// With a critical section: `resource` is held from the offset `from` to the offset `to`. Of
    /// sections that begin or end at one offset the outer one is to be added first.
    #[must_use]
    pub fn locking(self, resource: ResourceId, from: Work, to: Work) -> Cost {
        if from >= to {
            return self;
        }
        // What ends at an offset ends before anything begins there, and what was added later ends
        // first.
        self.marked(from, false, Act::Lock(resource)).marked(to, true, Act::Unlock(resource))
    }

    /// Suspending itself for `span` at the offset `at`.
    #[must_use]
    pub fn suspending(self, at: Work, span: Span) -> Cost {
        self.marked(at, false, Act::Suspend(span))
    }

    /// Putting `counts[k mod n]` tokens into `channel` at the end of job k.
    #[must_use]
    pub fn pushing(self, channel: ChannelId, counts: &[u32]) -> Cost {
        self.marked(Work::from_ns(u64::MAX), false, Act::Push(channel, counts.into()))
    }

    /// Taking `counts[k mod n]` tokens out of `channel` at the begin of job k.
    #[must_use]
    pub fn popping(self, channel: ChannelId, counts: &[u32]) -> Cost {
        self.marked(Work::ZERO, false, Act::Pop(channel, counts.into()))
    }
}

/// Which of the costs that a job may have it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// As its [`Cost`] says.
    #[default]
    Drawn,
    /// Always the least: `min`, `low`.
    Best,
    /// Always the most: `max`, `high`.
    Worst,
}

impl Cost {
    /// The costs of each version; the last for all others.
    pub fn by_version(&self) -> Vec<&Cost> {
        match self {
            Cost::Versions(costs) => costs.iter().collect(),
            cost => alloc::vec![cost],
        }
    }

    /// The most that a job may cost; of several versions the most of all.
    pub fn most(&self) -> Work {
        match self {
            Cost::Constant(work)
            | Cost::Uniform { max: work, .. }
            | Cost::Pair { high: work, .. } => *work,
            Cost::List(list) => list.iter().copied().max().unwrap_or(Work::ZERO),
            Cost::Versions(costs) => costs.iter().map(Cost::most).max().unwrap_or(Work::ZERO),
            Cost::Marked { of, .. } => of.most(),
        }
    }
}

/// What no job comes to the end of: as long as the longest run.
pub const ENDLESS: Work = Work::from_ns(LONGEST.as_ns());

/// Where the jobs of one task come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// When.
    pub arrivals: Arrivals,
    /// How much.
    pub cost: Cost,
}

impl Source {
    /// Strictly periodic from time zero, always the same cost.
    pub fn periodic(period: Span, cost: Work) -> Source {
        let arrivals = Arrivals::Periodic { offset: Span::ZERO, period, jitter: Span::ZERO };
        Source { arrivals, cost: Cost::Constant(cost) }
    }

    /// One job from time zero on that never ends: somebody who always wants the CPU.
    pub fn endless() -> Source {
        Source { arrivals: Arrivals::List(alloc::vec![Time::ZERO]), cost: Cost::Constant(ENDLESS) }
    }

    /// Whether a job of it may go on without end.
    pub fn is_endless(&self) -> bool {
        self.cost.most() >= ENDLESS
    }

    /// Never by itself: jobs that a graph, a table or somebody activates.
    pub fn activated(cost: Cost) -> Source {
        Source { arrivals: Arrivals::List(Vec::new()), cost }
    }
}

/// A source for each task of a machine, in the order of its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// By task.
    pub sources: Vec<Source>,
    /// Of all that is random.
    pub seed: u64,
}

/// What scheduling costs, in time spent on a CPU. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overheads {
    /// Each arrival, on the CPU where its task ran last.
    pub release: Span,
    /// Each order to run, on its CPU.
    pub decision: Span,
    /// More for each scheduler above the task that the order is about.
    pub level: Span,
    /// Each time that a CPU goes over to another job.
    pub switch: Span,
    /// More when the job was on another CPU before.
    pub migration: Span,
}

/// A hole: an interval `[from, to)` in which nothing progresses on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Where.
    pub cpu: Cpu,
    /// Its begin.
    pub from: Time,
    /// Its end.
    pub to: Time,
}

/// What surrounds the CPUs of one root: what is not their work, and not asked of them. Nothing by
/// default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// What scheduling costs.
    pub overheads: Overheads,
    /// When nothing progresses.
    pub holes: Vec<Hole>,
    /// When the battery, the mode or the mask change; at one time in this order.
    pub changes: Vec<(Time, Condition)>,
}
