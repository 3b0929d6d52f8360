//! Applications of tasks in C: what they are refused, and what they do, with real-time priorities
//! and without.

use crate::needs;
use crate::stage::{self, C11, CPP17, Language, command, example, expect, here, program};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use talea_kernel_tests::{Bench, kernel};

/// Nobody, on every distribution.
const STRANGER: u32 = 65534;

/// Applications ask no daemon.
const NOWHERE: &str = "/nonexistent/talea.sock";

/// How many CPUs a test of several may use.
pub(crate) fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(2)
}

/// A program as whoever runs the tests runs it.
fn run(program: &Path) -> Command {
    command(program, Path::new(NOWHERE))
}

/// Runs a program as its caller and, where that is root, as a user without any rights; one run at a
/// time has the machine's CPUs.
pub(crate) fn as_both(program: &Path, arguments: &[String], check: impl Fn(&str)) {
    let bench = Bench::new("capi_apps");
    check(&expect(run(program).args(arguments), 0));
    if !kernel::is_root() {
        eprintln!("run as this user only: root runs it as another one, too");
        return;
    }
    let staged = bench.path("program");
    stage::install(staged.parent().expect("a folder"));
    talea_kernel_tests::bench::copy(program, &staged);
    let mut command = run(&staged);
    command.uid(STRANGER).gid(STRANGER).current_dir("/").args(arguments);
    check(&expect(&mut command, 0));
}

fn compiled(name: &str, language: Language) -> PathBuf {
    program(&here(&format!("tests/c/{name}.c")), language, "talea")
}

#[test]
fn y1_y14_misuse_is_refused_and_nothing_is_declared_while_it_runs() {
    for language in [C11, CPP17] {
        as_both(&compiled("app_calls", language), &[], |_| ());
    }
}

#[test]
fn y1_y2_y3_y4_y5_y6_y9_y10_y13_y14_y17_y22_applications_in_c_do_what_they_declare() {
    for language in [C11, CPP17] {
        let cpus = kernel::cpus().iter().last().map_or(1, |last| last + 1);
        as_both(
            &compiled("app_runs", language),
            &[workers().to_string(), cpus.to_string()],
            |said| {
                assert!(
                    said.starts_with("real-time\n") || said.starts_with("best effort: "),
                    "{said}"
                );
                assert!(
                    cpus == 1 || said.contains("\nshielded\n") || said.contains("\nunshielded: "),
                    "{said}"
                );
            },
        );
    }
}

#[test]
fn y1_y11_y13_an_application_in_c_says_itself_follows_a_table_and_has_servers() {
    for language in [C11, CPP17] {
        as_both(&compiled("app_describes", language), &[], |said| {
            assert!(
                said.contains("\"fork\"") && said.contains("3ms") && said.contains("25ms"),
                "{said}"
            );
        });
    }
}

#[test]
fn y19_nothing_is_allocated_while_it_runs_whatever_jobs_call() {
    as_both(&compiled("app_allocates", C11), &[], |said| {
        assert!(said.contains("0 allocations of "), "{said}");
    });
}

#[test]
fn an_exception_that_leaves_a_job_or_a_chooser_ends_the_program() {
    let _bench = Bench::new("capi_throws");
    let program = compiled("app_throws", CPP17);
    for arguments in [&[][..], &["chooser"]] {
        expect(run(&program).args(arguments), 7);
    }
}

/// The only block of C in a text.
fn c_of(text: &str) -> &str {
    let (_, rest) = text.split_once("\n```c\n").expect("a block of C");
    let (block, rest) = rest.split_once("```\n").expect("its end");
    assert!(!rest.contains("\n```c\n"), "another block of C");
    block
}

/// Lines of a block of this language in the README that has `of` in it.
fn lines_of(language: &str, of: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(here("../../README.md")).expect("a file of the tree");
    let fence = format!("\n```{language}\n");
    let mut blocks =
        readme.split(&fence).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
    let block = blocks.find(|block| block.contains(of)).expect("a block");
    block
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.starts_with("//"))
        .collect()
}

#[test]
fn y1_y7_y9_the_readme_has_lines_of_programs_that_are_compiled() {
    let read =
        |path: &str| std::fs::read_to_string(here("../..").join(path)).expect("a file of the tree");
    for (language, of, from) in [
        ("c", "talea_app_new", "examples/c/fork_join.c"),
        ("rust", "Application::new", "crates/talea-runtime/src/lib.rs"),
    ] {
        let (lines, source) = (lines_of(language, of), read(from));
        assert!(lines.len() > 5, "{lines:?}");
        for line in lines {
            assert!(source.contains(&line), "{from} does not have: {line}");
        }
    }
}

#[test]
fn y1_y7_y9_fork_and_join_in_c_run_and_the_manual_has_their_text() {
    needs!("two CPUs", workers() == 2);
    let read =
        |path: &str| std::fs::read_to_string(here("../..").join(path)).expect("a file of the tree");
    let (manual, source) = (read("docs/manual/runtime.md"), read("examples/c/fork_join.c"));
    assert!(source.contains(c_of(&manual)), "the manual does not have what the example has");
    as_both(&program(&example("fork_join.c"), C11, "talea"), &[], |said| {
        let line = said.lines().find(|line| line.ends_with("frames late")).unwrap_or_default();
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        // A machine that stood still may have let more of them come, and some late.
        let [late, frames] = numbers[..] else { panic!("{said}") };
        assert!(frames >= 20 && late < frames, "{said}");
    });
}
