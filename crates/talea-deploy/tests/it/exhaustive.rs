//! All sequences of a few faults and requests in a world with one task.

use crate::world::{World, fifo, generation, ms, task};
use std::sync::Arc;
use talea_core::CpuSet;
use talea_deploy::input::Exit;
use talea_deploy::{Generation, Request};

#[derive(Clone, Copy, Debug)]
enum Choice {
    Step,
    Exit,
    Vanish,
    Drift,
    Crash,
    LoseNext,
    Apply,
    RollBack,
    Drain,
}

const CHOICES: [Choice; 9] = [
    Choice::Step,
    Choice::Exit,
    Choice::Vanish,
    Choice::Drift,
    Choice::Crash,
    Choice::LoseNext,
    Choice::Apply,
    Choice::RollBack,
    Choice::Drain,
];

fn choose(world: &mut World, choice: Choice, next: &mut u64, words: &[&str]) {
    match choice {
        Choice::Step => {
            world.step();
        }
        Choice::Exit => {
            let running = world.programs.values_mut().find(|program| program.exit.is_none());
            if let Some(program) = running {
                program.exit = Some(Exit::Code(1));
            }
        }
        Choice::Vanish => drop(world.programs.pop_first()),
        Choice::Drift => {
            let threads = world.programs.values_mut().flat_map(|program| &mut program.threads);
            threads.for_each(|(_, attr)| attr.cpus = CpuSet::single(1));
        }
        Choice::Crash => world.crash(),
        Choice::LoseNext => {
            world.faults.lost_effect = 100;
            world.step();
            world.faults.lost_effect = 0;
        }
        Choice::Apply => {
            *next += 1;
            let word = words[*next as usize % words.len()];
            let confirm = next.is_multiple_of(2).then(|| ms(300));
            world.ask(Request::Apply { generation: one(*next, word), confirm });
        }
        Choice::RollBack => {
            world.ask(Request::RollBack { to: None });
        }
        Choice::Drain => {
            world.ask(Request::Drain { task: None, within: ms(100) });
        }
    }
}

fn one(number: u64, word: &str) -> Arc<Generation> {
    let mut spec = task("a", word, 40);
    spec.attr = fifo(40, 0);
    generation(number, vec![spec])
}

/// Explores all continuations of a world. Returns the number of ends.
fn explore(world: &World, next: u64, depth: u32, path: &mut Vec<Choice>) -> u64 {
    if depth == 0 {
        let mut world = world.clone();
        // Trial, stop, back-off: three seconds at an inspection each.
        for _ in 0..60 {
            if world.difference().is_none() || !world.step() {
                break;
            }
        }
        assert_eq!(world.difference(), None, "{path:?}");
        return 1;
    }
    let mut ends = 0;
    for choice in CHOICES {
        let (mut world, mut next) = (world.clone(), next);
        path.push(choice);
        choose(&mut world, choice, &mut next, &["one", "two", "one"]);
        ends += explore(&world, next, depth - 1, path);
        path.pop();
    }
    ends
}

#[test]
fn d1_d2_all_sequences_of_five_choices_end_in_the_desired_state() {
    let mut world = World::new(1);
    world.apply(&one(1, "one"), None);
    let ends = explore(&world, 1, 5, &mut Vec::new());
    assert_eq!(ends, 9_u64.pow(5));
}
