//! Runs the fuzz harness of this crate on its seeds and on mutations of them.

#[path = "../../../fuzz/harness/system.rs"]
#[allow(dead_code, reason = "one harness of several")]
mod harness;
#[path = "../../../fuzz/harness/smoke.rs"]
mod smoke;

use smoke::{malformed, seeds, smoke};

#[test]
fn s22_any_bytes_are_a_system_that_can_be_simulated_or_are_refused_with_places() {
    let mut all = seeds("system");
    let table = include_str!("malformed/systems.txt");
    all.extend(malformed(table));
    smoke(harness::description, &all);
}
