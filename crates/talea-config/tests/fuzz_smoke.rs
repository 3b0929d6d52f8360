//! Runs the fuzz harness of this crate on its seeds and on mutations of them.

#[path = "../../../fuzz/harness/config.rs"]
#[allow(dead_code, reason = "one harness of several")]
mod harness;
#[path = "../../../fuzz/harness/smoke.rs"]
mod smoke;

use smoke::{malformed, seeds, smoke};

#[test]
fn any_bytes_are_a_configuration_or_are_refused_with_places() {
    let mut all = seeds("config");
    // The table of malformed configurations holds many more ways to be wrong.
    let table = include_str!("malformed/table.txt");
    all.extend(malformed(table));
    smoke(harness::config, &all);
}

#[test]
fn any_text_is_a_duration_or_is_refused() {
    smoke(harness::duration, &seeds("duration"));
}
