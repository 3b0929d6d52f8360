//! Static data of a root for plots and traces: rows, servers, slots.

use serde::Serialize;
use std::collections::BTreeMap;
use talea_core::engine::{Engine, NodeId, NodeSpec, TaskId, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::Overheads;
use talea_system::Root;

/// Static data of one root.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// Name of the root.
    pub name: String,
    /// Number of CPUs of the root.
    pub cpus: u32,
    /// `tasks[t]`: data of task `t`.
    pub tasks: Vec<TaskLine>,
    /// Servers of the root.
    pub servers: Vec<ServerLine>,
    /// Time tables of the root.
    pub tables: Vec<SlotTable>,
    /// `sinks[channel]`: task that the channel activates.
    pub sinks: Vec<TaskId>,
    /// `in_chain[task]`: whether a chain contains the task, so that its jobs are recorded.
    pub in_chain: Vec<bool>,
    /// `logical[task]`: whether its jobs read at their release and write at their deadline.
    pub logical: Vec<bool>,
    /// Whether overheads or stalls delay the run. If so, a budget falls more slowly than time
    /// passes.
    pub has_interference: bool,
}

/// Row of one task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskLine {
    pub(crate) name: String,
    #[serde(rename = "period")]
    pub(crate) period_ns: u64,
    #[serde(rename = "deadline")]
    pub(crate) deadline_ns: u64,
    /// Servers in which the task runs, as indices of [`Outline::servers`].
    #[serde(skip)]
    pub servers: Vec<usize>,
}

/// Row of one server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerLine {
    #[serde(skip)]
    pub node: NodeId,
    pub name: String,
    #[serde(rename = "budget")]
    pub budget_ns: u64,
    #[serde(rename = "period")]
    pub period_ns: u64,
}

/// Periodic table: partitions, or an off-line schedule of one CPU.
#[derive(Clone, Debug, Serialize)]
pub struct SlotTable {
    pub name: String,
    /// CPU of an off-line schedule; `None` for partitions.
    pub cpu: Option<u32>,
    #[serde(rename = "frame")]
    pub frame_ns: u64,
    /// Slots of the table, ordered and disjoint.
    pub slots: Vec<SlotLine>,
}

/// Interval `[start, end)` of each frame.
#[derive(Clone, Debug, Serialize)]
pub struct SlotLine {
    #[serde(rename = "start")]
    pub start_ns: u64,
    #[serde(rename = "end")]
    pub end_ns: u64,
    pub owner: String,
    /// Tasks at or below the owner.
    pub tasks: Vec<u32>,
}

impl Outline {
    /// Builds the outline of a root, with the engine that was built from it.
    pub fn of(root: &Root, machine: &Engine) -> Outline {
        let tree = &root.tree;
        let nodes: Vec<NodeId> =
            (0..root.tasks.len()).map(|task| machine.node_of(TaskId(task as u32))).collect();
        let mut outline = Outline {
            name: root.name.clone(),
            cpus: tree.cpus,
            in_chain: vec![false; root.tasks.len()],
            logical: root.logical.clone(),
            has_interference: !root.surroundings.stalls.is_empty()
                || root.surroundings.overheads != Overheads::default(),
            ..Outline::default()
        };
        let families = tree.child_index();
        for (id, node) in tree.nodes() {
            let NodeSpec::Scheduler(spec) = &node.spec else { continue };
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
            let Some(NodeSpec::Task(spec)) = tree.get(node).map(|node| &node.spec) else {
                continue;
            };
            // The servers are in the order of their nodes.
            let find =
                |id: NodeId| outline.servers.binary_search_by_key(&id, |server| server.node).ok();
            let mut servers: Vec<usize> = tree
                .ancestors(node)
                .take(mutate!("sim-report-outline", usize::MAX, 1))
                .filter_map(|(id, _)| find(id))
                .collect();
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

/// Returns the slots that a policy assigns to the children of a scheduler.
fn tables(
    tree: &Tree,
    children: &[NodeId],
    name: &str,
    policy: &PolicySpec,
    nodes: &[NodeId],
) -> Vec<SlotTable> {
    let slot = |start_ns, end_ns, owner: u32| {
        let owner = *children.get(owner as usize)?;
        let below = |&(_, &node): &(u32, &NodeId)| {
            node == owner || tree.ancestors(node).any(|(above, _)| above == owner)
        };
        let name = match &tree.get(owner)?.spec {
            NodeSpec::Scheduler(spec) => spec.name.clone(),
            NodeSpec::Task(spec) => spec.name.clone(),
        };
        let tasks = (0..).zip(nodes).filter(below).map(|(task, _)| task).collect();
        Some(SlotLine { start_ns, end_ns, owner: name, tasks })
    };
    match policy {
        PolicySpec::Partitions { frame, slots, .. } => {
            let slots = slots
                .iter()
                .filter_map(|at| slot(at.start.as_ns(), at.end.as_ns(), at.owner))
                .collect();
            vec![SlotTable { name: name.to_owned(), cpu: None, frame_ns: frame.as_ns(), slots }]
        }
        PolicySpec::Table { hyperperiod, entries } => {
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
