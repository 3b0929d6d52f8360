//! `yasmin.h`: its calls, its configuration, and the listings of the paper.

use crate::apps::{run_as_each_user, workers};
use crate::needs;
use crate::toolchain::{self, C11, CPP17, Language, compile, example, here};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Compiles a program with more options, under another name.
fn variant(source: &Path, language: Language, name: &str, options: &[&str]) -> PathBuf {
    let to = toolchain::folder().join(name);
    let (out, link) = (to.display().to_string(), format!("-L{}", toolchain::folder().display()));
    let own = ["-xnone", "-pthread", "-o", &out, &link, "-ltalea"];
    compile(source, language, &[options, &own].concat());
    to
}

#[test]
fn y1_y10_y13_y14_every_call_of_yasmin_h_with_and_without_the_prefix() {
    let source = here("tests/c/yasmin_calls.c");
    for (name, language, options) in [
        ("yasmin_calls_c", C11, &["-D_POSIX_C_SOURCE=200809L"][..]),
        ("yasmin_calls_cpp", CPP17, &[]),
        ("yasmin_calls_prefixed", C11, &["-D_POSIX_C_SOURCE=200809L", "-DYAS_PREFIXED_ONLY"]),
    ] {
        run_as_each_user(&variant(&source, language, name, options), &[], |output| {
            assert!(output.contains("done\n"), "{output}");
        });
    }
}

#[test]
fn y6_yasmin_selects_versions_by_one_method_per_binary() {
    let source = here("tests/c/yasmin_methods.c");
    for (method, order) in [
        ("YAS_DECLARED", "111111"),
        // The charges 14, 13 and 12 are enough for the larger budget.
        ("YAS_ENERGY", "222111"),
        ("YAS_TRADE_OFF", "222222"),
        ("YAS_MODE", "111222"),
        ("YAS_BIT_MASK", "111222"),
        ("YAS_USER", "112112"),
    ] {
        let selection = format!("-DVERSION_SELECTION={method}");
        let options = ["-D_POSIX_C_SOURCE=200809L", &selection];
        let program = variant(&source, C11, &format!("yasmin_methods_{method}"), &options);
        run_as_each_user(&program, &[], |output| {
            assert!(
                output.lines().any(|line| line == order),
                "{method}: {output}, expected {order}"
            );
        });
    }
}

/// Returns the program of Listings 1 and 2 of the paper.
pub(crate) fn listing() -> PathBuf {
    // Tests share the program: only the first compiles it.
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        let folder = example("yasmin").display().to_string();
        variant(&example("yasmin/listing_2.c"), C11, "yasmin_listing_2", &["-I", &folder])
    });
    compiled.clone()
}

/// Returns the numbers in a line.
fn numbers(line: &str) -> Vec<u64> {
    line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn y1_y6_y9_y22_listings_1_and_2_of_the_yasmin_paper_compile_and_run_as_described() {
    needs!("two CPUs", workers() == 2);
    let program = listing();
    for _ in 0..5 {
        let is_conclusive = Cell::new(true);
        run_as_each_user(&program, &[], |output| {
            let line = output.lines().find(|line| line.contains("joins")).unwrap_or_default();
            let [joins, first, second, left, accelerated, plain] = numbers(line)[..] else {
                panic!("{output}")
            };
            // The charge is at least 12 for nine jobs. A stall may add jobs to the ten.
            assert!(joins >= 10 && accelerated == 9 && plain + 9 >= joins, "{output}");
            if plain + 9 > joins {
                // A stall of a second or longer: the channels of one element were full.
                is_conclusive.set(false);
                return;
            }
            // Elements arrive in the order of the pushes.
            assert_eq!((first, second, left), (2, 4, 1), "{output}");
        });
        if is_conclusive.get() {
            return;
        }
    }
    panic!("a stall in each of five runs");
}

#[test]
fn y22_missing_rights_are_reported_once() {
    needs!("root", talea_kernel_tests::kernel::is_root());
    let program = variant(&here("tests/c/yasmin_calls.c"), CPP17, "yasmin_calls_once", &[]);
    let runs = Cell::new(0);
    run_as_each_user(&program, &[], |output| {
        runs.set(runs.get() + 1);
        // Two applications of the program had no rights in the run of the unprivileged user.
        let times = output.matches("without real-time priorities").count();
        assert!(if runs.get() == 2 { times == 1 } else { times <= 1 }, "{output}");
    });
    assert_eq!(runs.get(), 2);
}

#[test]
fn y1_y14_y22_a_run_that_loses_its_right_ends_and_the_next_run_starts() {
    needs!("root", talea_kernel_tests::kernel::is_root());
    let _bench = talea_kernel_tests::Bench::new("capi_loses");
    let program = variant(&here("tests/c/yasmin_loses_right.c"), C11, "yasmin_loses_right", &[]);
    let mut command = toolchain::command(&program, Path::new("/nonexistent"));
    let output = toolchain::expect(command.arg(talea_kernel_tests::ALICE.to_string()), 0);
    assert!(
        output.starts_with("done\n") && output.contains("without real-time priorities"),
        "{output}"
    );
}
