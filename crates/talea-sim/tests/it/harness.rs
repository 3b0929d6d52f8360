//! Test harness: runs of a tree, audited after every instant, and their logs.

use talea_core::engine::{Cpu, Notification, TaskId, TaskSpec, Tree};
use talea_core::{Span, Time, Work};
use talea_sim::{Completion, Cost, Simulation, Sink, Source, Workload};

pub(crate) fn span(ns: u64) -> Span {
    Span::from_ns(ns)
}

pub(crate) fn work(ns: u64) -> Work {
    Work::from_ns(ns)
}

pub(crate) fn at(ns: u64) -> Time {
    Time::from_ns(ns)
}

pub(crate) fn cost(ns: u64) -> Cost {
    Cost::Constant(work(ns))
}

/// Returns a source with arrivals at the given times.
pub(crate) fn listed(times: &[u64], cost: Cost) -> Source {
    Source { arrivals: talea_sim::Arrivals::List(times.iter().map(|&ns| at(ns)).collect()), cost }
}

/// Returns a task with the given deadline, and a period longer than any test.
pub(crate) fn task(name: &str, deadline: u64) -> TaskSpec {
    let mut spec = TaskSpec::new(name, span(1_000_000));
    spec.deadline = span(deadline);
    spec
}

/// Start of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) at: u64,
    pub(crate) cpu: u32,
    pub(crate) task: u32,
    pub(crate) job: u64,
    pub(crate) version: u32,
}

/// Log of a run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) begins: Vec<Begin>,
    pub(crate) ended: Vec<Completion>,
    pub(crate) notifications: Vec<(u64, Notification)>,
    pub(crate) refused: Vec<(u64, u32)>,
    /// Dispatches: (time, CPU, task).
    pub(crate) runs: Vec<(u64, u32, u32)>,
    /// Arrivals: (time of observation, task).
    pub(crate) arrived: Vec<(u64, u32)>,
}

impl Sink for Log {
    fn on_arrival(&mut self, now: Time, task: TaskId, _nominal: Time) {
        self.arrived.push((now.as_ns(), task.0));
    }

    fn on_start(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64, version: u32) {
        self.begins.push(Begin { at: now.as_ns(), cpu: cpu.0, task: task.0, job, version });
    }

    fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, _job: u64) {
        self.runs.push((now.as_ns(), cpu.0, task.0));
    }

    fn on_completion(&mut self, job: &Completion) {
        self.ended.push(*job);
    }

    fn on_notification(&mut self, now: Time, notification: &Notification) {
        self.notifications.push((now.as_ns(), *notification));
    }

    fn on_refusal(&mut self, now: Time, task: TaskId) {
        self.refused.push((now.as_ns(), task.0));
    }
}

impl Log {
    /// Returns the completion times of a task.
    pub(crate) fn ends(&self, task: u32) -> Vec<u64> {
        self.ended.iter().filter(|job| job.task.0 == task).map(|job| job.end.as_ns()).collect()
    }

    /// Returns the start times of a task.
    pub(crate) fn starts(&self, task: u32) -> Vec<u64> {
        self.begins.iter().filter(|begin| begin.task == task).map(|begin| begin.at).collect()
    }

    /// Returns the versions of a task's jobs.
    pub(crate) fn versions(&self, task: u32) -> Vec<u32> {
        self.begins.iter().filter(|begin| begin.task == task).map(|begin| begin.version).collect()
    }

    pub(crate) fn late(&self) -> usize {
        self.ended.iter().filter(|job| job.is_late()).count()
    }
}

/// Builds the simulation of a tree with the given sources.
pub(crate) fn simulation(tree: &Tree, sources: &[Source]) -> Simulation {
    let engine = tree.build().unwrap_or_else(|wrong| panic!("{}: {}", wrong.node.0, wrong.kind));
    Simulation::new(engine, tree.cpus, &Workload { sources: sources.into(), seed: 1 })
}

/// Simulates all events before `until`, and audits the engine after each instant.
pub(crate) fn run_audited(simulation: &mut Simulation, until: u64) -> Log {
    let mut log = Log::default();
    while simulation.next_event() < at(until) {
        simulation.advance(&mut log);
        simulation
            .engine()
            .audit(simulation.now())
            .unwrap_or_else(|reason| panic!("at {:?}: {reason}", simulation.now()));
    }
    assert_eq!(simulation.engine().lost_notifications(), 0);
    log
}

/// Builds the simulation and runs it until `until`.
pub(crate) fn run(tree: &Tree, sources: &[Source], until: u64) -> Log {
    run_audited(&mut simulation(tree, sources), until)
}
