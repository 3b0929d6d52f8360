//! `talea compare` on random systems: trees of policies and servers, on real threads against their
//! model.

use crate::compare::compared_once;
use crate::harness::Scratch;
use crate::soak;
use std::fmt::Write;
use talea_kernel_tests::{Bench, Runs, needs_root};
use talea_sim::rng::Rng;

fn one_of<'a>(rng: &mut Rng, all: &[&'a str]) -> &'a str {
    all[rng.below(all.len() as u64) as usize]
}

/// Makes one scheduler in four non-preemptive.
fn preempts(rng: &mut Rng, text: &mut String) {
    if rng.below(4) == 0 {
        text.push_str("preemptive = false\n");
    }
}

/// Draws one CPU: a policy above up to three groups, one in three of them a server, or a table of
/// partitions; and tasks everywhere.
fn system(rng: &mut Rng) -> String {
    let mut text = "duration = \"200ms\"\n[[scheduler]]\nname = \"cpu\"\n".to_owned();
    let groups = rng.below(4);
    let is_table = groups > 0 && rng.below(4) == 0;
    let above = if is_table { "partitions" } else { one_of(rng, &["edf", "fp", "fp", "fifo"]) };
    // Writing to a String can't fail.
    let _ = writeln!(text, "policy = \"{above}\"");
    if is_table {
        let _ = writeln!(text, "frame = \"{}ms\"", 10 * groups);
        for group in 0..groups {
            let _ = writeln!(
                text,
                "[[scheduler.slot]]\nowner = \"group{group}\"\nlength = \"{}ms\"",
                6 + rng.below(4)
            );
            if group > 0 {
                let _ = writeln!(text, "start = \"{}ms\"", 10 * group);
            }
        }
    } else {
        preempts(rng, &mut text);
    }
    let mut parents: Vec<(String, &str)> =
        if is_table { Vec::new() } else { vec![("cpu".to_owned(), above)] };
    for group in 0..groups {
        let policy = one_of(rng, &["edf", "fp", "rm", "fifo"]);
        let name = format!("group{group}");
        let _ =
            writeln!(text, "[[scheduler]]\nname = \"{name}\"\nin = \"cpu\"\npolicy = \"{policy}\"");
        preempts(rng, &mut text);
        if above == "fp" {
            let _ = writeln!(text, "priority = {}", 1 + rng.below(90));
        }
        if !is_table && above != "fifo" && rng.below(3) == 0 {
            // A scheduler by priorities does not order by deadlines.
            let kinds: &[&str] = if above == "edf" {
                &["deferrable", "cbs", "sporadic"]
            } else {
                &["polling", "deferrable", "sporadic"]
            };
            let (kind, period) = (one_of(rng, kinds), rng.between(20, 60));
            let _ = writeln!(
                text,
                "server = \"{kind}\"\nbudget = \"{}us\"\nperiod = \"{period}ms\"",
                period * rng.between(100, 300)
            );
        }
        parents.push((name, policy));
    }
    let tasks = rng.between(2, 6);
    for task in 0..tasks {
        let (parent, policy) = &parents[rng.below(parents.len() as u64) as usize];
        let period = rng.between(25, 120);
        // In total at most two thirds.
        let cost = period * rng.between(150, 650) / tasks;
        let _ = writeln!(
            text,
            "[[task]]\nname = \"task{task}\"\nin = \"{parent}\"\nperiod = \"{period}ms\"\noffset = \"{}ms\"\ncost = \"{cost}us\"",
            rng.between(1, period - 1)
        );
        if *policy == "fp" {
            let _ = writeln!(text, "priority = {}", 1 + rng.below(90));
        }
    }
    text
}

/// Checks the systems of `numbers`, each in up to `tries` runs. No run may contradict the model. In
/// a soak test all systems must have a conclusive run, otherwise two in five, because CPU stalls
/// may make runs inconclusive.
fn agree(numbers: std::ops::Range<u64>) {
    let scratch = Scratch::new();
    let tries = soak::many(3, 40);
    let all = numbers.end - numbers.start;
    let mut runs = Runs::at_least(soak::many(2 * all / 5, all) as u32);
    for number in numbers {
        let text = system(&mut Rng::for_part(18, soak::seed(number)));
        println!("system {number}");
        scratch.file("random.toml", &text);
        let mut is_conclusive = || {
            let ended = compared_once(&scratch, &["random.toml"]);
            runs.add(ended.is_some());
            ended.is_some()
        };
        if !(0..tries).any(|_| is_conclusive()) {
            println!("system {number} is inconclusive");
        }
    }
}

#[test]
fn s18_s2_random_trees_do_on_threads_what_their_models_say() {
    needs_root!();
    let _bench = Bench::new("cli_random");
    // The test below covers the other half.
    agree(0..soak::many(25, 100));
}

#[test]
fn l11_s18_more_random_trees_do_on_threads_what_their_models_say() {
    needs_root!();
    let _bench = Bench::new("cli_random_more");
    agree(1_000..1_000 + soak::many(25, 100));
}
