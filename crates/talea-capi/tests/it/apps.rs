//! Applications of tasks in C: refusals and runs, with and without real-time priorities.

use crate::needs;
use crate::toolchain::{self, C11, CPP17, Language, command, example, expect, here, program};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use talea_kernel_tests::{Bench, kernel};

/// UID and GID of the user `nobody`, on every distribution.
const UNPRIVILEGED: u32 = 65534;

/// Path at which no daemon listens.
const NO_DAEMON: &str = "/nonexistent/talea.sock";

/// Returns the number of CPUs that a test of several CPUs may use.
pub(crate) fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(2)
}

/// Returns the command of a program that the user of the tests runs.
fn run(program: &Path) -> Command {
    command(program, Path::new(NO_DAEMON))
}

/// Runs a program as the user of the tests. If that is the superuser, runs the program again as a
/// user without rights. Only one run at a time has the CPUs of the machine.
pub(crate) fn run_as_each_user(program: &Path, arguments: &[String], check: impl Fn(&str)) {
    let bench = Bench::new("capi_apps");
    check(&expect(run(program).args(arguments), 0));
    if !kernel::is_root() {
        eprintln!("not run as an unprivileged user: that requires root");
        return;
    }
    let copy = bench.path("program");
    toolchain::install(copy.parent().expect("a folder"));
    talea_kernel_tests::bench::copy(program, &copy);
    let mut command = run(&copy);
    command.uid(UNPRIVILEGED).gid(UNPRIVILEGED).current_dir("/").args(arguments);
    check(&expect(&mut command, 0));
}

fn compiled(name: &str, language: Language) -> PathBuf {
    program(&here(&format!("tests/c/{name}.c")), language, "talea")
}

#[test]
fn y1_y14_misuse_and_declarations_during_a_run_are_refused() {
    for language in [C11, CPP17] {
        run_as_each_user(&compiled("app_calls", language), &[], |_| ());
    }
}

#[test]
fn y1_y2_y3_y4_y5_y6_y9_y10_y13_y14_y17_y22_applications_in_c_run_as_declared() {
    for language in [C11, CPP17] {
        let cpus = kernel::cpus().iter().last().map_or(1, |last| last + 1);
        run_as_each_user(
            &compiled("app_runs", language),
            &[workers().to_string(), cpus.to_string()],
            |output| {
                assert!(
                    output.starts_with("real-time\n") || output.starts_with("best effort: "),
                    "{output}"
                );
                assert!(
                    cpus == 1
                        || output.contains("\nshielded\n")
                        || output.contains("\nunshielded: "),
                    "{output}"
                );
            },
        );
    }
}

#[test]
fn y1_y11_y13_an_application_in_c_is_described_runs_by_a_table_and_has_servers() {
    for language in [C11, CPP17] {
        run_as_each_user(&compiled("app_describes", language), &[], |output| {
            assert!(
                output.contains("\"fork\"") && output.contains("3ms") && output.contains("25ms"),
                "{output}"
            );
        });
    }
}

#[test]
fn y19_a_run_allocates_no_memory_whichever_calls_its_jobs_make() {
    run_as_each_user(&compiled("app_allocates", C11), &[], |output| {
        assert!(output.contains("0 allocations of "), "{output}");
    });
}

#[test]
fn issue_24_a_wait_in_c_is_described_checked_and_returns_its_result() {
    for language in [C11, CPP17] {
        run_as_each_user(&compiled("app_waits", language), &[], |_| {});
    }
}

#[test]
fn issue_24_a_less_urgent_task_in_c_runs_while_a_job_waits_for_a_device() {
    run_as_each_user(&program(&example("blocks.c"), C11, "talea"), &[], |output| {
        let line = output.lines().find(|line| line.starts_with("log ran")).unwrap_or_default();
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [ran, waits] = numbers[..] else { panic!("{output}") };
        assert!(ran >= 20 && waits > 0, "{output}");
    });
}

#[test]
fn an_exception_that_leaves_a_job_or_a_chooser_aborts_the_program() {
    let _bench = Bench::new("capi_throws");
    let program = compiled("app_throws", CPP17);
    for arguments in [&[][..], &["chooser"]] {
        expect(run(&program).args(arguments), 7);
    }
}

/// Returns the only block of C in a text.
fn c_of(text: &str) -> &str {
    let (_, rest) = text.split_once("\n```c\n").expect("a block of C");
    let (block, rest) = rest.split_once("```\n").expect("the end of the block");
    assert!(!rest.contains("\n```c\n"), "a second block of C");
    block
}

#[test]
fn the_tutorial_of_a_program_quotes_a_program_that_is_compiled() {
    let read =
        |path: &str| std::fs::read_to_string(here("../..").join(path)).expect("a file of the tree");
    let tutorial = read("docs/manual/tutorial-program.md");
    let (block, source) = (c_of(&tutorial), read("examples/convolver/convolver.c"));
    assert!(block.lines().count() > 5, "{block}");
    for line in block.lines() {
        assert!(source.contains(line.trim()), "convolver.c does not contain: {line}");
    }
}

#[test]
fn y1_y7_y9_fork_and_join_in_c_runs_and_the_manual_quotes_it() {
    needs!("two CPUs", workers() == 2);
    let read =
        |path: &str| std::fs::read_to_string(here("../..").join(path)).expect("a file of the tree");
    let (manual, source) = (read("docs/manual/runtime.md"), read("examples/c/fork_join.c"));
    assert!(source.contains(c_of(&manual)), "the manual does not quote the example");
    run_as_each_user(&program(&example("fork_join.c"), C11, "talea"), &[], |output| {
        let line = output.lines().find(|line| line.ends_with("frames late")).unwrap_or_default();
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        // After a stall there may be more frames, and late ones among them.
        let [late, frames] = numbers[..] else { panic!("{output}") };
        assert!(frames >= 20 && late < frames, "{output}");
    });
}
