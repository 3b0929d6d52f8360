//! Affinities for the tasks of a flat root: federated scheduling.
//!
//! J. Li, J. Chen, K. Agrawal, C. Lu, C. Gill and A. Saifullah, ECRTS 2014
//! ([`crate::multi::graham`]): a graph with vol > D gets ⌈(vol − len)/(D − len)⌉ CPUs of its own.
//! Every other graph gets one of the remaining CPUs. The densest graph comes first, and gets the
//! first CPU on which the bounds of [`super`] prove it beside the graphs that are there. The paper
//! takes a sequential task in place of such a graph, and the test for one CPU of its choice. So
//! accelerators, jitter and the policy of the root count as in `talea analyze`. A task without
//! channels is a graph with one node.
//!
//! Assumptions:
//! 1. The children of the root are tasks, ordered by any policy but a table. The root has no server
//!    and at most 64 CPUs.
//!
//! The root with the affinities that are found is analysed as a whole again: accelerators that
//! graphs on different CPUs share, or jobs that migrate at job boundaries only, may then prevent a
//! proof. The affinities of the description stay if they are proved.
//!
//! Sufficient, as any packing: other affinities may be proved where none are found. Cost: for n
//! graphs on m CPUs at most n·m analyses of one CPU.

use super::model::Model;
use super::root_model::RootModel;
use crate::multi::graham::Graph;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use talea_core::Work;
use talea_core::engine::{Affinity, NodeId, NodeSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;

/// Result of a search for affinities.
#[derive(Clone, Debug)]
pub enum AffinityAssignment {
    /// Tree with affinities with which every deadline is proved.
    Found(Tree),
    /// These tasks of a graph have no CPUs on which they are proved beside the others.
    Stuck(Vec<NodeId>),
    /// Each graph has CPUs on which it is proved alone, but the root is not proved as a whole.
    NotFound,
    /// The node is a scheduler, or a root that the search does not cover (assumption 1).
    Uncovered(NodeId),
}

/// Graph of a flat root.
struct Component {
    nodes: Vec<NodeId>,
    volume: u64,
    length: u64,
    deadline: u64,
}

/// Searches for affinities with which every deadline of `root` is proved.
pub fn assign_affinities(root: &RootModel<'_>) -> AffinityAssignment {
    let tree = root.tree;
    let is_scheduler = |node: &NodeSpec| matches!(node, NodeSpec::Scheduler(_));
    if let Some((node, _)) = tree.nodes().skip(1).find(|(_, node)| is_scheduler(&node.spec)) {
        return AffinityAssignment::Uncovered(node);
    }
    let is_covered = match tree.get(Tree::ROOT).map(|node| &node.spec) {
        Some(NodeSpec::Scheduler(spec)) => {
            let is_table =
                matches!(spec.policy, PolicySpec::Table { .. } | PolicySpec::Partitions { .. });
            !is_table && spec.reservation.is_none()
        }
        _ => false,
    };
    if !is_covered || tree.cpus > u64::BITS {
        return AffinityAssignment::Uncovered(Tree::ROOT);
    }
    if root.are_proved() {
        return AffinityAssignment::Found(tree.clone());
    }
    let mut found = tree.clone();
    let (mut light, mut free) = (Vec::new(), 0);
    for graph in components(root) {
        let Component { volume, length, deadline, .. } = graph;
        if volume <= deadline {
            light.push(graph);
            continue;
        }
        // A path as long as the deadline leaves no time for other nodes, on any number of CPUs.
        let spare = deadline.checked_sub(length).filter(|&spare| spare > 0);
        let count = spare.map(|spare| (volume - length).div_ceil(spare));
        let left = u64::from(tree.cpus - free);
        let Some(count) = count.filter(|&count| count <= left) else {
            return AffinityAssignment::Stuck(graph.nodes);
        };
        // At most the number of CPUs.
        let count = count as u32;
        set(&mut found, &graph.nodes, Affinity(cpus(count) << free));
        free += count;
    }
    light.sort_by_key(|graph| {
        Reverse((u128::from(graph.volume) << 32) / u128::from(graph.deadline))
    });
    let mut members: Vec<Vec<NodeId>> = Vec::new();
    members.resize((tree.cpus - free) as usize, Vec::new());
    for graph in light {
        let fits = |there: &Vec<NodeId>| proves(root, &[there.as_slice(), &graph.nodes].concat());
        let Some(cpu) = members.iter().position(fits) else {
            return AffinityAssignment::Stuck(graph.nodes);
        };
        set(&mut found, &graph.nodes, Affinity::only(free + cpu as u32));
        members[cpu].extend(graph.nodes);
    }
    let is_proved = RootModel { tree: &found, ..*root }.are_proved();
    if mutate!("tree-federated-verified", is_proved, true) {
        AffinityAssignment::Found(found)
    } else {
        AffinityAssignment::NotFound
    }
}

/// Returns the first `count` CPUs.
fn cpus(count: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - count).unwrap_or(0)
}

fn set(tree: &mut Tree, nodes: &[NodeId], affinity: Affinity) {
    for &node in nodes {
        if let Some(NodeSpec::Task(spec)) = tree.get_mut(node).map(|node| &mut node.spec) {
            spec.affinity = affinity;
        }
    }
}

/// Returns the graphs of a flat root, in the order of their first tasks.
fn components(root: &RootModel<'_>) -> Vec<Component> {
    let model = Model::read(root);
    let nodes = model.tasks();
    let numbers: BTreeMap<NodeId, usize> = nodes.iter().copied().zip(0..).collect();
    let mut first: Vec<usize> = (0..nodes.len()).collect();
    for channel in &root.tree.channels {
        let (one, other) = (first[numbers[&channel.from]], first[numbers[&channel.to]]);
        for graph in &mut first {
            *graph = if *graph == one.max(other) { one.min(other) } else { *graph };
        }
    }
    let costs: Vec<Work> =
        root.sources.iter().map(|source| source.cost.max().max(Work::from_ns(1))).collect();
    let graph_of = |graph: usize| {
        let at: Vec<usize> = (0..nodes.len()).filter(|&one| first[one] == graph).collect();
        let place = |node: NodeId| at.iter().position(|&one| nodes[one] == node);
        let edges = root.tree.channels.iter();
        let edges: Vec<(usize, usize)> =
            edges.filter_map(|channel| place(channel.from).zip(place(channel.to))).collect();
        let costs: Vec<Work> = at.iter().map(|&one| costs[one]).collect();
        let shape = Graph { costs: &costs, edges: &edges };
        let deadlines = at.iter().map(|&one| model.deadline(nodes[one]).as_ns());
        Component {
            volume: shape.volume().unwrap_or(u64::MAX),
            length: shape.length().unwrap_or(u64::MAX),
            deadline: deadlines.min().unwrap_or(0).max(1),
            nodes: at.iter().map(|&one| nodes[one]).collect(),
        }
    };
    let mut graphs = first.clone();
    graphs.sort_unstable();
    graphs.dedup();
    graphs.into_iter().map(graph_of).collect()
}

/// Whether `members` meet their deadlines on one CPU without the other tasks.
fn proves(root: &RootModel<'_>, members: &[NodeId]) -> bool {
    let mut tree = root.tree.clone();
    tree.cpus = 1;
    set(&mut tree, members, Affinity::ANY);
    let tasks = root.tree.nodes().map(|(id, _)| id).filter(|&id| id != Tree::ROOT);
    let mut sources = Vec::new();
    for (node, source) in tasks.zip(root.sources) {
        if members.contains(&node) {
            sources.push(source.clone());
        } else {
            tree.remove(node);
        }
    }
    RootModel { tree: &tree, sources: &sources, ..*root }.are_proved()
}
