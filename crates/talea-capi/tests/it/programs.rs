//! The papers' listings and the examples: compiled unmodified with all warnings as errors, linked,
//! run.

use crate::mock::Mock;
use crate::stage::{C11, CPP17, command, example, expect, program};
use std::path::{Path, PathBuf};

/// All examples with the library that they link, and what they say when they are served.
pub(crate) const EXAMPLES: [(&str, &str, &str); 4] = [
    ("retif_listing_jsa.c", "retif", "done: 10 periods, 10 with their optional part"),
    ("retif_listing_isorc.c", "retif", "done: 10 periods, 10 with their optional part"),
    ("retif_one_task.c", "retif", "Granted by plugin"),
    ("hold_a_grant.c", "talea", "10 periods"),
];

fn compiled(name: &str, library: &str) -> [PathBuf; 2] {
    [C11, CPP17].map(|language| program(&example(name), language, library))
}

#[test]
fn r5_the_listings_and_examples_compile_unmodified_and_run() {
    for (name, library, words) in EXAMPLES {
        for program in compiled(name, library) {
            let mock = Mock::start();
            let said = expect(&mut command(&program, &mock.path()), 0);
            assert!(said.contains(words), "{name}: {said}");
            drop(mock.until(|world| world.specs.is_empty()));
        }
    }
}

#[test]
fn r6_the_listings_and_examples_tell_a_missing_daemon_and_a_refusal() {
    for (name, library, _) in EXAMPLES {
        let program = program(&example(name), C11, library);
        let nowhere = if name.contains("isorc") { 2 } else { 3 };
        expect(&mut command(&program, Path::new("/nonexistent")), nowhere);
        let mock = Mock::start();
        mock.world().deny = true;
        expect(&mut command(&program, &mock.path()), 2);
    }
}

#[test]
fn r5_a_program_of_the_original_runs_and_its_abandoned_tasks_do_not_pile_up() {
    for program in compiled("retif_threads.c", "retif") {
        let mock = Mock::start();
        let said = expect(command(&program, &mock.path()).env("RETIF_PERIOD_MS", "1"), 0);
        let known: u32 =
            said.split(' ').next().and_then(|word| word.parse().ok()).expect("a number first");
        // Four rounds of three tasks. Those of the last round are there; a thread that was just
        // joined may still be about to end, so those of the round before may be, too.
        assert!((3..=6).contains(&known), "{said}");
        assert!(said.contains("simulated 0.04 s"), "{said}");
    }
}
