//! Simulation of a run before its execution: estimates of the number of events and of the load of
//! each CPU.

use talea_core::engine::{Cpu, TaskId};
use talea_core::{Span, Time};
use talea_sim::rng::root_seed;
use talea_sim::{Completion, Simulation, Sink};
use talea_system::{Root, System};

/// Estimated load of one root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadEstimate {
    /// Simulated time.
    pub length: Span,
    /// Number of distinct instants with events.
    pub steps: u64,
    /// `busy[cpu]`: execution time on the CPU.
    pub busy: Vec<Span>,
    /// `begun[task]`: number of started jobs of the task.
    pub begun: Vec<u64>,
}

/// Maximum number of simulated instants for [`estimate_rate`].
const MAX_STEPS: u64 = 1 << 14;

/// Simulates each root of `system` for the beginning of `duration`, so that the effort does not
/// depend on the duration.
pub fn estimate_rate(
    system: &System,
    duration: Span,
    seed: u64,
) -> anyhow::Result<Vec<LoadEstimate>> {
    let of =
        |(number, root): (usize, &Root)| one(root, duration, root_seed(seed, number), MAX_STEPS);
    system.roots.iter().enumerate().map(of).collect()
}

/// Simulates each root of `system`.
pub fn estimate_load(
    system: &System,
    duration: Span,
    seed: u64,
) -> anyhow::Result<Vec<LoadEstimate>> {
    let of =
        |(number, root): (usize, &Root)| one(root, duration, root_seed(seed, number), u64::MAX);
    system.roots.iter().enumerate().map(of).collect()
}

fn one(root: &Root, duration: Span, seed: u64, most: u64) -> anyhow::Result<LoadEstimate> {
    let machine =
        root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.kind))?;
    let (tasks, cpus) = (machine.tasks(), root.tree.cpus);
    let mut world = with_changes(Simulation::new(machine, cpus, &root.workload(seed)), root);
    let mut watch = LoadCounter {
        since: vec![None; cpus as usize],
        busy: vec![Span::ZERO; cpus as usize],
        begun: vec![0; tasks],
    };
    let end = Time::ZERO + duration;
    let mut steps = 0;
    while steps < most && world.next_event() < end {
        world.advance(&mut watch);
        steps += 1;
    }
    let end = if world.next_event() < end { world.now().max(Time::from_ns(1)) } else { end };
    for cpu in 0..cpus {
        watch.close(end, Cpu(cpu));
    }
    let length = end.since(Time::ZERO);
    Ok(LoadEstimate { length, steps, busy: watch.busy, begun: watch.begun })
}

/// Applies the file's changes of battery, mode and mask. Its stalls and overheads are not applied,
/// because real CPUs have their own.
pub fn with_changes(world: Simulation, root: &Root) -> Simulation {
    let changes = &root.surroundings.changes;
    if changes.is_empty() { world } else { world.with_condition_changes(changes.clone()) }
}

struct LoadCounter {
    since: Vec<Option<Time>>,
    busy: Vec<Span>,
    begun: Vec<u64>,
}

impl LoadCounter {
    fn close(&mut self, now: Time, cpu: Cpu) {
        if let Some(since) = self.since[cpu.0 as usize].take() {
            self.busy[cpu.0 as usize] += now.since(since);
        }
    }
}

impl Sink for LoadCounter {
    fn on_dispatch(&mut self, now: Time, cpu: Cpu, _task: TaskId, _job: u64) {
        self.close(now, cpu);
        self.since[cpu.0 as usize] = Some(now);
    }

    fn on_start(&mut self, _now: Time, _cpu: Cpu, task: TaskId, _job: u64, _version: u32) {
        self.begun[task.0 as usize] += 1;
    }

    fn on_idle(&mut self, now: Time, cpu: Cpu) {
        self.close(now, cpu);
    }

    fn on_completion(&mut self, job: &Completion) {
        self.close(job.end, job.cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_as_busy_as_its_jobs_are_long() {
        let text = "duration = \"100ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"edf\"\n[[task]]\nname = \"a\"\n\
                    period = \"10ms\"\ncost = \"3ms\"\n[[task]]\nname = \"b\"\nperiod = \"50ms\"\noffset = \"49ms\"\ncost = \"10ms\"\n";
        let system = talea_system::read(text, "the test's own", &()).expect("a sound system");
        let sketch = estimate_load(&system, system.duration, 1).expect("it is simulated");
        // The second job of `b` executes for one millisecond, at the expense of no job of `a`.
        assert_eq!(sketch[0].busy, [Span::from_ns(41_000_000)]);
        assert_eq!(sketch[0].begun, [10, 2]);
    }
}
