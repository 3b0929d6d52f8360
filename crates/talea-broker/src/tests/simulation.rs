//! Deterministic simulation. `TALEA_SEED` repeats one seed, `TALEA_SEEDS` sets the number of seeds
//! of a soak test.

use crate::sim::{EventCounts, run_ops, run_seed};

fn number(name: &str) -> Option<u64> {
    std::env::var_os(name)?.to_str()?.parse().ok()
}

#[test]
fn simulation_of_three_hundred_seeds_leaves_no_objects() {
    let steps = number("TALEA_STEPS").unwrap_or(600) as u32;
    if let Some(seed) = number("TALEA_SEED") {
        run_seed(seed, steps);
        return;
    }
    let mut tally = EventCounts::new();
    for seed in 0..number("TALEA_SEEDS").unwrap_or(300) {
        for (what, times) in run_seed(seed, steps) {
            *tally.entry(what).or_default() += times;
        }
    }
    // Each of these events is checked by one of the checkers.
    for what in [
        "created",
        "groups created",
        "changed",
        "attached",
        "attached with a pending wake-up",
        "restored with a restriction",
        "detached",
        "released",
        "claimed",
        "claims after a restart",
        "changes refused by the kernel",
        "attaches refused by the kernel",
        "attaches of exited threads",
        "over quota",
        "rate limited",
        "applies failed",
        "restores failed",
        "adopted",
        "dropped",
        "plugins out of service",
        "plugins outside their bounds",
        "specs ranked",
        "detached for their credentials",
        "detached for their CPUs",
        "detached for their policy",
        "detached for starvation",
        "CPUs starved by others",
        "returned to their CPUs",
    ] {
        assert!(
            tally.get(what).is_some_and(|&times| times >= 10),
            "{what}: too rare to be significant\n{tally:#?}"
        );
    }
}

#[test]
fn simulation_runs_on_the_bytes_of_a_fuzzer() {
    run_ops(&[]);
    let mut rng = crate::sim::Rng::Seed(1);
    for length in [1, 10, 100, 1000, 3000] {
        let bytes: Vec<u8> = (0..length).map(|_| rng.word() as u8).collect();
        run_ops(&bytes);
    }
}
