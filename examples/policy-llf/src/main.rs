//! Simulates a system file that may use the policy `llf`.

use std::process::ExitCode;
use talea_core::Time;
use talea_sim::{Counters, Simulation};
use talea_system::diagnostic::render;
use talea_system::{self as system, Registry};

fn main() -> ExitCode {
    let path = std::env::args().nth(1).unwrap_or_else(|| "system.toml".into());
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("cannot read {path}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let registry = Registry::new().policy("llf", policy_llf::make);
    let system = match system::read_with(&text, &path, &(), &registry) {
        Ok(system) => system,
        Err(diagnostics) => {
            eprint!("{}", render(&diagnostics, false));
            return ExitCode::from(2);
        }
    };
    for root in &system.roots {
        let engine = root.tree.build().expect("a checked tree");
        let workload = root.workload(system.seed);
        let mut simulation = Simulation::new(engine, root.tree.cpus, &workload);
        let mut counters = Counters::new(root.tasks.len());
        simulation.run(Time::ZERO + system.duration, &mut counters);
        for (name, count) in root.tasks.iter().zip(&counters.tasks) {
            println!("{name}: {} jobs, {} late", count.completed, count.late);
        }
    }
    ExitCode::SUCCESS
}
