//! Nodes by name, for options.

use talea_config::suggest::nearest;
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_system::{Root, System};

/// Returns the name of a node.
pub fn name_of(tree: &Tree, node: NodeId) -> &str {
    match tree.get(node).map(|node| &node.spec) {
        Some(NodeSpec::Scheduler(spec)) => &spec.name,
        Some(NodeSpec::Task(spec)) => &spec.name,
        None => "?",
    }
}

/// Finds the node of this name for which `is` holds. The error is a sentence with the available
/// names. `kind` describes the nodes in the sentence.
pub(super) fn find_node<'s>(
    system: &'s System,
    name: &str,
    kind: &str,
    is: impl Fn(&NodeSpec) -> bool,
) -> Result<(&'s Root, NodeId), String> {
    let mut known = Vec::new();
    for root in &system.roots {
        for (node, described) in root.tree.nodes().filter(|(_, node)| is(&node.spec)) {
            let own = match &described.spec {
                NodeSpec::Scheduler(spec) => &spec.name,
                NodeSpec::Task(spec) => &spec.name,
            };
            if own == name {
                return Ok((root, node));
            }
            known.push(own.as_str());
        }
    }
    let hint = match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None if known.is_empty() => format!("there is no {kind} at all"),
        None if known.len() > 12 => {
            format!("there are {} and {} more", known[..8].join(", "), known.len() - 8)
        }
        None => format!("there are {}", known.join(", ")),
    };
    Err(format!("there is no {kind} {name:?}; {hint}"))
}

/// Returns `node` and all nodes below it.
pub(super) fn subtree(tree: &Tree, node: NodeId) -> Vec<NodeId> {
    let is_below = |&at: &NodeId| at == node || tree.ancestors(at).any(|(above, _)| above == node);
    tree.nodes().map(|(at, _)| at).filter(is_below).collect()
}

/// Returns the tasks among `nodes`.
pub(super) fn tasks_among(tree: &Tree, nodes: &[NodeId]) -> Vec<NodeId> {
    let is_task =
        |node: &NodeId| tree.get(*node).is_some_and(|node| matches!(node.spec, NodeSpec::Task(_)));
    nodes.iter().copied().filter(is_task).collect()
}
