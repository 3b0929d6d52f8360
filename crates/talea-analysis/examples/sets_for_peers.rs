//! Writes random sets with their bounds, for a comparison with another tool: `sets_for_peers
//! [SETS]`. `pyrta.py` beside this file reads them.
//!
//! Four models (preemptive, non-preemptive, floating sections, preemption points) under FP, also
//! with jitter, and under EDF. The other tool counts deadlines from the release, so that jitter
//! under EDF means something else there. One line per set: `GROUP POLICY C,T,D,J,LONGEST,LAST,BOUND
//! ...`, the most urgent task first; bounds count from the release, and `-` is none.

use std::fmt::Write;
use talea_analysis::Sporadic;
use talea_analysis::uni::{Scratch, Sections, limited_edf, limited_fp};
use talea_core::{Span, Work};
use talea_sim::rng::Rng;

const MODELS: [&str; 4] = ["preemptive", "non-preemptive", "floating", "points"];

fn set(rng: &mut Rng, has_jitter: bool) -> Vec<Sporadic> {
    let count = rng.between(2, 6);
    let one = |rng: &mut Rng| {
        let period = rng.between(4, 60);
        let cost = rng.between(1, (period * 125 / 100 / count).max(1));
        let deadline = rng.between(cost, 2 * period);
        let jitter = if has_jitter { rng.below(period) } else { 0 };
        let (cost, period, deadline) =
            (Work::from_ns(cost), Span::from_ns(period), Span::from_ns(deadline));
        Sporadic { jitter: Span::from_ns(jitter), ..Sporadic::new(cost, period, deadline) }
    };
    (0..count).map(|_| one(rng)).collect()
}

fn sections(rng: &mut Rng, model: &str, cost: u64) -> Sections {
    let longest = rng.between(1, cost);
    let (longest, last) = match model {
        "preemptive" => (1, 1),
        "non-preemptive" => (cost, cost),
        "floating" => (longest, 1),
        _ => (longest, rng.between(1, longest)),
    };
    Sections { longest: Work::from_ns(longest), last: Work::from_ns(last) }
}

fn main() {
    let sets: u64 =
        std::env::args().nth(1).map_or(5_000, |sets| sets.parse().expect("a number of sets"));
    let mut scratch = Scratch::new();
    for (number, (policy, has_jitter)) in (0..).zip([("fp", false), ("fp", true), ("edf", false)]) {
        for (model_number, model) in (0..).zip(MODELS) {
            let mut rng = Rng::for_part(number, model_number);
            for _ in 0..sets {
                let tasks = set(&mut rng, has_jitter);
                let chosen: Vec<Sections> =
                    tasks.iter().map(|task| sections(&mut rng, model, task.cost.as_ns())).collect();
                let mut bounds = vec![None; tasks.len()];
                let sections = |at: usize| chosen[at];
                let bounded = if policy == "fp" {
                    limited_fp::bounds(&tasks, sections, &mut scratch, &mut bounds)
                } else {
                    limited_edf::bounds(&tasks, sections, &mut scratch, &mut bounds)
                };
                bounded.expect("in range");
                let mut line =
                    format!("{policy}{}-{model} {policy}", if has_jitter { "-jitter" } else { "" });
                for ((task, sections), bound) in tasks.iter().zip(&chosen).zip(&bounds) {
                    let numbers = [
                        task.cost.as_ns(),
                        task.period.as_ns(),
                        task.deadline.as_ns(),
                        task.jitter.as_ns(),
                        sections.longest.as_ns(),
                        sections.last.as_ns(),
                    ];
                    line.push(' ');
                    for number in numbers {
                        write!(line, "{number},").expect("a string");
                    }
                    match bound {
                        Some(bound) => write!(line, "{}", bound.release.as_ns()).expect("a string"),
                        None => line.push('-'),
                    }
                }
                println!("{line}");
            }
        }
    }
}
