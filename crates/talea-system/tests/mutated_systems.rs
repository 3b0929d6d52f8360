//! Valid systems with lines dropped, doubled, moved and changed. The mutations pass the TOML parser
//! and so test the reader, the checks of the core and the engine.
//!
//! The byte mutations in `fuzz_smoke.rs` mostly end in the syntax. The mutations of this file keep
//! the syntax. `TALEA_FUZZ_ROUNDS` sets the number of rounds.
#![allow(clippy::disallowed_methods, reason = "seeds are files")]

#[path = "../../../fuzz/harness/system.rs"]
#[allow(dead_code, reason = "one harness of several")]
mod harness;
#[path = "../../../fuzz/harness/mutate.rs"]
#[allow(dead_code, reason = "bytes are for others")]
mod mutate;

use mutate::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use talea_system::{self as system, keys::KEYS};

const ROUNDS: usize = 1_500;

/// Numbers, durations and words at the limits of valid values.
const VALUES: &[&str] = &[
    "0",
    "1",
    "2",
    "63",
    "64",
    "255",
    "256",
    "1000",
    "10000",
    "1048576",
    "4294967295",
    "-1",
    "1.5",
    "true",
    "false",
    "[]",
    "[0]",
    "[0, 63]",
    "[1, 0, 2]",
    "\"0\"",
    "\"1ns\"",
    "\"1us\"",
    "\"1ms\"",
    "\"5ms\"",
    "\"10ms\"",
    "\"40ms\"",
    "\"1s\"",
    "\"2305843009213693951ns\"",
    "\"73years\"",
    "\"\"",
    "\"0-1\"",
    "\"0-63\"",
    "\"edf\"",
    "\"fp\"",
    "\"rr\"",
    "\"partitions\"",
    "\"table\"",
    "\"fifo\"",
    "\"cbs\"",
    "\"soft-cbs\"",
    "\"polling\"",
    "\"energy\"",
    "\"mode\"",
    "\"ceiling\"",
    "\"none\"",
    "[\"gpu\"]",
    "{ min = \"1ns\", max = \"9ms\" }",
    "{ low = \"1ms\", high = \"1s\", share = 1000 }",
    "[\"1ms\", \"2ms\"]",
];

fn seeds() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/system");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("seeds")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let texts = paths.iter().map(|path| std::fs::read_to_string(path).expect("a seed"));
    texts.filter(|text| !text.contains('\0')).collect()
}

/// Lines of one table.
type Block = Vec<String>;

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![vec![]];
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            blocks.push(vec![]);
        }
        blocks.last_mut().expect("one at least").push(line.to_owned());
    }
    blocks
}

/// Returns a random value of a key in the seeds.
fn said(key: &str, pool: &[Vec<Block>], rng: &mut Rng) -> Option<String> {
    let lines = pool.iter().flatten().flatten();
    let all: Vec<&String> = lines.filter(|line| line.starts_with(&format!("{key} = "))).collect();
    (!all.is_empty()).then(|| all[rng.below(all.len())].clone())
}

fn mutate(system: &mut Vec<Block>, pool: &[Vec<Block>], rng: &mut Rng) {
    let at = rng.below(system.len());
    let lines = system[at].len();
    let line = rng.below(lines);
    match rng.below(8) {
        0 if lines > 0 => drop(system[at].remove(line)),
        1 => drop(system.remove(at)),
        2 => {
            let copy = system[at].clone();
            system.insert(at, copy);
        }
        3 => {
            let to = rng.below(system.len());
            system.swap(at, to);
        }
        // A table of another system.
        4 => {
            let other = &pool[rng.below(pool.len())];
            system.push(other[rng.below(other.len())].clone());
        }
        // A key of any table.
        5 => {
            let key = &KEYS[rng.below(KEYS.len())];
            let value =
                if rng.below(2) == 0 { key.example } else { VALUES[rng.below(VALUES.len())] };
            if !key.example.starts_with('[') || key.example.starts_with("[\"") {
                system[at].push(format!("{} = {value}", key.name));
            }
        }
        // Another value.
        _ if lines > 0 => {
            let Some((key, _)) =
                system[at][line].split_once(" = ").map(|(key, value)| (key.to_owned(), value))
            else {
                return;
            };
            let line_of = said(&key, pool, rng).filter(|_| rng.below(2) == 0);
            system[at][line] =
                line_of.unwrap_or_else(|| format!("{key} = {}", VALUES[rng.below(VALUES.len())]));
        }
        _ => {}
    }
    if system.is_empty() {
        system.push(vec![]);
    }
}

#[test]
fn s22_changed_systems_are_refused_or_run_and_never_break_anything() {
    let texts = seeds();
    let pool: Vec<Vec<Block>> = texts.iter().map(|text| blocks(text)).collect();
    let asked = std::env::var("TALEA_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let rounds = asked.unwrap_or(ROUNDS);
    let mut rng = Rng::new(0x7a1e_a000_0000_0003);
    let mut accepted = 0;
    for round in 0..rounds {
        let mut system = pool[rng.below(pool.len())].clone();
        for _ in 0..=rng.below(3) {
            mutate(&mut system, &pool, &mut rng);
        }
        let text = system.concat().join("\n");
        let held = catch_unwind(AssertUnwindSafe(|| harness::description(text.as_bytes())));
        assert!(held.is_ok(), "round {round}:\n{text}");
        accepted += usize::from(system::read(&text, "mutated", &()).is_ok());
    }
    // Else nothing but the reader was tried.
    assert!(accepted * 10 > rounds, "only {accepted} of {rounds} were sound");
}
