//! What is known of the server. `talea-sim` runs it through the harness of the built-in ones.

use talea_core::Time;
use talea_sim::{Jobs, Simulation};
use talea_system::system::{self, Registry, System};

const MS: u64 = 1_000_000;

/// The example's system, with this server.
fn system(server: &str) -> System {
    let text = include_str!("../system.toml").replace("\"saver\"", &format!("\"{server}\""));
    let registry = Registry::new().server("saver", server_saver::make);
    system::read_with(&text, "system.toml", &(), &registry)
        .unwrap_or_else(|found| panic!("{found:?}"))
}

/// When the first jobs of each task end, in milliseconds, and how many jobs are late.
fn run(system: &System) -> (Vec<u64>, usize) {
    let root = &system.roots[0];
    let mut world =
        Simulation::new(root.tree.build().expect("it has been checked"), 1, &root.workload(1));
    let mut jobs = Jobs::default();
    world.run(Time::ZERO + system.duration, &mut jobs);
    let first = |task: u32| {
        let job = jobs.ended.iter().find(|job| job.task.0 == task);
        job.expect("a job of each task").end.as_ns() / MS
    };
    let late = jobs.ended.iter().filter(|job| job.is_late()).count();
    ((0..4).map(first).collect(), late)
}

#[test]
fn l19_what_was_saved_answers_a_burst() {
    // 2 ms of the period at 0 were saved, so there are 4 ms at 15; the rest comes at 20, after the
    // control loop.
    assert_eq!(run(&system("saver")), (vec![1, 17, 19, 23], 0));
    // Without a bonus the second request waits for the next period, each time.
    let (ends, late) = run(&system("deferrable"));
    assert_eq!(ends, [1, 17, 23, 33]);
    assert_eq!(late, 25);
}
