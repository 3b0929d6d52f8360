//! What is said of each task.

use crate::card::{Card, Kind, Platform};
use talea_core::Span;
use talea_core::machine::NodeId;

/// Its catalogue entry.
pub const CARD: Card = Card {
    name: "tree",
    policy: "any tree of the machine",
    platform: Platform::Supply,
    model: "sporadic, any D, jitter; servers, partitions, bands, non-preemptive nodes, overheads, resources",
    kind: Kind::Sufficient,
    paper: "Shin and Lee, RTSS 2003; Davis and Burns, RTSS 2005; González Harbour and Palencia, RTSS 2003; Thiele, Chakraborty and Naedele, ISCAS 2000",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/tests/it/tree/simulated.rs::no_simulated_response_is_beyond_its_bound",
        "crates/talea-analysis/tests/it/tree/published.rs::l_o4_the_bounds_of_figure_6",
    ],
};

/// One task.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Which.
    pub node: NodeId,
    /// D.
    pub deadline: Span,
    /// From the arrival of a job to its end, the longest; or why there is no bound. (Those of
    /// [`crate::verdict::Verdict::Proved`] count from the release, which may be later by the
    /// jitter.)
    pub bound: Result<Span, NoTest>,
    /// What the bound is: exact where the worst case is known to happen.
    pub kind: Kind,
    /// The test that gave it.
    pub test: &'static Card,
}

impl Answer {
    /// Whether it promises anything at all: a job without end meets no deadline and misses none.
    pub fn has_deadline(&self) -> bool {
        !matches!(&self.bound, Err(no) if no.reason == Reason::Endless && no.node == self.node)
    }

    /// Whether every job is proved to end in time.
    pub fn is_proved(&self) -> bool {
        self.bound.as_ref().is_ok_and(|bound| *bound <= self.deadline)
    }

    /// Whether a job can end late: an exact bound is a response that happens in some run, as long
    /// as no job is refused.
    pub fn is_refuted(&self) -> bool {
        self.kind == Kind::Exact && self.bound.as_ref().is_ok_and(|bound| *bound > self.deadline)
    }
}

/// No bound, because of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTest {
    /// The first node on the way from the root that stops the analysis.
    pub node: NodeId,
    /// Why.
    pub reason: Reason,
}

/// Why there is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// More is asked for up to this node's level than is supplied in the long run: lateness grows
    /// without bound.
    Overload,
    /// The server does not have its budget within its period (or not proved so), so that it gives
    /// nothing one may rely on.
    Starved,
    /// No test known: a graph activates it.
    Graph,
    /// No test known: jobs suspend themselves.
    Suspension,
    /// No test known: jobs wait for accelerators.
    Accelerators,
    /// No test known: resources are used elsewhere than by children of an `fp` or `edf` root,
    /// nested, or without a protocol.
    Resources,
    /// No test known: jobs may come at the same time without end, or nobody says when they come.
    Arrivals,
    /// A job of it goes on without end.
    Endless,
    /// No test known: an off-line table with overheads, with entries of schedulers, or with jobs
    /// that come in two ways.
    OfflineTable,
    /// No test known: a server from outside.
    CustomServer,
    /// No test known: a soft CBS under EDF that may also wait (D < T, or an offset).
    SoftCbs,
    /// No test known: jobs go on beyond the slots of a table that does not preempt, or that is
    /// below a scheduler that does not.
    NonPreemptiveTable,
    /// No test known: a table inside a table.
    NestedTable,
    /// No test known: what a lending table's partitions take of others' time.
    Lending,
    /// No test known: a server below a scheduler that does not preempt.
    ServerNotPreemptive,
    /// No test known: time is taken off the CPUs.
    Holes,
    /// No test known: overheads together with servers, tables, round robin, several CPUs, priority
    /// inheritance, or with jobs of which no test is known.
    Overheads,
    /// No test known: groups, affinities that overlap, job boundaries or such a policy on several
    /// CPUs.
    ManyCpus,
    /// No test known: D > T or jitter on several CPUs, where none accepts the tasks with less time
    /// instead.
    Loose,
    /// The test for several CPUs does not accept these tasks; another may.
    Insufficient,
    /// No test known: responses that are bounded by each other.
    Circular,
    /// The analysis gave up at its limit, or a number is out of range.
    Limit,
}

impl Reason {
    /// Whether it is because of what there is, and not of how much: other numbers change nothing.
    pub fn is_of_kind(self) -> bool {
        !matches!(
            self,
            Reason::Overload
                | Reason::Starved
                | Reason::Loose
                | Reason::Insufficient
                | Reason::Limit
                | Reason::Endless
        )
    }

    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Overload => "asks, with all that is as urgent, for more than is supplied",
            Reason::Starved => "the server is not sure to have its budget within its period",
            Reason::Graph => "no test known for tasks that a graph activates",
            Reason::Suspension => "no test known for jobs that suspend themselves",
            Reason::Accelerators => "no test known for jobs that wait for accelerators",
            Reason::Resources => "no test known for resources that are shared so",
            Reason::Arrivals => "no test known: nothing keeps its jobs apart",
            Reason::Endless => "it wants the CPU without end",
            Reason::OfflineTable => {
                "no test known for an off-line table with overheads, entries of schedulers, or jobs that come in two ways"
            }
            Reason::CustomServer => "no test known for a server from outside",
            Reason::SoftCbs => "no test known for a soft CBS under EDF with D < T or an offset",
            Reason::NonPreemptiveTable => {
                "no test known for a table where jobs go on into its slots (not preemptive, it or what is above)"
            }
            Reason::NestedTable => "no test known for a table inside a table",
            Reason::Lending => "no test known for what lent slots take of others' time",
            Reason::ServerNotPreemptive => {
                "no test known for a server below a scheduler that does not preempt"
            }
            Reason::Overheads => {
                "no test known for overheads with servers, tables, round robin, inheritance or several CPUs"
            }
            Reason::Holes => "no test known for CPUs with holes",
            Reason::Circular => "no test known: it is bounded by what it bounds itself",
            Reason::ManyCpus => "no test known for this on several CPUs",
            Reason::Loose => {
                "the tests for several CPUs are for D <= T without jitter, and none accepts these with less time"
            }
            Reason::Insufficient => "the test does not accept these tasks together",
            Reason::Limit => "the analysis gave up at its limit",
        }
    }
}
