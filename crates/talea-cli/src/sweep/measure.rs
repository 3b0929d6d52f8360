//! One run, and what it shows.

use std::collections::BTreeMap;
use talea_core::machine::{Body, NodeId, TaskId};
use talea_core::{Span, Time};
use talea_sim::dice::of_root;
use talea_sim::{Completion, Counters, Sink, World};
use talea_system::system::{Root, System};

/// What one run has shown, over all roots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Jobs that arrived.
    pub(crate) jobs: u64,
    /// Of these, ended after their deadline, or had not ended when it had passed.
    pub(crate) late: u64,
    /// Of these, found no room.
    pub(crate) refused: u64,
    /// The largest response time in thousandths of its task's deadline, rounded up.
    pub(crate) response: u64,
}

impl Seen {
    /// Whether every job was in time.
    pub(crate) fn is_clean(&self) -> bool {
        self.late == 0 && self.refused == 0
    }

    /// Jobs that were not in time.
    #[allow(clippy::cast_precision_loss, reason = "shown")]
    pub(crate) fn late_percent(&self) -> f64 {
        100.0 * (self.late + self.refused) as f64 / self.jobs.max(1) as f64
    }
}

/// The largest response time in thousandths of the deadline, of all jobs. Both count from the
/// arrival that the deadline is of: for a node of a graph that of the graph.
struct Largest {
    /// D by task.
    deadlines: Vec<Span>,
    thousandths: u64,
}

impl Sink for Largest {
    fn completed(&mut self, job: &Completion) {
        let deadline = self.deadlines[job.task.0 as usize].as_ns().max(1);
        let arrival = job.deadline.as_ns().saturating_sub(deadline);
        let share = (u128::from(job.end.as_ns().saturating_sub(arrival)) * 1_000)
            .div_ceil(u128::from(deadline));
        self.thousandths = self.thousandths.max(u64::try_from(share).unwrap_or(u64::MAX));
    }
}

/// The relative deadline of each task; of the nodes of a graph the shortest of its roots.
fn deadlines(root: &Root, nodes: &[NodeId]) -> Vec<Span> {
    let own = |node: &NodeId| match root.tree.get(*node).map(|node| &node.body) {
        Some(Body::Task(spec)) if !spec.inherits => spec.deadline,
        _ => Span::from_ns(u64::MAX),
    };
    let mut deadlines: Vec<Span> = nodes.iter().map(own).collect();
    let index: BTreeMap<NodeId, usize> =
        nodes.iter().enumerate().map(|(task, node)| (*node, task)).collect();
    // As often as a path may be long.
    for _ in 0..nodes.len() {
        let before = deadlines.clone();
        for channel in &root.tree.channels {
            if let (Some(&from), Some(&to)) = (index.get(&channel.from), index.get(&channel.to)) {
                deadlines[to] = deadlines[to].min(deadlines[from]);
            }
        }
        if deadlines == before {
            break;
        }
    }
    deadlines
}

/// Runs a system. As `talea simulate` does: roots draw from streams of their own.
pub(crate) fn run(system: &System, duration: Span, seed: u64) -> Result<Seen, String> {
    let mut seen = Seen::default();
    for (number, root) in system.roots.iter().enumerate() {
        let machine = root.tree.build().map_err(|error| error.why.to_string())?;
        let nodes: Vec<NodeId> =
            (0..root.tasks.len()).map(|task| machine.node_of(TaskId(task as u32))).collect();
        let largest = Largest { deadlines: deadlines(root, &nodes), thousandths: 0 };
        let load = root.workload(of_root(seed, number));
        let mut world = World::new(machine, root.tree.cpus, &load).within(&root.surroundings);
        let mut sinks = (Counters::new(root.tasks.len()), largest);
        let end = Time::ZERO + duration;
        world.run(end, &mut sinks);
        for (task, counted) in sinks.0.tasks.iter().enumerate() {
            seen.jobs += counted.arrived;
            seen.refused += counted.refused;
            seen.late +=
                counted.late + u64::from(world.machine().overdue(TaskId(task as u32), end));
        }
        seen.response = seen.response.max(sinks.1.thousandths);
    }
    Ok(seen)
}
