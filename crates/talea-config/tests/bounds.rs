//! The largest and the most hostile files: bounded time, memory and diagnostics. The tests only
//! measure that they finish. A quadratic reader would take minutes.

mod common;

use common::large::{filled, numbered};
use common::{names, target};
use talea_config::{FILE_MAX, read, read_bytes};

#[test]
fn a_megabyte_of_anything_is_read_in_bounded_time_with_bounded_complaints() {
    let plugin = "[[plugin]]\nname = \"p\"\nkind = \"edf\"\ncpus = \"0\"\n";
    let cases = [
        ("equal signs", "=\n".repeat(50_000)),
        ("brackets", filled("a = ", "[")),
        ("braces", filled("a = ", "{a=")),
        ("dots", filled("", "a.")),
        ("one key", filled("", "a = 1\n")),
        ("one table", filled("", "[a]\n")),
        ("keys twice", numbered("", "k# = 1\nk# = 2\n")),
        ("one line of unknown keys", numbered("plugin = [", "{ k# = 1 }, ")),
        ("one long line", filled("[daemon]\nx = \"", "y")),
        ("unknown keys", numbered("[daemon]\n", "k# = 1\n")),
        ("plugins", numbered("", "[[plugin]]\nname = \"p#\"\nkind = \"edf\"\ncpus = \"0\"\n")),
        ("plugins of one name", filled("", plugin)),
        (
            "rules",
            numbered(
                plugin,
                "[[rule]]\ndomain = \"##\"\nmin_period = \"9ms\"\nmax_period = \"1ms\"\n",
            ),
        ),
        (
            "rules of one subject",
            filled(plugin, "[[rule]]\ndomain = \"-\"\nmax_utilization = 0.5\n"),
        ),
        (
            "unresolved names",
            numbered(plugin, "[[rule]]\ndomain = \"u#\"\nplugin = \"q#\"\nmax_runtime = 5\n"),
        ),
        ("carets far to the right", filled("plugin = 5\n[daemon]\n", "ä")),
    ];
    for (name, text) in &cases {
        let found = read(text, "f", &names(), &target(4)).expect_err(name);
        assert!((1..=101).contains(&found.len()), "{name}: {}", found.len());
        assert!(found.iter().any(talea_config::Diagnostic::is_error), "{name}");
        let rendered = talea_config::diagnostic::render(&found, false);
        assert!(rendered.len() < 200_000, "{name}: {} bytes of complaints", rendered.len());
    }
}

#[test]
fn what_is_left_out_is_counted() {
    let text = numbered("[daemon]\n", "k# = 1\n");
    let found = read(&text, "f", &names(), &target(4)).expect_err("unknown keys");
    let keys = text.lines().count() - 1;
    let last = found.last().expect("complaints");
    // All of the keys, and that there is no plugin.
    assert!(last.what.contains(&format!("{} more", keys - 100)), "{keys}: {last}");
}

#[test]
fn a_byte_beyond_the_largest_file_is_refused() {
    let text = filled("# ", "x");
    let fits = format!("{}{}", text, "y".repeat(FILE_MAX - text.len()));
    let found = read(&fits, "f", &names(), &target(4)).expect_err("no plugin");
    assert!(found[0].what.contains("no plugin"), "{}", found[0]);
    for bytes in [
        format!("{fits}z").into_bytes(),
        vec![0xff; FILE_MAX + 1],
        "ä".repeat(FILE_MAX).into_bytes(),
    ] {
        let found = read_bytes(&bytes, "f", &names(), &target(4)).expect_err("too large");
        assert!(found[0].what.contains("larger than 1048576 bytes"), "{}", found[0]);
    }
}
