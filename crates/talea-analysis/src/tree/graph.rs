//! Response-time bounds for a single graph with dedicated CPUs.
//!
//! The test applies R. Graham's bound ([`crate::multi::graham`]) to each node. Until the node has
//! completed, either the longest chain up to it is being served, or all m CPUs serve other nodes of
//! the graph. So the node completes by len + (vol − len)/m after the arrival of the graph, with its
//! longest chain len and the total work vol. This holds under any work-conserving policy,
//! preemptive or not, if each activation completes before the next activation.
//!
//! A node with several graph roots starts after the latest of their arrivals and counts from the
//! earliest. If some graph roots send a token less often than others, the node may wait for any of
//! them.
//!
//! Assumptions:
//! 1. The root's children are the nodes of one graph, and nothing else. The graph has one graph
//!    root, or several periodic graph roots. There are no servers, affinities, accelerators and
//!    resources.
//! 2. A CPU may execute any ready job: jobs migrate at any time, or are never preempted.
//! 3. A job moves at most one token through each channel, and an activation consumes one or more.
//! 4. No overheads and no stalls.

use super::model::Model;
use super::task_bound::{NoBound, Reason};
use super::task_model::find_scheduler;
use crate::multi::graham::Graph;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use talea_core::engine::{Affinity, Migration, NodeId, NodeSpec, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, Source, StepAction};
use talea_core::{Span, Work};

/// Returns a bound for every node, counted from the arrival of the graph; `None` if the assumptions
/// of this module do not hold.
pub(super) fn bounds(model: &Model<'_>) -> Option<BTreeMap<NodeId, Result<Span, NoBound>>> {
    let tree = model.tree;
    if tree.channels.is_empty() || !is_work_conserving(tree) {
        return None;
    }
    let nodes: Vec<(NodeId, &TaskSpec, &Source)> = tree
        .nodes()
        .filter_map(|(id, node)| match &node.spec {
            NodeSpec::Task(spec) => Some((id, spec)),
            NodeSpec::Scheduler(_) => None,
        })
        .zip(model.sources)
        .map(|((id, spec), source)| (id, spec, source))
        .collect();
    let ends: BTreeSet<NodeId> = tree.channels.iter().map(|channel| channel.to).collect();
    let comes =
        |source: &Source| matches!(&source.arrivals, Arrivals::List(times) if times.is_empty());
    let mut roots: Vec<GraphRoot> = Vec::new();
    let mut starts: Vec<Option<GraphRoot>> = Vec::new();
    for &(id, spec, source) in &nodes {
        let root = if ends.contains(&id) { None } else { Some(GraphRoot::of(spec, source)?) };
        let is_node = root.is_some() || comes(source);
        if !is_node || !is_plain_node(spec, source) {
            return None;
        }
        roots.extend(root);
        starts.push(root);
    }
    let period = roots.first()?.period;
    // Several graph roots keep step if they are periodic with one period and belong to one graph.
    if roots.len() > 1 && roots.iter().any(|root| root.drifts || root.period != period) {
        return None;
    }
    let costs: Vec<Work> =
        nodes.iter().map(|(_, _, source)| source.cost.max().max(Work::from_ns(1))).collect();
    let numbers: BTreeMap<NodeId, usize> = nodes.iter().map(|&(id, ..)| id).zip(0..).collect();
    let edges: Vec<(usize, usize)> = tree
        .channels
        .iter()
        .map(|channel| (numbers[&channel.from], numbers[&channel.to]))
        .collect();
    if roots.len() > 1 && !is_connected(nodes.len(), &edges) {
        return None;
    }
    // A node with several predecessors starts after the latest.
    propagate(&edges, |from, to| {
        let both = [starts[from], starts[to]].into_iter().flatten().reduce(GraphRoot::later);
        core::mem::replace(&mut starts[to], both) != both
    });
    let graph = Graph { costs: &costs, edges: &edges };
    let (volume, chains) = (graph.volume().ok()?, graph.chains().ok()?);
    let bound = |chain: u64| {
        chain
            + (volume - chain)
                / mutate!("analysis-graph-alone", u64::from(tree.cpus), u64::from(tree.cpus + 1))
    };
    let longest = bound(chains.iter().copied().max()?);
    let first = roots.iter().map(|root| root.nominal).min()?;
    let last = roots.iter().map(|root| root.latest_release).max()?.checked_add(longest)?;
    let of = |((id, chain), start): ((NodeId, u64), &Option<GraphRoot>)| {
        let late = start.map_or(0, |start| start.latest_release - start.nominal);
        let found = if last - first > period {
            Err(NoBound { node: id, reason: Reason::Graph })
        } else {
            let bound = late.checked_add(bound(chain));
            bound.map(Span::from_ns).ok_or(NoBound { node: id, reason: Reason::Limit })
        };
        (id, found)
    };
    Some(nodes.iter().map(|&(id, ..)| id).zip(chains).zip(&starts).map(of).collect())
}

/// Arrival of one graph root, or of several joined: earliest nominal arrival and latest release.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GraphRoot {
    period: u64,
    nominal: u64,
    /// Latest release.
    latest_release: u64,
    /// Whether the distance to other graph roots changes.
    drifts: bool,
}

impl GraphRoot {
    fn of(spec: &TaskSpec, source: &Source) -> Option<GraphRoot> {
        let (period, offset, jitter, drifts) = match &source.arrivals {
            Arrivals::Periodic { offset, period, jitter } => (period, offset, *jitter, false),
            Arrivals::Sporadic { offset, separation, .. } => (separation, offset, Span::ZERO, true),
            Arrivals::Curve { .. } | Arrivals::List(_) | Arrivals::Observed(_) => return None,
        };
        let (period, nominal) = (period.as_ns(), offset.as_ns());
        let latest_release = nominal.checked_add(jitter.as_ns())?;
        (!spec.enforced && !spec.inherits).then_some(GraphRoot {
            period,
            nominal,
            latest_release,
            drifts,
        })
    }

    fn later(self, other: GraphRoot) -> GraphRoot {
        GraphRoot {
            nominal: self.nominal.min(other.nominal),
            latest_release: self.latest_release.max(other.latest_release),
            ..self
        }
    }
}

/// Applies `along` to every edge until no application changes anything.
fn propagate(edges: &[(usize, usize)], mut along: impl FnMut(usize, usize) -> bool) {
    let mut is_new = true;
    while is_new {
        is_new = edges.iter().fold(false, |is_new, &(from, to)| along(from, to) || is_new);
    }
}

/// Whether the edges connect all nodes.
fn is_connected(nodes: usize, edges: &[(usize, usize)]) -> bool {
    let mut joined = alloc::vec![false; nodes];
    joined[0] = true;
    propagate(edges, |from, to| {
        let is_new = joined[from] != joined[to];
        (joined[from], joined[to]) = (joined[from] || joined[to], joined[from] || joined[to]);
        is_new
    });
    joined.iter().all(|joined| *joined)
}

fn is_work_conserving(tree: &Tree) -> bool {
    let Some(NodeSpec::Scheduler(root)) = tree.get(Tree::ROOT).map(|node| &node.spec) else {
        return false;
    };
    let is_idle = matches!(
        root.policy,
        PolicySpec::Partitions { .. } | PolicySpec::Table { .. } | PolicySpec::Custom { .. }
    );
    let is_flat = find_scheduler(tree, |spec| !core::ptr::eq(spec, root)).is_none();
    let moves = tree.cpus == 1 || !root.preemptive || tree.migration == Migration::Anytime;
    !is_idle && is_flat && moves && root.reservation.is_none()
}

/// Whether jobs of the node need only a CPU and move at most one token through each channel.
fn is_plain_node(spec: &TaskSpec, source: &Source) -> bool {
    let pushes_once = |action: &StepAction| match action {
        StepAction::Push(_, counts) => counts.iter().all(|count| *count <= 1),
        StepAction::Pop(..) => true,
        _ => false,
    };
    let is_one = |cost: &Cost| match cost {
        Cost::WithSteps { steps, .. } => {
            let mut pushed: Vec<_> = steps
                .iter()
                .filter_map(|step| match &step.action {
                    StepAction::Push(channel, _) => Some(channel.0),
                    _ => None,
                })
                .collect();
            let all = pushed.len();
            pushed.sort_unstable();
            pushed.dedup();
            pushed.len() == all && steps.iter().all(|step| pushes_once(&step.action))
        }
        _ => true,
    };
    spec.affinity == Affinity::ANY
        && spec.uses.is_empty()
        && spec.versions.iter().all(|version| version.accelerators.is_empty())
        && !source.is_endless()
        && source.cost.by_version().into_iter().all(is_one)
}
