//! Measurement of one simulated run.

use std::collections::BTreeMap;
use talea_core::engine::{NodeId, NodeSpec, TaskId};
use talea_core::{Span, Time};
use talea_sim::rng::root_seed;
use talea_sim::{Completion, Counters, Simulation, Sink};
use talea_system::{Root, System};

/// Results of one run, over all roots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunMeasurement {
    /// Number of jobs that arrived.
    pub jobs: u64,
    /// Number of jobs that ended after their deadline, or had not ended when the deadline passed.
    pub late: u64,
    /// Number of jobs that were refused because of a full backlog.
    pub refused: u64,
    /// The largest response time in thousandths of its task's deadline, rounded up.
    pub response: u64,
}

impl RunMeasurement {
    /// Whether every job met its deadline.
    pub fn is_clean(&self) -> bool {
        self.late == 0 && self.refused == 0
    }

    /// Returns the percentage of late and refused jobs.
    #[allow(clippy::cast_precision_loss, reason = "shown")]
    pub fn late_percent(&self) -> f64 {
        100.0 * (self.late + self.refused) as f64 / self.jobs.max(1) as f64
    }
}

/// Largest response time of all jobs, in thousandths of the deadline. Both count from the arrival,
/// and for a node of a graph from the arrival of the graph.
struct MaxResponse {
    /// `deadlines[task]`: relative deadline of the task.
    deadlines: Vec<Span>,
    thousandths: u64,
}

impl Sink for MaxResponse {
    fn on_completion(&mut self, job: &Completion) {
        let deadline = self.deadlines[job.task.0 as usize].as_ns().max(1);
        let arrival = job.deadline.as_ns().saturating_sub(deadline);
        let share = (u128::from(job.end.as_ns().saturating_sub(arrival)) * 1_000)
            .div_ceil(u128::from(deadline));
        self.thousandths = self.thousandths.max(u64::try_from(share).unwrap_or(u64::MAX));
    }
}

/// Returns the relative deadline of each task. The nodes of a graph have the shortest deadline of
/// the graph's roots.
fn deadlines(root: &Root, nodes: &[NodeId]) -> Vec<Span> {
    let own = |node: &NodeId| match root.tree.get(*node).map(|node| &node.spec) {
        Some(NodeSpec::Task(spec)) if !spec.inherits => spec.deadline,
        _ => Span::from_ns(u64::MAX),
    };
    let mut deadlines: Vec<Span> = nodes.iter().map(own).collect();
    let index: BTreeMap<NodeId, usize> =
        nodes.iter().enumerate().map(|(task, node)| (*node, task)).collect();
    // As many iterations as the longest possible path.
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

/// Simulates a system with the same random streams per root as `talea simulate`.
pub fn run(system: &System, duration: Span, seed: u64) -> Result<RunMeasurement, String> {
    let mut seen = RunMeasurement::default();
    for (number, root) in system.roots.iter().enumerate() {
        let machine = root.tree.build().map_err(|error| error.kind.to_string())?;
        let nodes: Vec<NodeId> =
            (0..root.tasks.len()).map(|task| machine.node_of(TaskId(task as u32))).collect();
        let largest = MaxResponse { deadlines: deadlines(root, &nodes), thousandths: 0 };
        let load = root.workload(root_seed(seed, number));
        let mut world =
            Simulation::new(machine, root.tree.cpus, &load).with_environment(&root.surroundings);
        let mut sinks = (Counters::new(root.tasks.len()), largest);
        let end = Time::ZERO + duration;
        world.run(end, &mut sinks);
        for (task, counted) in sinks.0.tasks.iter().enumerate() {
            seen.jobs += counted.arrived;
            seen.refused += counted.refused;
            seen.late += counted.late + u64::from(world.engine().overdue(TaskId(task as u32), end));
        }
        seen.response = seen.response.max(sinks.1.thousandths);
    }
    Ok(seen)
}
