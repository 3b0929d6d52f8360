//! Measurement of one run, simulated or on real threads.

use crate::exit::usage;
use crate::live_run::{self, CpuAssignment, LoadEstimate, PriorityUse, RunSetup, WorkMode};
use std::collections::BTreeMap;
use talea_core::engine::{Engine, NodeId, NodeSpec, TaskId};
use talea_core::{Span, Time};
use talea_exec::replay::replay_to_sink;
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
    /// Overheads of a real run.
    pub overheads: Option<MeasuredOverheads>,
}

/// Overheads of a real run over all roots, in millionths of the time of their CPUs (SF3P section
/// VII).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasuredOverheads {
    /// CPU time of the dispatchers, and of the workers outside of their jobs.
    pub scheduler_ppm: u64,
    /// Time in which a job had its CPU and made no progress: switches, interrupts, stalls.
    pub other_ppm: u64,
}

impl RunMeasurement {
    /// Whether every job met its deadline.
    pub fn is_clean(&self) -> bool {
        self.late == 0 && self.refused == 0
    }

    /// Adds the jobs of one root until `end`.
    fn add(&mut self, counters: &Counters, largest: &MaxResponse, engine: &Engine, end: Time) {
        for (task, counted) in counters.tasks.iter().enumerate() {
            self.jobs += counted.arrived;
            self.refused += counted.refused;
            self.late += counted.late + u64::from(engine.overdue(TaskId(task as u32), end));
        }
        self.response = self.response.max(largest.thousandths);
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
pub fn run(system: &System, duration: Span, seed: u64) -> anyhow::Result<RunMeasurement> {
    let mut seen = RunMeasurement::default();
    for (number, root) in system.roots.iter().enumerate() {
        let machine = root.tree.build().map_err(|error| usage(error.kind.to_string()))?;
        let nodes: Vec<NodeId> =
            (0..root.tasks.len()).map(|task| machine.node_of(TaskId(task as u32))).collect();
        let largest = MaxResponse { deadlines: deadlines(root, &nodes), thousandths: 0 };
        let load = root.workload(root_seed(seed, number));
        let mut world =
            Simulation::new(machine, root.tree.cpus, &load).with_environment(&root.surroundings);
        let mut sinks = (Counters::new(root.tasks.len()), largest);
        let end = Time::ZERO + duration;
        world.run(end, &mut sinks);
        seen.add(&sinks.0, &sinks.1, world.engine(), end);
    }
    Ok(seen)
}

/// Executes a system on real threads, with the jobs of [`run`], and measures it as a simulation.
///
/// # Errors
/// The run has failed, or this computer does not execute the system (`NotExecutable`).
pub fn execute(
    system: &System,
    duration: Span,
    seed: u64,
    places: &CpuAssignment,
    estimates: &[LoadEstimate],
) -> anyhow::Result<RunMeasurement> {
    let setup = RunSetup {
        system,
        duration,
        seed,
        places,
        accounts: &Vec::new(),
        work_mode: WorkMode::Budget,
        rights: PriorityUse::Required,
        mechanism: talea_exec::RequestedMechanism::Engine,
        switches: false,
        estimates,
        begin: None,
        bodies: &|_| None,
    };
    let measured = live_run::run(&setup)?;
    anyhow::ensure!(!measured.interrupted, "interrupted");
    let mut seen = RunMeasurement::default();
    let (mut scheduler, mut other, mut whole) = (0, 0, 0);
    for (root, real) in system.roots.iter().zip(&measured.report.roots) {
        anyhow::ensure!(
            real.lost == 0,
            "the record of the run is too long: use a shorter duration"
        );
        let mut engine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
        let nodes: Vec<NodeId> =
            (0..root.tasks.len()).map(|task| engine.node_of(TaskId(task as u32))).collect();
        let largest = MaxResponse { deadlines: deadlines(root, &nodes), thousandths: 0 };
        let mut sinks = (Counters::new(root.tasks.len()), largest);
        replay_to_sink(&mut engine, &real.record, &mut sinks, |_, _, _| {})
            .map_err(live_run::replay_error)?;
        seen.add(&sinks.0, &sinks.1, &engine, Time::ZERO + measured.report.length);
        scheduler += real.scheduling().as_ns();
        other += real.total_lost_time().as_ns();
        whole += measured.report.length.as_ns() * u64::from(root.tree.cpus);
    }
    let ppm = |ns: u64| (u128::from(ns) * 1_000_000 / u128::from(whole.max(1))) as u64;
    let overheads = MeasuredOverheads { scheduler_ppm: ppm(scheduler), other_ppm: ppm(other) };
    Ok(RunMeasurement { overheads: Some(overheads), ..seen })
}
