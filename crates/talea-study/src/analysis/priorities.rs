//! `--synthesize priorities`: the system file with priorities for the children of `fp` schedulers.

use super::model::model_of;
use super::names::name_of;
use crate::exit::Exit;
use crate::output::{note, print, print_json};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use talea_analysis::tree::{PriorityAssignment, assign_priorities};
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_system::{Root, System};

#[derive(Serialize)]
struct PrioritiesReport {
    file: String,
    what_if: Vec<String>,
    found: bool,
    roots: Vec<RootPriorities>,
}

#[derive(Serialize)]
struct RootPriorities {
    name: String,
    /// Priorities of tasks and schedulers, in the order of the file.
    priorities: Vec<PriorityOf>,
    why_not: Option<String>,
}

#[derive(Serialize)]
struct PriorityOf {
    name: String,
    priority: u8,
    /// Priority in the file.
    before: u8,
}

/// Writes `system` with priorities that serve every task, or says which tasks none serves.
pub(super) fn priorities(
    file: &Path,
    what_if: Vec<String>,
    json: bool,
    system: &System,
) -> anyhow::Result<Exit> {
    let mut changed = system.clone();
    let mut roots = Vec::new();
    for root in &mut changed.roots {
        roots.push(assign(root));
    }
    let found = roots.iter().all(|root| root.why_not.is_none());
    if json {
        print_json(&PrioritiesReport { file: file.display().to_string(), what_if, found, roots })?;
    } else {
        for root in &roots {
            if let Some(why) = &root.why_not {
                note(&format!("{}: no priorities: {why}", root.name));
            }
        }
        if found {
            let mut text = String::new();
            // Writing to a String can't fail.
            for change in &what_if {
                let _ = writeln!(text, "# what if {change}");
            }
            for changed in roots.iter().flat_map(|root| &root.priorities) {
                if changed.priority != changed.before {
                    let PriorityOf { name, priority, before } = changed;
                    let _ = writeln!(text, "# priority of {name}: {priority}, was {before}");
                }
            }
            text.push_str(&talea_system::write(&changed)?);
            print(&text)?;
        }
    }
    Ok(if found { Exit::Ok } else { Exit::Failure })
}

/// Gives the nodes of `root` their priorities. A root without `fp` schedulers stays as it is.
fn assign(root: &mut Root) -> RootPriorities {
    let model = model_of(root);
    let name = root.name.clone();
    let tree = &root.tree;
    let names = |nodes: &[NodeId]| -> String {
        nodes.iter().map(|&node| name_of(tree, node)).collect::<Vec<_>>().join(", ")
    };
    let why_not = match assign_priorities(&model) {
        PriorityAssignment::Found(found) => {
            let of = |tree: &Tree, node| match tree.get(node).map(|node| &node.spec) {
                Some(NodeSpec::Task(spec)) => Some(spec.priority),
                Some(NodeSpec::Scheduler(spec)) => spec.overrides.priority,
                None => None,
            };
            let priorities = found
                .nodes()
                .filter_map(|(node, _)| {
                    Some(PriorityOf {
                        name: name_of(tree, node).to_owned(),
                        priority: of(&found, node)?,
                        before: of(tree, node)?,
                    })
                })
                .collect();
            root.tree = found;
            return RootPriorities { name, priorities, why_not: None };
        }
        PriorityAssignment::Stuck { nodes, hopeless, refuted } => {
            let hint = if refuted { "" } else { "; another test may prove an order" };
            match (hopeless.as_slice(), refuted) {
                ([], true) => format!(
                    "no order serves all of {}: each can miss its deadline below the others",
                    names(&nodes)
                ),
                ([], false) => format!(
                    "no order of {} is proved: none of them is proved below the others{hint}",
                    names(&nodes)
                ),
                (alone, true) => format!(
                    "no order serves {}, which can miss the deadline even at the highest priority",
                    names(alone)
                ),
                (alone, false) => format!(
                    "no order is proved for {}, even at the highest priority{hint}",
                    names(alone)
                ),
            }
        }
        PriorityAssignment::NotFound => {
            "none of the orders tried is proved, which proves nothing about other orders".to_owned()
        }
        PriorityAssignment::NoPriorities if model.are_proved() => {
            return RootPriorities { name, priorities: Vec::new(), why_not: None };
        }
        PriorityAssignment::NoPriorities => {
            "no scheduler has `policy = \"fp\"`, and not every deadline is proved".to_owned()
        }
        PriorityAssignment::Uncovered(node) => format!(
            "{}: the search covers `fp` schedulers with at most 255 children, each with a priority of its own",
            names(&[node])
        ),
    };
    RootPriorities { name, priorities: Vec::new(), why_not: Some(why_not) }
}
