//! Simulations that are compared with threads or with counters.

use talea_core::{Span, Time};
use talea_sim::Simulation;
use talea_sim::rng::root_seed;
use talea_study::live_run::with_changes;
use talea_study::report::{DrawnRoot, Outline};
use talea_study::run_summary;
use talea_system::{Root, System};

/// Summary of a simulated root, and its picture.
pub(super) type SimulatedRoot<'a> = (run_summary::RootSummary, Option<DrawnRoot<'a>>);

/// Simulates each root.
pub(super) fn simulate<'a>(
    system: &System,
    outlines: &'a [Outline],
    seed: u64,
    duration: Span,
) -> anyhow::Result<Vec<SimulatedRoot<'a>>> {
    let end = Time::ZERO + duration;
    let one = |(number, (root, outline)): (usize, (&Root, &'a Outline))| {
        let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
        let mut seen = run_summary::RunRecorder::new(outline, &machine, duration, true, None, None);
        let workload = root.workload(root_seed(seed, number));
        let mut world = with_changes(Simulation::new(machine, root.tree.cpus, &workload), root);
        let unfinished = seen.run(&mut world, end);
        Ok(run_summary::summarize(outline, seen, unfinished, end))
    };
    system.roots.iter().zip(outlines).enumerate().map(one).collect()
}
