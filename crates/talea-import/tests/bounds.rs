//! The largest and the most hostile files: bounded time, memory and diagnostics. The tests only
//! measure that they finish. A quadratic reader would take minutes.

#[path = "../../talea-config/tests/common/large.rs"]
mod large;

use large::{filled, numbered};
use talea_config::FILE_MAX;
use talea_import::{File, retif};

#[test]
fn a_byte_beyond_the_largest_file_is_not_imported() {
    let large = format!("{}{}z", filled("# ", "x"), "y".repeat(FILE_MAX));
    let found = retif(File { origin: "p", text: &large }, None).expect_err("too large");
    assert!(found[0].what.contains("larger than"), "{}", found[0]);
}

#[test]
fn a_megabyte_of_retif_is_imported_or_refused_in_bounded_time() {
    let cases = [
        "x\n".repeat(50_000),
        "EDF 100-100 0\n".repeat(20_000),
        numbered("", "EDF# EDF.so 100-100 0\n"),
        format!("plugins:\n{}", "- name: a\n".repeat(20_000)),
        format!("plugins:\n{}", "  - \n".repeat(20_000)),
        filled("plugins:\n  - cores:\n", "    - 1\n"),
        format!("system:\n{}", "a: b\n".repeat(50_000)),
    ];
    for text in &cases {
        let found = retif(File { origin: "p", text }, None).expect_err("none of these loads");
        assert!((1..=102).contains(&found.len()), "{}", found.len());
    }
    let rules = numbered("", "u# - max_runtime 5\n");
    let found = retif(
        File { origin: "p", text: "EDF EDF.so 100-100 0\n" },
        Some(File { origin: "r", text: &rules }),
    );
    assert!(found.is_err_and(|found| found[0].origin == "r"), "more rules than a file may have");
}
