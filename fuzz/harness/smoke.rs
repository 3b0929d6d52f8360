//! Runs a harness on its seeds and on seeded mutations of them, in every test run and without a
//! fuzzer.
//!
//! `TALEA_FUZZ_ROUNDS` sets the number of rounds.
#![allow(clippy::disallowed_methods, reason = "seeds are files")]
#![allow(dead_code, reason = "each test file uses its part")]

#[path = "mutate.rs"]
mod mutate;

use mutate::{Rng, mutated};
use std::panic::{AssertUnwindSafe, catch_unwind};

const ROUNDS: usize = 2_000;

/// Returns the seeds of a target, with their names.
pub(crate) fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = format!("{}/../../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut seeds: Vec<(String, Vec<u8>)> = std::fs::read_dir(&folder)
        .expect("a folder of seeds")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            (path.display().to_string(), std::fs::read(&path).expect("a seed"))
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{folder} is empty");
    seeds
}

/// Runs `harness` on all of `seeds` and on mutations. A failure prints the input.
pub(crate) fn smoke(harness: fn(&[u8]), seeds: &[(String, Vec<u8>)]) {
    for (name, bytes) in seeds {
        let held = catch_unwind(AssertUnwindSafe(|| harness(bytes)));
        assert!(held.is_ok(), "seed {name}");
    }
    let pool: Vec<Vec<u8>> = seeds.iter().map(|(_, bytes)| bytes.clone()).collect();
    let asked = std::env::var("TALEA_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let mut rng = Rng::new(0x7a1e_a000_0000_0001);
    for round in 0..asked.unwrap_or(ROUNDS) {
        let bytes = mutated(&pool[rng.below(pool.len())], &pool, &mut rng);
        let held = catch_unwind(AssertUnwindSafe(|| harness(&bytes)));
        assert!(
            held.is_ok(),
            "round {round}, as text: {}\nas bytes: {bytes:?}",
            String::from_utf8_lossy(&bytes)
        );
    }
}

/// Returns the files of a table of malformed files.
pub(crate) fn malformed(table: &str) -> Vec<(String, Vec<u8>)> {
    let entry = |entry: &str| {
        let (head, file) = entry.split_once("\n---\n")?;
        Some((head.to_owned(), file.as_bytes().to_vec()))
    };
    table.split("\n=== ").skip(1).filter_map(entry).collect()
}
