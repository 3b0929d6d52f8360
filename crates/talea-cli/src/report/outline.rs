//! What stays the same while a root runs, as pictures and traces need it: rows, servers, slots.

use serde::Serialize;
use std::collections::BTreeMap;
use talea_core::machine::{Body, Machine, NodeId, TaskId, Tree};
use talea_core::sched::Policy;
use talea_core::workload::Overheads;
use talea_system::system::Root;

/// One root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    pub(crate) name: String,
    pub(crate) cpus: u32,
    pub(crate) tasks: Vec<TaskLine>,
    pub(crate) servers: Vec<ServerLine>,
    pub(crate) tables: Vec<SlotTable>,
    /// By channel: whom it activates.
    pub(crate) sinks: Vec<TaskId>,
    /// Whether what runs is sometimes held up: then a budget does not fall as fast as time passes.
    pub(crate) spoiled: bool,
}

/// One task.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TaskLine {
    pub(crate) name: String,
    #[serde(rename = "period")]
    pub(crate) period_ns: u64,
    #[serde(rename = "deadline")]
    pub(crate) deadline_ns: u64,
    /// Whose budgets it uses, as numbers in [`Outline::servers`].
    #[serde(skip)]
    pub(crate) servers: Vec<usize>,
}

/// One server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServerLine {
    #[serde(skip)]
    pub(crate) node: NodeId,
    pub(crate) name: String,
    #[serde(rename = "budget")]
    pub(crate) budget_ns: u64,
    #[serde(rename = "period")]
    pub(crate) period_ns: u64,
}

/// A table that repeats for ever: partitions, or an off-line schedule of one CPU.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SlotTable {
    pub(crate) name: String,
    /// Of a schedule that is about one CPU.
    pub(crate) cpu: Option<u32>,
    #[serde(rename = "frame")]
    pub(crate) frame_ns: u64,
    /// In order, disjoint.
    pub(crate) slots: Vec<SlotLine>,
}

/// `[start, end)` of each frame.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SlotLine {
    #[serde(rename = "start")]
    pub(crate) start_ns: u64,
    #[serde(rename = "end")]
    pub(crate) end_ns: u64,
    pub(crate) owner: String,
    /// The tasks at or below the owner.
    pub(crate) tasks: Vec<u32>,
}

impl Outline {
    /// Of a root and the machine that was built from it.
    pub(crate) fn of(root: &Root, machine: &Machine) -> Outline {
        let tree = &root.tree;
        let nodes: Vec<NodeId> =
            (0..root.tasks.len()).map(|task| machine.node_of(TaskId(task as u32))).collect();
        let mut outline = Outline {
            name: root.name.clone(),
            cpus: tree.cpus,
            spoiled: !root.surroundings.holes.is_empty()
                || root.surroundings.overheads != Overheads::default(),
            ..Outline::default()
        };
        let families = tree.families();
        for (id, node) in tree.nodes() {
            let Body::Scheduler(spec) = &node.body else { continue };
            if let Some(reservation) = &spec.reservation {
                outline.servers.push(ServerLine {
                    node: id,
                    name: spec.name.clone(),
                    budget_ns: reservation.budget.as_ns(),
                    period_ns: reservation.period.as_ns(),
                });
            }
            outline.tables.extend(tables(tree, families.of(id), &spec.name, &spec.policy, &nodes));
        }
        let numbers: BTreeMap<NodeId, u32> = nodes.iter().copied().zip(0..).collect();
        let sinks = tree.channels.iter().filter_map(|channel| numbers.get(&channel.to));
        outline.sinks = sinks.map(|&task| TaskId(task)).collect();
        for (name, &node) in root.tasks.iter().zip(&nodes) {
            let Some(Body::Task(spec)) = tree.get(node).map(|node| &node.body) else { continue };
            // They stand in the order of their nodes.
            let find =
                |id: NodeId| outline.servers.binary_search_by_key(&id, |server| server.node).ok();
            let mut servers: Vec<usize> = tree.above(node).filter_map(|(id, _)| find(id)).collect();
            servers.sort_unstable();
            outline.tasks.push(TaskLine {
                name: name.clone(),
                period_ns: spec.period.as_ns(),
                deadline_ns: spec.deadline.as_ns(),
                servers,
            });
        }
        outline
    }
}

/// The slots that a policy gives to the children of a scheduler.
fn tables(
    tree: &Tree,
    children: &[NodeId],
    name: &str,
    policy: &Policy,
    nodes: &[NodeId],
) -> Vec<SlotTable> {
    let slot = |start_ns, end_ns, owner: u32| {
        let owner = *children.get(owner as usize)?;
        let below = |&(_, &node): &(u32, &NodeId)| {
            node == owner || tree.above(node).any(|(above, _)| above == owner)
        };
        let name = match &tree.get(owner)?.body {
            Body::Scheduler(spec) => spec.name.clone(),
            Body::Task(spec) => spec.name.clone(),
        };
        let tasks = (0..).zip(nodes).filter(below).map(|(task, _)| task).collect();
        Some(SlotLine { start_ns, end_ns, owner: name, tasks })
    };
    match policy {
        Policy::Partitions { frame, slots, .. } => {
            let slots = slots
                .iter()
                .filter_map(|at| slot(at.start.as_ns(), at.end.as_ns(), at.owner))
                .collect();
            vec![SlotTable { name: name.to_owned(), cpu: None, frame_ns: frame.as_ns(), slots }]
        }
        Policy::Table { hyperperiod, entries } => {
            let of_cpu = |cpu: u32| {
                let here = entries.iter().filter(|entry| entry.cpu == cpu);
                let mut slots: Vec<SlotLine> = here
                    .filter_map(|at| slot(at.start.as_ns(), at.end.as_ns(), at.owner))
                    .collect();
                slots.sort_by_key(|slot| slot.start_ns);
                SlotTable {
                    name: name.to_owned(),
                    cpu: Some(cpu),
                    frame_ns: hyperperiod.as_ns(),
                    slots,
                }
            };
            (0..tree.cpus).map(of_cpu).filter(|table| !table.slots.is_empty()).collect()
        }
        _ => Vec::new(),
    }
}
