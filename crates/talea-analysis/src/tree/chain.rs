//! Bounds of the reaction time and the data age of chains ([`talea_core::chain`]).
//!
//! Let job k of each task read its input at its start s and write its output at its completion f,
//! and let the output of job J depend on J_1, ..., J_n = J. Let a_i be the arrival of J_i, T_i the
//! longest separation of arrivals of task i, and R_i its longest response from the arrival. Let
//! J_i' be the job after J_i. J_{i+1} reads J_i and not J_i', so s_{i+1} < f_i'. As f_i' ≤ a_i +
//! T_i + R_i,
//!
//! a_{i+1} ≤ s_{i+1} < a_i + T_i + c_i, with c_i = R_i.
//!
//! 1. *Data age*: f_n − s_1 ≤ Σ_{i<n} (T_i + c_i) + R_n, because s_1 ≥ a_1.
//! 2. *Reaction time*: the first output with a later sample is that of the job after J_n at the
//!    latest. So the reaction time exceeds the bound of the data age by T_n at most (M. Günzel et
//!    al., ECRTS 2023: both are the age of the data at the end of their use).
//!
//! With c_i = R_i the second bound is that of A. Davare et al., DAC 2007. M. Dürr et al., CASES
//! 2019, exclude starts of task i + 1 while task i is pending: on one CPU, directly below a root
//! with fixed keys, and with the more urgent key for task i. Then s_{i+1} is before the release of
//! J_i', and c_i is the jitter of task i. Below a root by deadlines, a start while J_i' is pending
//! needs a_{i+1} + D_{i+1} ≤ a_i' + D_i. Then c_i is the larger of the jitter and D_i − D_{i+1},
//! unless R_i is smaller.
//!
//! *Logical execution time* (T. Henzinger, B. Horowitz and C. Kirsch, Proc. IEEE 91(1), 2003): the
//! jobs of such a task i read at their release, and write at their deadline: f_i = a_i + D_i. Both
//! sums hold with D_i for R_i, if the jobs meet their deadlines. A release of task i + 1 may come
//! while task i is pending, so that c_i is then D_i, or R_i if only task i + 1 is logical.
//!
//! Along a channel, J_{i+1} has the arrival of the graph in common with J_i. The tasks of a path
//! through channels therefore count as one task with the period of the graph and the response of
//! the last one.
//!
//! Assumptions:
//! 1. The assumptions of [`super`], and a bound for each task.
//! 2. Arrivals have a longest separation: periodic tasks, sporadic ones with `separation_max`, and
//!    the graphs of such tasks whose channels move one token for each job.
//! 3. No job is refused: the backlog holds the jobs that arrive within a response.
//! 4. Tasks with logical execution time have no channels.
//!
//! O(n) for n tasks. *Known phases*: if [`super::phases`] covers the roots of the chain and all
//! costs are constant, the schedule itself gives the latencies. They are exact. From the instant
//! from which all schedules repeat, it runs for the first bound and the common hyperperiod.

use super::model::Model;
use super::phases;
use super::priority_keys::KeyOrder;
use super::root_model::RootModel;
use crate::test_info::{Platform, TestInfo, TestKind};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use talea_core::chain::{Link, ReadWrite, latencies};
use talea_core::engine::{ChannelId, NodeId, NodeSpec, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, Source, StepAction};
use talea_core::{Span, Time};

/// Entry of the general bound in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "chain",
    policy: "any described tree",
    platform: Platform::Supply,
    model: "chains of periodic and sporadic tasks; registers, channels, logical execution time",
    kind: TestKind::Sufficient,
    paper: "Davare et al., DAC 2007; Dürr et al., CASES 2019; Günzel et al., ECRTS 2023",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/tests/it/tree/chains.rs::no_simulated_latency_exceeds_its_bound",
        "crates/talea-analysis/tests/it/tree/published_chains.rs::no_bound_of_a_chain_exceeds_the_published_ones",
    ],
};

/// Entry of the exact analysis with known phases in the catalogue.
pub const KNOWN_PHASES: TestInfo = TestInfo {
    name: "chain-known-phases",
    policy: "FP, EDF, FIFO, also non-preemptive",
    platform: Platform::One,
    model: "chains of periodic tasks with known offsets and constant costs; registers, logical execution time",
    kind: TestKind::Exact,
    paper: "Günzel et al., RTAS 2021; Leung and Merrill, Information Processing Letters 11(3), 1980",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/tests/it/tree/chains.rs::known_phases_have_the_latencies_of_a_long_simulation",
        "crates/talea-analysis/tests/it/tree/published_chains.rs::no_bound_of_a_chain_exceeds_the_published_ones",
    ],
};

/// Chain of tasks of described roots.
#[derive(Clone, Copy, Debug)]
pub struct ChainModel<'a> {
    /// Roots of the tasks.
    pub roots: &'a [RootModel<'a>],
    /// Each task: index of its root, and its index in the order of the root's tasks.
    pub tasks: &'a [(usize, usize)],
    /// `links[i]`: communication from task `i` to task `i + 1`.
    pub links: &'a [Link],
    /// `logical[i]`: whether task `i` has logical execution time.
    pub logical: &'a [bool],
}

/// Bounds of the latencies of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainBound {
    /// Longest reaction time and data age, or the reason why there is no bound.
    pub bounds: Result<ChainLatencies, NoChainBound>,
    /// Exact if a run attains both.
    pub kind: TestKind,
    /// Test that produced the bounds.
    pub test: &'static TestInfo,
}

/// Longest latencies of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLatencies {
    /// Longest reaction time.
    pub reaction: Span,
    /// Largest data age.
    pub age: Span,
}

/// Absence of bounds of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoChainBound {
    /// Index of a task in the chain.
    pub task: usize,
    /// Reason at this task.
    pub reason: ChainReason,
}

/// Reason why a chain has no bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainReason {
    /// The task has no bound.
    Response,
    /// The arrivals of the task have no longest separation.
    Arrivals,
    /// Jobs of the task may be refused.
    Refusals,
    /// Jobs with logical execution time may be late, and write nothing at their deadline.
    Deadline,
    /// A number is out of range.
    Limit,
}

impl ChainReason {
    /// Returns the message for users.
    pub fn text(self) -> &'static str {
        match self {
            ChainReason::Response => "its response has no bound",
            ChainReason::Arrivals => "its arrivals have no longest separation",
            ChainReason::Refusals => "its backlog does not hold all jobs that arrive in a response",
            ChainReason::Deadline => {
                "its jobs may be late, so that no output is ready at the deadline"
            }
            ChainReason::Limit => "a number is out of range",
        }
    }

    /// Returns the change of the description that would give an answer, for users.
    pub fn settled_by(self) -> &'static str {
        match self {
            ChainReason::Response => "the change that gives this task a bound",
            ChainReason::Arrivals => {
                "a `period`, perhaps with `separation_max`, without `enforce`; in a graph, one token for each job and the same period for all roots"
            }
            ChainReason::Refusals => "a larger `backlog`, or smaller costs",
            ChainReason::Deadline => "a `deadline` up to which the response is proved",
            ChainReason::Limit => "shorter periods, or fewer tasks in the chain",
        }
    }
}

/// Tasks of a path through channels, as one task.
struct JoinedTasks {
    /// Index of the first task in the chain.
    first: usize,
    /// Index of the last task in the chain.
    last: usize,
    /// Longest separation of arrivals, in nanoseconds.
    separation: u64,
    /// Longest response of the last task from the arrival, in nanoseconds.
    response: u64,
}

impl ChainModel<'_> {
    /// Returns the bounds of the chain. `responses[r][t]` is the longest response of task `t` of
    /// root `r` from its arrival; `None` without a bound.
    ///
    /// # Panics
    /// If an index is out of range, or if there is not one link between any two tasks and one entry
    /// of `logical` for each task.
    pub fn bound(&self, responses: &[Vec<Option<Span>>]) -> ChainBound {
        assert_eq!(self.links.len() + 1, self.tasks.len(), "one link between any two tasks");
        assert_eq!(self.logical.len(), self.tasks.len(), "one entry for each task");
        let joined = match self.joined(responses) {
            Ok(joined) => joined,
            Err(no) => return ChainBound { bounds: Err(no), kind: INFO.kind, test: &INFO },
        };
        let bounds = self.sum(&joined).ok_or(NoChainBound { task: 0, reason: ChainReason::Limit });
        if let Ok(bounds) = &bounds
            && let Some(exact) = self.by_schedule(bounds.reaction)
        {
            return ChainBound { bounds: Ok(exact), kind: KNOWN_PHASES.kind, test: &KNOWN_PHASES };
        }
        ChainBound { bounds, kind: INFO.kind, test: &INFO }
    }

    /// Returns the sums of separations and responses; `None` if they overflow.
    fn sum(&self, joined: &[JoinedTasks]) -> Option<ChainLatencies> {
        let (last, before) = joined.split_last()?;
        let mut age = last.response;
        for (at, joined_task) in before.iter().enumerate() {
            let limit = self.start_limit(joined_task, &joined[at + 1]);
            age = age.checked_add(joined_task.separation)?.checked_add(limit)?;
        }
        let reaction = age.checked_add(mutate!("analysis-chain-missed", last.separation, 0))?;
        Some(ChainLatencies { reaction: Span::from_ns(reaction), age: Span::from_ns(age) })
    }

    fn joined(&self, responses: &[Vec<Option<Span>>]) -> Result<Vec<JoinedTasks>, NoChainBound> {
        let mut joined: Vec<JoinedTasks> = Vec::new();
        for (at, &(root, task)) in self.tasks.iter().enumerate() {
            let no = |reason| NoChainBound { task: at, reason };
            let model = &self.roots[root];
            let (node, spec) = nth_task(model.tree, task);
            let arrivals = Separation::of(model, node).ok_or(no(ChainReason::Arrivals))?;
            let response = responses[root][task].ok_or(no(ChainReason::Response))?.as_ns();
            let pending = response.div_ceil(arrivals.min.max(1));
            if mutate!(
                "analysis-chain-refused",
                pending > u64::from(spec.backlog.capacity) + 1,
                false
            ) {
                return Err(no(ChainReason::Refusals));
            }
            let response = if self.logical[at] {
                let deadline = spec.deadline.as_ns();
                if mutate!("analysis-chain-logical-late", response > deadline, false) {
                    return Err(no(ChainReason::Deadline));
                }
                mutate!("analysis-chain-logical", deadline, response)
            } else {
                response
            };
            match joined.last_mut() {
                Some(joined_task) if self.links[at - 1] == Link::Channel => {
                    (joined_task.last, joined_task.response) = (at, response);
                }
                _ => {
                    let separation = arrivals.max;
                    joined.push(JoinedTasks { first: at, last: at, separation, response });
                }
            }
        }
        Ok(joined)
    }

    /// Returns c_i: the longest time from the arrival of a job of `from` until a job of
    /// `to` that reads an earlier output arrives.
    fn start_limit(&self, from: &JoinedTasks, to: &JoinedTasks) -> u64 {
        let limit = || {
            let (root, task) = self.tasks[from.last];
            let (other, next) = self.tasks[to.first];
            let is_logical = self.logical[from.last] || self.logical[to.first];
            if from.first != from.last
                || root != other
                || mutate!("analysis-chain-logical-start", is_logical, false)
            {
                return None;
            }
            let model = &self.roots[root];
            pending_limit(model, nth_task(model.tree, task), nth_task(model.tree, next))
        };
        limit().map_or(from.response, |limit| limit.min(from.response))
    }

    /// Returns the latencies of the schedule with known phases. `span` bounds them.
    fn by_schedule(&self, span: Span) -> Option<ChainLatencies> {
        let roots: BTreeSet<usize> = self.tasks.iter().map(|&(root, _)| root).collect();
        if self.links.contains(&Link::Channel) {
            return None;
        }
        let models: Vec<Model<'_>> =
            roots.iter().map(|&root| Model::read(&self.roots[root])).collect();
        let schedules =
            models.iter().map(phases::RepeatingSchedule::of).collect::<Option<Vec<_>>>()?;
        let steady = schedules.iter().map(|schedule| schedule.steady).max()?;
        let hyperperiod = schedules.iter().try_fold(1u64, |all, schedule| {
            (all / phases::gcd(all, schedule.hyperperiod)).checked_mul(schedule.hyperperiod)
        })?;
        let end = steady.checked_add(span.as_ns())?.checked_add(hyperperiod)?;
        let mut recorded: Vec<Option<Vec<Vec<ReadWrite>>>> = vec![None; self.roots.len()];
        for (root, model) in roots.into_iter().zip(&models) {
            recorded[root] = Some(phases::jobs_until(model, end)?);
        }
        let jobs = |(&(root, task), &is_logical): (&(usize, usize), &bool)| {
            let jobs = recorded[root].as_ref()?.get(task)?;
            let logical = || logical_jobs(&self.roots[root], task, end);
            if is_logical { logical() } else { Some(jobs.clone()) }
        };
        let jobs = self.tasks.iter().zip(self.logical).map(jobs).collect::<Option<Vec<_>>>()?;
        let found = latencies(self.links, &jobs);
        let (reaction, age) = (found.reaction?.length, found.age?.length);
        Some(ChainLatencies { reaction, age })
    }
}

/// Returns the jobs of a task with logical execution time whose deadline is at most `end`; `None`
/// if it is not periodic.
fn logical_jobs(model: &RootModel<'_>, task: usize, end: u64) -> Option<Vec<ReadWrite>> {
    let Arrivals::Periodic { offset, period, .. } = &model.sources[task].arrivals else {
        return None;
    };
    let deadline = nth_task(model.tree, task).1.deadline.as_ns();
    let releases = (offset.as_ns()..).step_by(usize::try_from(period.as_ns()).ok()?);
    let jobs = releases.map(|read| ReadWrite {
        read: Time::from_ns(read),
        write: Time::from_ns(read.saturating_add(deadline)),
    });
    Some(jobs.take_while(|job| job.write <= Time::from_ns(end)).collect())
}

/// Returns the node and the specification of the task with this index.
fn nth_task(tree: &Tree, task: usize) -> (NodeId, &TaskSpec) {
    let tasks = tree.nodes().filter_map(|(id, node)| match &node.spec {
        NodeSpec::Task(spec) => Some((id, spec)),
        NodeSpec::Scheduler(_) => None,
    });
    tasks.into_iter().nth(task).expect("a task of the root")
}

/// Separation of the arrivals of a task, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Separation {
    min: u64,
    max: u64,
}

impl Separation {
    /// Returns the separation of the arrivals of the task at `node`, or of its graph; `None` if
    /// there is no longest one.
    fn of(model: &RootModel<'_>, node: NodeId) -> Option<Separation> {
        let channels = &model.tree.channels;
        // The node with its predecessors.
        let mut nodes = vec![node];
        let mut next = 0;
        while let Some(&at) = nodes.get(next) {
            next += 1;
            for channel in channels.iter().filter(|channel| channel.to == at) {
                if !nodes.contains(&channel.from) {
                    nodes.push(channel.from);
                }
            }
        }
        let sources = tasks(model);
        let mut found: Option<Separation> = None;
        for at in nodes {
            let &(_, spec, source) = sources.iter().find(|&&(id, ..)| id == at)?;
            if !moves_single_tokens(model.tree, at, source) {
                return None;
            }
            if channels.iter().any(|channel| channel.to == at) {
                continue;
            }
            let own = match source.arrivals {
                _ if spec.enforced => return None,
                Arrivals::Periodic { period, .. } => {
                    Separation { min: period.as_ns(), max: period.as_ns() }
                }
                Arrivals::Sporadic { separation, extra_separation, .. } => Separation {
                    min: separation.as_ns(),
                    max: mutate!(
                        "analysis-chain-separation",
                        separation.as_ns().checked_add(extra_separation.as_ns())?,
                        separation.as_ns()
                    ),
                },
                Arrivals::Curve { .. } | Arrivals::List(_) | Arrivals::Observed(_) => return None,
            };
            // Several graph roots keep step only if they are periodic.
            if found.is_some_and(|found| found != own || own.min != own.max) {
                return None;
            }
            found = Some(own);
        }
        found
    }
}

fn tasks<'a>(model: &RootModel<'a>) -> Vec<(NodeId, &'a TaskSpec, &'a Source)> {
    let specs = model.tree.nodes().filter_map(|(id, node)| match &node.spec {
        NodeSpec::Task(spec) => Some((id, spec)),
        NodeSpec::Scheduler(_) => None,
    });
    specs.zip(model.sources).map(|((id, spec), source)| (id, spec, source)).collect()
}

/// Whether each job of the task pushes and pops one token of each of its channels.
fn moves_single_tokens(tree: &Tree, node: NodeId, source: &Source) -> bool {
    let costs = source.cost.by_version();
    // Without data, each completion is a token. With data, jobs push and pop explicitly.
    (0..).map(ChannelId).zip(&tree.channels).all(|(id, channel)| {
        let is_source = channel.from == node;
        if !is_source && channel.to != node {
            return true;
        }
        let moved = |cost: &Cost| {
            let Cost::WithSteps { steps, .. } = cost else { return false };
            let counts = steps.iter().filter_map(|step| match &step.action {
                StepAction::Push(of, counts) if is_source && *of == id => Some(counts),
                StepAction::Pop(of, counts) if !is_source && *of == id => Some(counts),
                _ => None,
            });
            counts.map(Vec::as_slice).eq([&[1][..]])
        };
        channel.tokens == 1 && (channel.size == 0 || costs.iter().all(|cost| moved(cost)))
    })
}

/// Returns the longest time from the arrival of a job of `first` until a job of `second` can arrive
/// that starts before that job has completed; `None` if only the response bounds it.
fn pending_limit(
    model: &RootModel<'_>,
    (first, before): (NodeId, &TaskSpec),
    (second, after): (NodeId, &TaskSpec),
) -> Option<u64> {
    let tree = model.tree;
    let NodeSpec::Scheduler(root) = &tree.get(Tree::ROOT)?.spec else { return None };
    let is_below_root =
        |node: NodeId| tree.get(node).is_some_and(|node| node.parent == Some(Tree::ROOT));
    let &(_, _, source) = tasks(model).iter().find(|&&(id, ..)| id == first)?;
    let jitter = match source.arrivals {
        Arrivals::Periodic { jitter, .. } => jitter.as_ns(),
        Arrivals::Sporadic { .. } => 0,
        _ => return None,
    };
    // A job that suspends itself or waits for a device is pending and does not run.
    let has_waits = matches!(source.cost, Cost::WithSteps { .. } | Cost::Versions(_));
    let in_graph = tree
        .channels
        .iter()
        .any(|channel| [channel.from, channel.to].iter().any(|&end| end == first || end == second));
    if tree.cpus > 1
        || root.reservation.is_some()
        || !is_below_root(first)
        || !is_below_root(second)
        || in_graph
        || mutate!("analysis-chain-waits", has_waits, false)
        || !model.lost.is_zero()
        || !model.stalls.is_empty()
        || model.overheads != talea_core::workload::Overheads::default()
    {
        return None;
    }
    if matches!(root.policy, PolicySpec::Edf) {
        let later = before.deadline.as_ns().saturating_sub(after.deadline.as_ns());
        return Some(mutate!("analysis-chain-edf", jitter.max(later), jitter));
    }
    let order = KeyOrder::of(&root.policy)?;
    let key = |spec: &TaskSpec| match order {
        KeyOrder::Priority => u64::from(u8::MAX - spec.priority),
        KeyOrder::Period => spec.period.as_ns(),
        KeyOrder::Deadline => spec.deadline.as_ns(),
        KeyOrder::Criticality => u64::from(u8::MAX - spec.criticality),
    };
    let is_tie_won = !order.is_fifo() && key(before) == key(after) && first < second;
    let is_first = key(before) < key(after) || is_tie_won;
    mutate!("analysis-chain-urgent", is_first, !is_first).then_some(jitter)
}
