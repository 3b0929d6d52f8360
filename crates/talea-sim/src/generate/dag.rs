//! Shapes of task graphs.
//!
//! Erdős–Rényi: Cordeiro et al., *Random graph generation for scheduling simulations*, SIMUTools
//! 2010, section 3.1. Every pair of nodes has an edge with the same probability. The edge leads
//! from the node with the smaller number.
//!
//! Layer by layer: Tobita and Kasahara, *A standard task graph set for fair evaluation of
//! multiprocessor scheduling algorithms*, Journal of Scheduling 5, 2002, in the form of Cordeiro et
//! al., section 3.2. Nodes are assigned to random layers. Edges lead from any layer to a later one,
//! with the same probability for every pair.
//!
//! Guaranteed: graphs are acyclic, because edges lead from smaller to larger numbers. Not
//! guaranteed: that a graph is connected, or that its longest path fits its deadline. A node
//! without edges is a graph of its own with the same period.

use crate::rng::Rng;

/// Distribution of the edges of a graph. Probabilities are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Edges between any two nodes.
    ErdosRenyi {
        /// Probability of an edge.
        probability: u32,
    },
    /// Edges between nodes of different layers.
    Layered {
        /// Number of layers, at least 1. Some may be empty.
        layers: u32,
        /// Probability of an edge.
        probability: u32,
    },
}

/// Generates the edges among `nodes` nodes, from smaller to larger numbers, sorted.
pub fn edges(nodes: usize, shape: Shape, rng: &mut Rng) -> Vec<(usize, usize)> {
    let (probability, layer_of) = match shape {
        Shape::ErdosRenyi { probability } => (probability, (0..nodes as u64).collect::<Vec<_>>()),
        Shape::Layered { layers, probability } => {
            let mut layer_of: Vec<u64> = (0..nodes).map(|_| rng.below(u64::from(layers))).collect();
            // Nodes are numbered by layer, so edges lead upwards.
            layer_of.sort_unstable();
            (probability, layer_of)
        }
    };
    let mut edges = Vec::new();
    for to in 0..nodes {
        for from in 0..to {
            if layer_of[from] < layer_of[to] && rng.below(1_000) < u64::from(probability) {
                edges.push((from, to));
            }
        }
    }
    edges.sort_unstable();
    edges
}

/// Returns the largest sum of `costs` along a path.
pub fn longest_path(costs: &[u64], edges: &[(usize, usize)]) -> u64 {
    let mut ends: Vec<u64> = vec![0; costs.len()];
    for node in 0..costs.len() {
        let before = edges.iter().filter(|(_, to)| *to == node).map(|&(from, _)| ends[from]).max();
        ends[node] = before.unwrap_or(0) + costs[node];
    }
    ends.into_iter().max().unwrap_or(0)
}
