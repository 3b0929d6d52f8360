//! One graph that has its CPUs for itself.
//!
//! R. Graham's bound ([`crate::multi::graham`]), for each node: while it has not ended, either the longest chain up to it is served, or
//! all m CPUs serve something else of the graph, so that it ends by len + (vol − len)/m after the graph has come, with its own
//! longest chain len and the work vol of all nodes. That holds under any policy that leaves no CPU idle, preemptive or not, as long
//! as one activation has ended before the next comes.
//!
//! Assumptions: 1. the root's children are the nodes of one graph, with one that comes by itself, and nothing else; no servers, no
//! affinities, accelerators, resources; 2. a CPU may take whatever is ready: jobs may move at any time, or are never
//! interrupted; 3. one token for one job; 4. no overheads, no holes.

use super::answer::{NoTest, Reason};
use super::read::any_scheduler;
use super::walk::Walk;
use crate::multi::graham::Graph;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use talea_core::machine::{Affinity, Body, Migration, NodeId, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::workload::{Act, Arrivals, Cost, Source};
use talea_core::{Span, Work};

/// A bound for every node, counted from the arrival of the graph; nothing if that is not what there is.
pub(super) fn bounds(walk: &Walk<'_>, sources: &[Source]) -> Option<BTreeMap<NodeId, Result<Span, NoTest>>> {
    let tree = walk.tree;
    if tree.channels.is_empty() || !leaves_no_cpu_idle(tree) {
        return None;
    }
    let nodes: Vec<(NodeId, &TaskSpec, &Source)> = tree
        .nodes()
        .filter_map(|(id, node)| match &node.body {
            Body::Task(spec) => Some((id, spec)),
            Body::Scheduler(_) => None,
        })
        .zip(sources)
        .map(|((id, spec), source)| (id, spec, source))
        .collect();
    let has_inputs = |id: NodeId| tree.channels.iter().any(|channel| channel.to == id);
    let first = nodes.iter().position(|&(id, ..)| !has_inputs(id))?;
    let is_node = |(at, &(id, spec, source)): (usize, &(NodeId, &TaskSpec, &Source))| {
        let comes = matches!(&source.arrivals, Arrivals::List(times) if times.is_empty());
        is_plain(spec, source) && (at == first || (has_inputs(id) && spec.inherits && comes))
    };
    if !nodes.iter().enumerate().all(is_node) || tree.channels.iter().any(|channel| channel.tokens != 1) {
        return None;
    }
    let (_, spec, source) = nodes[first];
    let (period, jitter) = match &source.arrivals {
        Arrivals::Periodic { period, jitter, .. } => (*period, jitter.as_ns()),
        Arrivals::Sporadic { separation, .. } => (*separation, 0),
        Arrivals::List(_) | Arrivals::Seen(_) => return None,
    };
    if spec.enforced {
        return None;
    }
    let costs: Vec<Work> =
        nodes.iter().map(|(_, _, source)| source.cost.most().max(Work::from_ns(1))).collect();
    let number = |id: NodeId| nodes.iter().position(|&(node, ..)| node == id);
    let edges: Option<Vec<(usize, usize)>> =
        tree.channels.iter().map(|channel| Some((number(channel.from)?, number(channel.to)?))).collect();
    let graph = Graph { costs: &costs, edges: &edges? };
    let (volume, chains) = (graph.volume().ok()?, graph.chains().ok()?);
    let bound = |chain: u64| jitter.checked_add(chain + (volume - chain) / u64::from(tree.cpus));
    let longest = bound(chains.iter().copied().max()?)?;
    let of = |(&(id, ..), &chain): (&(NodeId, &TaskSpec, &Source), &u64)| {
        let found = if longest > period.as_ns() {
            Err(NoTest { node: id, reason: Reason::Graph })
        } else {
            bound(chain).map(Span::from_ns).ok_or(NoTest { node: id, reason: Reason::Limit })
        };
        (id, found)
    };
    Some(nodes.iter().zip(&chains).map(of).collect())
}

fn leaves_no_cpu_idle(tree: &Tree) -> bool {
    let Some(Body::Scheduler(root)) = tree.get(Tree::ROOT).map(|node| &node.body) else { return false };
    let is_idle =
        matches!(root.policy, Policy::Partitions { .. } | Policy::Table { .. } | Policy::Custom { .. });
    let is_flat = any_scheduler(tree, |spec| !core::ptr::eq(spec, root)).is_none();
    let moves = tree.cpus == 1 || !root.preemptive || tree.migration == Migration::Anytime;
    !is_idle && is_flat && moves && root.reservation.is_none()
}

/// Whether its jobs need a CPU and nothing else, and move one token at most through each channel.
fn is_plain(spec: &TaskSpec, source: &Source) -> bool {
    let pushes_once = |act: &Act| match act {
        Act::Push(_, counts) => counts.iter().all(|count| *count <= 1),
        Act::Pop(..) => true,
        _ => false,
    };
    let is_one = |cost: &Cost| match cost {
        Cost::Marked { marks, .. } => {
            let mut pushed: Vec<_> = marks
                .iter()
                .filter_map(|mark| match &mark.act {
                    Act::Push(channel, _) => Some(channel.0),
                    _ => None,
                })
                .collect();
            let all = pushed.len();
            pushed.sort_unstable();
            pushed.dedup();
            pushed.len() == all && marks.iter().all(|mark| pushes_once(&mark.act))
        }
        _ => true,
    };
    spec.affinity == Affinity::ANY
        && spec.uses.is_empty()
        && spec.versions.iter().all(|version| version.accelerators.is_empty())
        && !source.is_endless()
        && source.cost.by_version().into_iter().all(is_one)
}
