//! The same jobs simulated, without pictures: how much will happen, and how busy each CPU will be.

use talea_core::machine::{Cpu, TaskId};
use talea_core::{Span, Time};
use talea_sim::dice::of_root;
use talea_sim::{Completion, Sink, World};
use talea_system::system::{Root, System};

/// Of one root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sketch {
    /// Instants at which something happens.
    pub(crate) steps: u64,
    /// By CPU: how long it works.
    pub(crate) busy: Vec<Span>,
    /// By task: jobs that begin.
    pub(crate) begun: Vec<u64>,
}

/// Simulates each root of `system`.
pub(crate) fn sketch(system: &System, duration: Span, seed: u64) -> anyhow::Result<Vec<Sketch>> {
    let of = |(number, root): (usize, &Root)| one(root, duration, of_root(seed, number));
    system.roots.iter().enumerate().map(of).collect()
}

fn one(root: &Root, duration: Span, seed: u64) -> anyhow::Result<Sketch> {
    let machine =
        root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.why))?;
    let (tasks, cpus) = (machine.tasks(), root.tree.cpus);
    let mut world = with_changes(World::new(machine, cpus, &root.workload(seed)), root);
    let mut watch = Watch {
        since: vec![None; cpus as usize],
        busy: vec![Span::ZERO; cpus as usize],
        begun: vec![0; tasks],
    };
    let end = Time::ZERO + duration;
    let outcome = world.run(end, &mut watch);
    for cpu in 0..cpus {
        watch.close(end, Cpu(cpu));
    }
    Ok(Sketch { steps: outcome.steps, busy: watch.busy, begun: watch.begun })
}

/// What a file says about battery, mode and mask happens; its holes and overheads don't: a real
/// machine has its own.
pub(crate) fn with_changes(world: World, root: &Root) -> World {
    let changes = &root.surroundings.changes;
    if changes.is_empty() { world } else { world.with_changes(changes.clone()) }
}

struct Watch {
    since: Vec<Option<Time>>,
    busy: Vec<Span>,
    begun: Vec<u64>,
}

impl Watch {
    fn close(&mut self, now: Time, cpu: Cpu) {
        if let Some(since) = self.since[cpu.0 as usize].take() {
            self.busy[cpu.0 as usize] += now.since(since);
        }
    }
}

impl Sink for Watch {
    fn runs(&mut self, now: Time, cpu: Cpu, _task: TaskId, _job: u64) {
        self.close(now, cpu);
        self.since[cpu.0 as usize] = Some(now);
    }

    fn begins(&mut self, _now: Time, _cpu: Cpu, task: TaskId, _job: u64, _version: u32) {
        self.begun[task.0 as usize] += 1;
    }

    fn idles(&mut self, now: Time, cpu: Cpu) {
        self.close(now, cpu);
    }

    fn completed(&mut self, job: &Completion) {
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
        let system =
            talea_system::system::read(text, "the test's own", &()).expect("a sound system");
        let sketch = sketch(&system, system.duration, 1).expect("it is simulated");
        // The second job of `b` has one millisecond, and `a` has none of it.
        assert_eq!(sketch[0].busy, [Span::from_ns(41_000_000)]);
        assert_eq!(sketch[0].begun, [10, 2]);
    }
}
