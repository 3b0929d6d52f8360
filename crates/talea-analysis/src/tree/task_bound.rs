//! Results of the tree analysis: a bound for each task, or the reason why there is none.

use crate::test_info::{Platform, TestInfo, TestKind};
use talea_core::Span;
use talea_core::engine::NodeId;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "tree",
    policy: "any described tree",
    platform: Platform::Supply,
    model: "sporadic, any D, jitter; servers, partitions, EDF bands, non-preemptive nodes, overheads, resources",
    kind: TestKind::Sufficient,
    paper: "Shin and Lee, RTSS 2003; Davis and Burns, RTSS 2005; González Harbour and Palencia, RTSS 2003; Thiele, Chakraborty and Naedele, ISCAS 2000",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/tests/it/tree/simulated.rs::no_simulated_response_exceeds_its_bound",
        "crates/talea-analysis/tests/it/tree/published.rs::l_o4_the_bounds_of_figure_6",
    ],
};

/// Response-time bound of one task.
#[derive(Clone, Debug)]
pub struct TaskBound {
    /// Task that the bound is for.
    pub node: NodeId,
    /// Relative deadline D.
    pub deadline: Span,
    /// Longest time from the arrival of a job to its completion, or the reason why there is no
    /// bound. The bounds of [`crate::verdict::Verdict::Proved`] count from the release, which may
    /// be later than the arrival by the jitter.
    pub bound: Result<Span, NoBound>,
    /// Exact if the worst case is known to occur, otherwise sufficient.
    pub kind: TestKind,
    /// Test that produced the bound.
    pub test: &'static TestInfo,
}

impl TaskBound {
    /// Whether the task has a deadline to meet. A job with endless cost neither meets nor misses a
    /// deadline.
    pub fn has_deadline(&self) -> bool {
        !matches!(&self.bound, Err(no) if no.reason == Reason::Endless && no.node == self.node)
    }

    /// Whether every job is proved to complete by its deadline.
    pub fn is_proved(&self) -> bool {
        self.bound.as_ref().is_ok_and(|bound| *bound <= self.deadline)
    }

    /// Whether a job can miss its deadline. A run in which no job is refused attains an exact
    /// bound.
    pub fn is_refuted(&self) -> bool {
        self.kind == TestKind::Exact
            && self.bound.as_ref().is_ok_and(|bound| *bound > self.deadline)
    }
}

/// Absence of a bound, with the node that causes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoBound {
    /// First node on the path from the root that stops the analysis.
    pub node: NodeId,
    /// Reason at that node.
    pub reason: Reason,
}

/// Reason why a task has no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The long-run demand up to the level of this node exceeds the supply: lateness grows without
    /// bound.
    Overload,
    /// The server is not proved to receive its budget within its period, so its supply cannot be
    /// relied on.
    Starved,
    /// No test known: a graph activates the task, and the root is not flat, or the activation may
    /// not complete before the next one.
    Graph,
    /// No test known: jobs suspend themselves below a server that is not deferrable and directly
    /// below fixed keys, below partitions that lend, without preemption, or beside resources,
    /// graphs, curves, sections, overheads or stalls.
    Suspension,
    /// No test known: jobs wait for accelerators, in a root that is not flat or without
    /// inheritance.
    Accelerators,
    /// No test known: resources are nested, have no protocol, or are used by other tasks than the
    /// children of an `fp` or `edf` root.
    Resources,
    /// No test known: the task has preemption points or floating sections, in a root that is not
    /// flat, or with resources, overheads or stalls.
    Sections,
    /// No test known: the task has an arrival curve, in a root that is not flat, or with resources,
    /// overheads or stalls, or under EDF beside jitter.
    ArrivalCurve,
    /// No test known: arrivals are unknown or have no minimum separation.
    Arrivals,
    /// A job of the task never completes.
    Endless,
    /// No test known: an off-line table with overheads, with entries of schedulers, or with jobs
    /// from two activation sources.
    OfflineTable,
    /// No test known: a custom server.
    CustomServer,
    /// No test known: a soft CBS under EDF that can delay its clients (D < T, or an offset).
    SoftCbs,
    /// No test known: jobs continue beyond the slots of a table, because the table or a scheduler
    /// above it is non-preemptive.
    NonPreemptiveTable,
    /// No test known: a table inside a table.
    NestedTable,
    /// No test known: interference from the partitions of a lending table.
    Lending,
    /// No test known: a server below a non-preemptive scheduler.
    ServerNotPreemptive,
    /// No test known: the CPUs stall.
    CpuStalls,
    /// No test known: overheads together with servers, tables, round robin, policies from outside,
    /// several CPUs, priority inheritance, or with enforced arrivals of a list.
    Overheads,
    /// No test known: schedulers below the root, overlapping affinities, non-preemptive jobs or
    /// this policy on several CPUs.
    SeveralCpus,
    /// No test known: D > T or jitter on several CPUs, and no test accepts the tasks with deadlines
    /// shortened to D ≤ T without jitter.
    JitterOrLateDeadlines,
    /// The test for several CPUs does not accept these tasks; another test may accept them.
    Insufficient,
    /// No test known: the response bounds depend on each other.
    Circular,
    /// The analysis reached its step limit, or a number is out of range.
    Limit,
}

impl Reason {
    /// Whether the reason is the structure of the description. Then no change of numbers gives a
    /// bound.
    pub fn is_structural(self) -> bool {
        !matches!(
            self,
            Reason::Overload
                | Reason::Starved
                | Reason::JitterOrLateDeadlines
                | Reason::Insufficient
                | Reason::Limit
                | Reason::Endless
        )
    }

    /// Returns the message for users.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Overload => {
                "overload: the demand at this priority and above exceeds the supply"
            }
            Reason::Starved => "the server is not guaranteed its budget within its period",
            Reason::Graph => {
                "no test known for a graph in a root that is not flat, or that may not complete before its next arrival"
            }
            Reason::Suspension => {
                "no test known for jobs that suspend themselves elsewhere than on one CPU below preemptive schedulers by fixed keys or EDF, partitions without lending and deferrable servers, without resources, graphs, sections, overheads and stalls"
            }
            Reason::Accelerators => {
                "no test gives a bound for these jobs that wait for accelerators"
            }
            Reason::Resources => "no test known for this use of shared resources",
            Reason::Sections => {
                "no test known for preemption points or floating sections elsewhere than in a flat root by fixed keys or EDF, without resources, overheads and stalls"
            }
            Reason::ArrivalCurve => {
                "no test known for an arrival curve elsewhere than in a flat root by fixed keys or EDF, without resources, overheads and stalls, or under EDF beside jitter"
            }
            Reason::Arrivals => "no test known: its jobs have no minimum separation",
            Reason::Endless => "its jobs never complete",
            Reason::OfflineTable => {
                "no test known for an off-line table with overheads, entries of schedulers, or jobs from two activation sources"
            }
            Reason::CustomServer => "no test known for a custom server",
            Reason::SoftCbs => "no test known for a soft CBS under EDF with D < T or an offset",
            Reason::NonPreemptiveTable => {
                "no test known for a table whose slots can be overrun (it, or a scheduler above, is non-preemptive)"
            }
            Reason::NestedTable => "no test known for a table inside a table",
            Reason::Lending => "no test known for interference from lent slots",
            Reason::ServerNotPreemptive => {
                "no test known for a server below a non-preemptive scheduler"
            }
            Reason::Overheads => {
                "no test known for overheads with servers, tables, round robin, policies from outside, inheritance, several CPUs or enforced arrivals of a list"
            }
            Reason::CpuStalls => "no test known for CPUs with stalls",
            Reason::Circular => "no test known: its bound depends on itself",
            Reason::SeveralCpus => "no test known for this on several CPUs",
            Reason::JitterOrLateDeadlines => {
                "the tests for several CPUs require D <= T without jitter; none accepts the tasks with shortened deadlines"
            }
            Reason::Insufficient => "the test does not accept this task set",
            Reason::Limit => "the analysis reached its step limit",
        }
    }

    /// Returns the change of the description or the run that would give an answer, for users.
    pub fn settled_by(self) -> &'static str {
        match self {
            Reason::Overload => "a longer `duration`: lateness grows until a job is late",
            Reason::Starved => "a larger budget: `--synthesize server` searches for one",
            Reason::Graph => {
                "a root of its own for the graph, or a `period` instead of the channels"
            }
            Reason::Suspension => {
                "preemptive schedulers, `server = \"deferrable\"` for servers, which are directly below `fp`, `rm` or `dm`, and `lending = false` for partitions"
            }
            Reason::Resources => {
                "`protocol = \"ceiling\"`, with the tasks directly below a root with fixed keys or `edf`"
            }
            Reason::Sections | Reason::ArrivalCurve => {
                "a root with `fp`, `rm`, `dm` or `edf` directly above the tasks"
            }
            Reason::Arrivals => {
                "a `period`, `enforce = true`, or a server with a hard budget above the task"
            }
            Reason::CustomServer => "a server of Talea",
            Reason::SoftCbs => "`server = \"cbs\"`, or a deadline that equals the period",
            Reason::NonPreemptiveTable | Reason::ServerNotPreemptive => {
                "`preemptive = true` for the schedulers above"
            }
            Reason::NestedTable => "one table with the slots of both",
            Reason::Lending => "`lending = false`",
            Reason::CpuStalls => "the file without [[stall]]",
            Reason::Overheads => "the file without [overheads], with costs that include them",
            Reason::SeveralCpus => {
                "an `affinity` of one CPU for each task, or a preemptive root with `edf` or fixed keys and free migration"
            }
            Reason::JitterOrLateDeadlines => "deadlines up to the period, without jitter",
            Reason::Insufficient => {
                "smaller costs, shorter suspensions, or on several CPUs an `affinity` of one CPU for each task"
            }
            Reason::Limit => "fewer tasks, or periods with smaller common multiples",
            Reason::Accelerators => {
                "smaller costs, or `inheritance = true` in a root with `fp`, `rm`, `dm`, `edf` or `fifo` directly above all tasks"
            }
            Reason::Endless => {
                "a `cost` and a `period`, or preemptive schedulers with a hard budget above the endless jobs"
            }
            Reason::OfflineTable => {
                "the table as the root, entries of tasks, one activation source for each task, and no [overheads]"
            }
            Reason::Circular => "a root of its own for the table with partitions",
        }
    }
}
