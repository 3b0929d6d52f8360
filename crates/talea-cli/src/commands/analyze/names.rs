//! Whom an option means.

use talea_core::machine::{Body, NodeId, Tree};
use talea_system::suggest::nearest;
use talea_system::system::{Root, System};

/// The name of a node.
pub(super) fn name_of(tree: &Tree, node: NodeId) -> &str {
    match tree.get(node).map(|node| &node.body) {
        Some(Body::Scheduler(spec)) => &spec.name,
        Some(Body::Task(spec)) => &spec.name,
        None => "?",
    }
}

/// The node of that name, of those that `is` holds of; else a sentence about what there is. `kind`
/// is what is looked for.
pub(super) fn find<'s>(
    system: &'s System,
    name: &str,
    kind: &str,
    is: impl Fn(&Body) -> bool,
) -> Result<(&'s Root, NodeId), String> {
    let mut known = Vec::new();
    for root in &system.roots {
        for (node, described) in root.tree.nodes().filter(|(_, node)| is(&node.body)) {
            let own = match &described.body {
                Body::Scheduler(spec) => &spec.name,
                Body::Task(spec) => &spec.name,
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

/// Everything below `node`, itself included.
pub(super) fn below(tree: &Tree, node: NodeId) -> Vec<NodeId> {
    let is_below = |&at: &NodeId| at == node || tree.above(at).any(|(above, _)| above == node);
    tree.nodes().map(|(at, _)| at).filter(is_below).collect()
}

/// The tasks among these.
pub(super) fn tasks(tree: &Tree, nodes: &[NodeId]) -> Vec<NodeId> {
    let is_task =
        |node: &NodeId| tree.get(*node).is_some_and(|node| matches!(node.body, Body::Task(_)));
    nodes.iter().copied().filter(is_task).collect()
}
