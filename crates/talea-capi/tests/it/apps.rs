//! Applications of tasks in C: what they are refused, and what they do, with real-time priorities and without.

use crate::stage::{self, C11, CPP17, Language, command, expect, here, program};
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

/// Runs a program as its caller and, where that is root, as a user without any rights; one run at a time has the machine's CPUs.
pub(crate) fn as_both(program: &Path, arguments: &[String], check: impl Fn(&str)) {
    let bench = Bench::new("capi_apps");
    check(&expect(run(program).args(arguments), 0));
    if !kernel::is_root() {
        eprintln!("run as this user only: root runs it as another one, too");
        return;
    }
    let staged = bench.path("program");
    stage::install(staged.parent().expect("a folder"));
    std::fs::copy(program, &staged).expect("ours");
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
fn y1_y2_y3_y4_y5_y6_y9_y10_y13_y14_y22_applications_in_c_do_what_they_declare() {
    for language in [C11, CPP17] {
        as_both(&compiled("app_runs", language), &[workers().to_string()], |said| {
            assert!(said == "real-time\n" || said == "best effort\n", "{said}");
        });
    }
}
