//! Short hands for tests: a run of a tree, audited after every instant, and what was seen of it.

use talea_core::machine::{Cpu, Note, TaskId, TaskSpec, Tree};
use talea_core::{Span, Time, Work};
use talea_sim::{Completion, Cost, Sink, Source, Workload, World};

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

/// Arrivals at these times.
pub(crate) fn listed(times: &[u64], cost: Cost) -> Source {
    Source { arrivals: talea_sim::Arrivals::List(times.iter().map(|&ns| at(ns)).collect()), cost }
}

/// A task with this deadline, and a period that is longer than any test.
pub(crate) fn task(name: &str, deadline: u64) -> TaskSpec {
    let mut spec = TaskSpec::new(name, span(1_000_000));
    spec.deadline = span(deadline);
    spec
}

/// A job has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) at: u64,
    pub(crate) cpu: u32,
    pub(crate) task: u32,
    pub(crate) job: u64,
    pub(crate) version: u32,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) begins: Vec<Begin>,
    pub(crate) ended: Vec<Completion>,
    pub(crate) notes: Vec<(u64, Note)>,
    pub(crate) refused: Vec<(u64, u32)>,
    /// (time, CPU, task).
    pub(crate) runs: Vec<(u64, u32, u32)>,
    /// (when it was seen, task).
    pub(crate) arrived: Vec<(u64, u32)>,
}

impl Sink for Log {
    fn arrived(&mut self, now: Time, task: TaskId, _nominal: Time) {
        self.arrived.push((now.as_ns(), task.0));
    }

    fn begins(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64, version: u32) {
        self.begins.push(Begin { at: now.as_ns(), cpu: cpu.0, task: task.0, job, version });
    }

    fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, _job: u64) {
        self.runs.push((now.as_ns(), cpu.0, task.0));
    }

    fn completed(&mut self, job: &Completion) {
        self.ended.push(*job);
    }

    fn noted(&mut self, now: Time, note: &Note) {
        self.notes.push((now.as_ns(), *note));
    }

    fn refused(&mut self, now: Time, task: TaskId) {
        self.refused.push((now.as_ns(), task.0));
    }
}

impl Log {
    /// When the jobs of a task ended.
    pub(crate) fn ends(&self, task: u32) -> Vec<u64> {
        self.ended.iter().filter(|job| job.task.0 == task).map(|job| job.end.as_ns()).collect()
    }

    /// When the jobs of a task began.
    pub(crate) fn starts(&self, task: u32) -> Vec<u64> {
        self.begins.iter().filter(|begin| begin.task == task).map(|begin| begin.at).collect()
    }

    /// In which versions they ran.
    pub(crate) fn versions(&self, task: u32) -> Vec<u32> {
        self.begins.iter().filter(|begin| begin.task == task).map(|begin| begin.version).collect()
    }

    pub(crate) fn late(&self) -> usize {
        self.ended.iter().filter(|job| job.is_late()).count()
    }
}

/// Of a tree with these sources.
pub(crate) fn world(tree: &Tree, sources: &[Source]) -> World {
    let machine = tree.build().unwrap_or_else(|wrong| panic!("{}: {}", wrong.node.0, wrong.why));
    World::new(machine, tree.cpus, &Workload { sources: sources.into(), seed: 1 })
}

/// Lets everything happen that happens before `until`, and audits the machine after each instant.
pub(crate) fn watch(world: &mut World, until: u64) -> Log {
    let mut log = Log::default();
    while world.next_event() < at(until) {
        world.advance(&mut log);
        world
            .machine()
            .audit(world.now())
            .unwrap_or_else(|why| panic!("at {:?}: {why}", world.now()));
    }
    assert_eq!(world.machine().lost_notes(), 0);
    log
}

/// Both.
pub(crate) fn run(tree: &Tree, sources: &[Source], until: u64) -> Log {
    watch(&mut world(tree, sources), until)
}
