//! One graph that has its CPUs for itself.
//!
//! R. Graham's bound ([`crate::multi::graham`]), for each node: while it has not ended, either the
//! longest chain up to it is served, or all m CPUs serve something else of the graph, so that it
//! ends by len + (vol − len)/m after the graph has come, with its own longest chain len and the
//! work vol of all nodes. That holds under any policy that leaves no CPU idle, preemptive or not,
//! as long as one activation has ended before the next comes. Who waits for several roots begins
//! with the latest and counts from the earliest: where some bring a token less often than others,
//! either may be the one that it waits for.
//!
//! Assumptions: 1. the root's children are the nodes of one graph, with one that comes by itself,
//! or several that are periodic, and nothing else; no servers, no affinities, accelerators,
//! resources; 2. a CPU may take whatever is ready: jobs may move at any time, or are never
//! interrupted; 3. a job moves one token at most through each channel, and an activation takes one
//! or more;
//! 4. no overheads, no holes.

use super::answer::{NoTest, Reason};
use super::read::any_scheduler;
use super::walk::Walk;
use crate::multi::graham::Graph;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use talea_core::machine::{Affinity, Body, Migration, NodeId, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::Policy;
use talea_core::workload::{Act, Arrivals, Cost, Source};
use talea_core::{Span, Work};

/// A bound for every node, counted from the arrival of the graph; nothing if that is not what there
/// is.
pub(super) fn bounds(
    walk: &Walk<'_>,
    sources: &[Source],
) -> Option<BTreeMap<NodeId, Result<Span, NoTest>>> {
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
    let ends: BTreeSet<NodeId> = tree.channels.iter().map(|channel| channel.to).collect();
    let comes =
        |source: &Source| matches!(&source.arrivals, Arrivals::List(times) if times.is_empty());
    let mut roots: Vec<Root> = Vec::new();
    let mut starts: Vec<Option<Root>> = Vec::new();
    for &(id, spec, source) in &nodes {
        let root = if ends.contains(&id) { None } else { Some(Root::of(spec, source)?) };
        let is_node = root.is_some() || comes(source);
        if !is_node || !is_plain(spec, source) {
            return None;
        }
        roots.extend(root);
        starts.push(root);
    }
    let period = roots.first()?.period;
    // Several keep step if they are periodic, and all are of one graph.
    if roots.len() > 1 && roots.iter().any(|root| root.drifts || root.period != period) {
        return None;
    }
    let costs: Vec<Work> =
        nodes.iter().map(|(_, _, source)| source.cost.most().max(Work::from_ns(1))).collect();
    let numbers: BTreeMap<NodeId, usize> = nodes.iter().map(|&(id, ..)| id).zip(0..).collect();
    let edges: Vec<(usize, usize)> = tree
        .channels
        .iter()
        .map(|channel| (numbers[&channel.from], numbers[&channel.to]))
        .collect();
    if roots.len() > 1 && !is_one(nodes.len(), &edges) {
        return None;
    }
    // Whoever waits for several begins with the latest.
    spread(&edges, |from, to| {
        let both = [starts[from], starts[to]].into_iter().flatten().reduce(Root::later);
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
    let last = roots.iter().map(|root| root.seen).max()?.checked_add(longest)?;
    let of = |((id, chain), start): ((NodeId, u64), &Option<Root>)| {
        let late = start.map_or(0, |start| start.seen - start.nominal);
        let found = if last - first > period {
            Err(NoTest { node: id, reason: Reason::Graph })
        } else {
            let bound = late.checked_add(bound(chain));
            bound.map(Span::from_ns).ok_or(NoTest { node: id, reason: Reason::Limit })
        };
        (id, found)
    };
    Some(nodes.iter().map(|&(id, ..)| id).zip(chains).zip(&starts).map(of).collect())
}

/// One that comes by itself; of several, when the first is due and the last is seen.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Root {
    period: u64,
    nominal: u64,
    /// At the latest.
    seen: u64,
    /// Its distance from others changes.
    drifts: bool,
}

impl Root {
    fn of(spec: &TaskSpec, source: &Source) -> Option<Root> {
        let (period, offset, jitter, drifts) = match &source.arrivals {
            Arrivals::Periodic { offset, period, jitter } => (period, offset, *jitter, false),
            Arrivals::Sporadic { offset, separation, .. } => (separation, offset, Span::ZERO, true),
            Arrivals::List(_) | Arrivals::Seen(_) => return None,
        };
        let (period, nominal) = (period.as_ns(), offset.as_ns());
        let seen = nominal.checked_add(jitter.as_ns())?;
        (!spec.enforced && !spec.inherits).then_some(Root { period, nominal, seen, drifts })
    }

    fn later(self, other: Root) -> Root {
        Root { nominal: self.nominal.min(other.nominal), seen: self.seen.max(other.seen), ..self }
    }
}

/// Along every edge, until nothing is new any more.
fn spread(edges: &[(usize, usize)], mut along: impl FnMut(usize, usize) -> bool) {
    let mut is_new = true;
    while is_new {
        is_new = edges.iter().fold(false, |is_new, &(from, to)| along(from, to) || is_new);
    }
}

/// Whether edges join all of so many nodes.
fn is_one(nodes: usize, edges: &[(usize, usize)]) -> bool {
    let mut joined = alloc::vec![false; nodes];
    joined[0] = true;
    spread(edges, |from, to| {
        let is_new = joined[from] != joined[to];
        (joined[from], joined[to]) = (joined[from] || joined[to], joined[from] || joined[to]);
        is_new
    });
    joined.iter().all(|joined| *joined)
}

fn leaves_no_cpu_idle(tree: &Tree) -> bool {
    let Some(Body::Scheduler(root)) = tree.get(Tree::ROOT).map(|node| &node.body) else {
        return false;
    };
    let is_idle = matches!(
        root.policy,
        Policy::Partitions { .. } | Policy::Table { .. } | Policy::Custom { .. }
    );
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
