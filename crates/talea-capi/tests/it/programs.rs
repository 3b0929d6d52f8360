//! The listings of the papers and the examples, compiled unmodified with all warnings as errors,
//! linked and run.

use crate::mock::Mock;
use crate::toolchain::{C11, CPP17, command, example, expect, program};
use std::path::{Path, PathBuf};

/// Examples: the file, the library that it links, and its output after a grant.
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
    for (name, library, text) in EXAMPLES {
        for program in compiled(name, library) {
            let mock = Mock::start();
            let output = expect(&mut command(&program, &mock.path()), 0);
            assert!(output.contains(text), "{name}: {output}");
            drop(mock.until(|world| world.specs.is_empty()));
        }
    }
}

#[test]
fn r6_the_listings_and_examples_report_a_missing_daemon_and_a_refusal() {
    for (name, library, _) in EXAMPLES {
        let program = program(&example(name), C11, library);
        let status = if name.contains("isorc") { 2 } else { 3 };
        expect(&mut command(&program, Path::new("/nonexistent")), status);
        let mock = Mock::start();
        mock.world().deny = true;
        expect(&mut command(&program, &mock.path()), 2);
    }
}

#[test]
fn r5_a_program_of_the_original_runs_and_its_abandoned_tasks_do_not_accumulate() {
    for program in compiled("retif_threads.c", "retif") {
        let mock = Mock::start();
        let output = expect(command(&program, &mock.path()).env("RETIF_PERIOD_MS", "1"), 0);
        let count: u32 =
            output.split(' ').next().and_then(|word| word.parse().ok()).expect("a number first");
        // Four rounds of three tasks. The tasks of the last round exist. Those of the round before
        // may exist: a joined thread may not have ended yet.
        assert!((3..=6).contains(&count), "{output}");
        assert!(output.contains("simulated 0.04 s"), "{output}");
    }
}
