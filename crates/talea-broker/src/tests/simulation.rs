//! The deterministic simulation. `TALEA_SEED` runs one seed again, `TALEA_SEEDS` runs that many
//! more for a soak.

use crate::sim::{Tally, run_ops, run_seed};

fn number(name: &str) -> Option<u64> {
    std::env::var_os(name)?.to_str()?.parse().ok()
}

#[test]
fn simulation_three_hundred_crowds_leave_nothing_behind() {
    let steps = number("TALEA_STEPS").unwrap_or(600) as u32;
    if let Some(seed) = number("TALEA_SEED") {
        run_seed(seed, steps);
        return;
    }
    let mut tally = Tally::new();
    for seed in 0..number("TALEA_SEEDS").unwrap_or(300) {
        for (what, times) in run_seed(seed, steps) {
            *tally.entry(what).or_default() += times;
        }
    }
    // Each of these is what one of the checkers is there for.
    for what in [
        "created",
        "groups created",
        "changed",
        "attached",
        "attached asleep",
        "not as before",
        "detached",
        "released",
        "claimed",
        "claims after a restart",
        "changes refused by the kernel",
        "attaches refused by the kernel",
        "attaches too late",
        "over quota",
        "rate limited",
        "moves failed",
        "restores failed",
        "adopted",
        "dropped",
        "plugins out",
        "plugins lied",
    ] {
        assert!(
            tally.get(what).is_some_and(|&times| times >= 10),
            "{what}: too rare to mean anything\n{tally:#?}"
        );
    }
}

#[test]
fn simulation_runs_on_the_bytes_of_a_fuzzer() {
    run_ops(&[]);
    let mut dice = crate::sim::Dice::Seed(1);
    for length in [1, 10, 100, 1000, 3000] {
        let bytes: Vec<u8> = (0..length).map(|_| dice.word() as u8).collect();
        run_ops(&bytes);
    }
}
