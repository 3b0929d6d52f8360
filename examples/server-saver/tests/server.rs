//! Tests of the server in the example's system, compared with a deferrable server. The tests of
//! `talea-sim` also run the server in the harness of the built-in servers.

use talea_core::Time;
use talea_sim::{Jobs, Simulation};
use talea_system::{self as system, Registry, System};

const MS: u64 = 1_000_000;

/// Returns the example's system with another server.
fn system(server: &str) -> System {
    let text = include_str!("../system.toml").replace("\"saver\"", &format!("\"{server}\""));
    let registry = Registry::new().server("saver", server_saver::make);
    system::read_with(&text, "system.toml", &(), &registry)
        .unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"))
}

/// Returns the completion time of each task's first job, in milliseconds, and the number of late
/// jobs.
fn run(system: &System) -> (Vec<u64>, usize) {
    let root = &system.roots[0];
    let mut simulation =
        Simulation::new(root.tree.build().expect("a checked tree"), 1, &root.workload(1));
    let mut jobs = Jobs::default();
    simulation.run(Time::ZERO + system.duration, &mut jobs);
    let first = |task: u32| {
        let job = jobs.ended.iter().find(|job| job.task.0 == task);
        job.expect("a job of each task").end.as_ns() / MS
    };
    let late = jobs.ended.iter().filter(|job| job.is_late()).count();
    ((0..4).map(first).collect(), late)
}

#[test]
fn l19_unused_budget_serves_a_later_burst() {
    // The 2 ms of the first period are unused, so the budget at 15 is 4 ms. The next refill is at
    // 20, and the control loop runs first.
    assert_eq!(run(&system("saver")), (vec![1, 17, 19, 23], 0));
    // Under a deferrable server the second request always waits for the next period.
    let (completions, late) = run(&system("deferrable"));
    assert_eq!(completions, [1, 17, 23, 33]);
    assert_eq!(late, 25);
}
