//! `yasmin.h`: its calls, its configuration, and the listings of its paper.

use crate::apps::{as_both, workers};
use crate::needs;
use crate::stage::{self, C11, CPP17, Language, compile, example, here};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A program compiled with more options, under a name of its own.
fn variant(source: &Path, language: Language, name: &str, options: &[&str]) -> PathBuf {
    let to = stage::folder().join(name);
    let (out, link) = (to.display().to_string(), format!("-L{}", stage::folder().display()));
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
        as_both(&variant(&source, language, name, options), &[], |said| {
            assert!(said.contains("done\n"), "{said}");
        });
    }
}

#[test]
fn y6_one_method_per_binary_chooses_the_versions() {
    let source = here("tests/c/yasmin_methods.c");
    for (method, order) in [
        ("YAS_DECLARED", "111111"),
        // 14, 13 and 12 hold the larger budget.
        ("YAS_ENERGY", "222111"),
        ("YAS_TRADE_OFF", "222222"),
        ("YAS_MODE", "111222"),
        ("YAS_BIT_MASK", "111222"),
        ("YAS_USER", "112112"),
    ] {
        let selection = format!("-DVERSION_SELECTION={method}");
        let options = ["-D_POSIX_C_SOURCE=200809L", &selection];
        let program = variant(&source, C11, &format!("yasmin_methods_{method}"), &options);
        as_both(&program, &[], |said| {
            assert!(said.lines().any(|line| line == order), "{method}: {said}, and not {order}");
        });
    }
}

/// Listings 1 and 2 of the paper.
pub(crate) fn listing() -> PathBuf {
    // Tests share it: it is compiled once.
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        let folder = example("yasmin").display().to_string();
        variant(&example("yasmin/listing_2.c"), C11, "yasmin_listing_2", &["-I", &folder])
    });
    compiled.clone()
}

/// The numbers of a line.
fn numbers(line: &str) -> Vec<u64> {
    line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn y1_y6_y9_y22_listings_1_and_2_of_the_paper_compile_and_do_what_they_promise() {
    needs!("two CPUs", workers() == 2);
    let program = listing();
    for _ in 0..5 {
        let undisturbed = Cell::new(true);
        as_both(&program, &[], |said| {
            let line = said.lines().find(|line| line.contains("joins")).unwrap_or_default();
            let [joins, first, second, left, accelerated, plain] = numbers(line)[..] else {
                panic!("{said}")
            };
            // The battery holds 12 at nine questions. A machine that stood still may have let more
            // jobs come than ten.
            assert!(joins >= 10 && accelerated == 9 && plain + 9 >= joins, "{said}");
            if plain + 9 > joins {
                // For a second or longer: there was no room in channels of one.
                undisturbed.set(false);
                return;
            }
            // Data come in the order in which they were put.
            assert_eq!((first, second, left), (2, 4, 1), "{said}");
        });
        if undisturbed.get() {
            return;
        }
    }
    panic!("the machine stands still again and again");
}

#[test]
fn y22_without_rights_it_is_said_once() {
    needs!("root", talea_kernel_tests::kernel::is_root());
    let program = variant(&here("tests/c/yasmin_calls.c"), CPP17, "yasmin_calls_once", &[]);
    let runs = Cell::new(0);
    as_both(&program, &[], |said| {
        runs.set(runs.get() + 1);
        // Two applications of that program had none, as the second user.
        let times = said.matches("without real-time priorities").count();
        assert!(if runs.get() == 2 { times == 1 } else { times <= 1 }, "{said}");
    });
    assert_eq!(runs.get(), 2);
}

#[test]
fn y1_y14_y22_a_run_that_loses_its_right_ends_is_cleaned_up_and_another_one_begins() {
    needs!("root", talea_kernel_tests::kernel::is_root());
    let _bench = talea_kernel_tests::Bench::new("capi_loses");
    let program = variant(&here("tests/c/yasmin_loses.c"), C11, "yasmin_loses", &[]);
    let mut command = stage::command(&program, Path::new("/nonexistent"));
    let said = stage::expect(command.arg(talea_kernel_tests::ALICE.to_string()), 0);
    assert!(said.starts_with("done\n") && said.contains("without real-time priorities"), "{said}");
}
