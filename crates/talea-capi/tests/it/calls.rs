//! Each result of each call, from C and from C++.

use crate::mock::Mock;
use crate::toolchain::{C11, CPP17, built_library, command, expect, here, program};

/// Compiles a test program in both languages and runs it against a fresh daemon each time.
fn run(name: &str, library: &str, arguments: &[&str], prepare: impl Fn(&Mock)) {
    for language in [C11, CPP17] {
        let program = program(&here(&format!("tests/c/{name}.c")), language, library);
        let mock = Mock::start();
        prepare(&mock);
        expect(command(&program, &mock.path()).args(arguments), 0);
    }
}

#[test]
fn r2_r3_r4_r10_retif_w1_retif_w2_retif_w13_every_call_of_retif_h_has_its_results() {
    run("retif_calls", "retif", &[], |_| ());
}

#[test]
fn r2_every_call_of_talea_h_has_its_results() {
    run("talea_calls", "talea", &[], |_| ());
}

#[test]
fn r4_spec_calls_distinguish_a_denial_and_task_calls_do_not() {
    run("retif_denied", "retif", &[], |mock| mock.world().deny = true);
}

#[test]
fn retif_w14_threads_that_share_the_connection_have_distinct_tasks() {
    run("retif_threads_share", "retif", &[], |_| ());
}

#[test]
fn retif_w3_waits_are_absolute_in_microseconds_and_in_milliseconds_on_request() {
    run("retif_periods", "retif", &["1000"], |_| ());
    let milliseconds = program(&here("tests/c/retif_periods.c"), C11, "retif");
    let mock = Mock::start();
    expect(command(&milliseconds, &mock.path()).arg("1000000").env("RETIF_PERIOD_MS", "1"), 0);
}

#[test]
fn retif_w16_repeated_connects_leak_no_descriptors() {
    run("retif_connects", "retif", &[], |_| ());
}

#[test]
fn talea_disable_refuses_every_connection() {
    let program = program(&here("tests/c/disabled.c"), C11, "talea");
    let mock = Mock::start();
    expect(command(&program, &mock.path()).env("TALEA_DISABLE", "1"), 0);
    assert_eq!(mock.world().connections, 0);
}

#[test]
fn attack_15_two_libraries_in_a_process_have_different_numbers() {
    let program = program(&here("tests/c/two_libraries.c"), C11, "talea");
    let mock = Mock::start();
    let copy = mock.path().with_file_name("libtalea-copy.so");
    std::fs::copy(built_library(), &copy).expect("a copy");
    expect(command(&program, &mock.path()).arg(&copy), 0);
    let world = mock.world();
    let libraries: Vec<u64> = world.seeds.iter().map(|(seed, _)| seed.library()).collect();
    let [one, other] = libraries[..] else { panic!("two grants: {libraries:?}") };
    assert!(one != other && one != 0 && other != 0, "{libraries:?}");
}

#[test]
fn the_end_of_the_process_ends_its_connection() {
    let program = program(&here("tests/c/retif_threads_share.c"), C11, "retif");
    let mock = Mock::start();
    expect(&mut command(&program, &mock.path()), 0);
    drop(mock.until(|world| world.connections == 1 && world.specs.is_empty()));
}
