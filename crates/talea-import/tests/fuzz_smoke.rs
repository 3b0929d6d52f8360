//! Runs the fuzz harness of this crate on its seeds and on mutations of them.

#[path = "../../../fuzz/harness/import.rs"]
#[allow(dead_code, reason = "one harness of several")]
mod harness;
#[path = "../../../fuzz/harness/smoke.rs"]
mod smoke;

use smoke::{malformed, seeds, smoke};

#[test]
fn r19_r27_what_is_imported_loads_where_the_cpus_are() {
    smoke(harness::import_retif, &seeds("import_retif"));
}

#[test]
fn s22_what_is_imported_from_sf3p_can_be_simulated() {
    let mut all = seeds("import_sf3p");
    all.extend(malformed(include_str!("malformed/sf3p.txt")));
    smoke(harness::import_sf3p, &all);
}

#[test]
fn s22_what_is_imported_from_rt_app_can_be_simulated() {
    let mut all = seeds("import_rtapp");
    all.extend(malformed(include_str!("malformed/rtapp.txt")));
    smoke(harness::import_rtapp, &all);
}

#[test]
fn what_is_imported_from_poet_can_be_simulated() {
    let mut all = seeds("import_poet");
    all.extend(malformed(include_str!("malformed/poet.txt")));
    smoke(harness::import_poet, &all);
}

#[test]
fn what_is_imported_from_a653rs_can_be_simulated() {
    let mut all = seeds("import_a653");
    all.extend(malformed(include_str!("malformed/a653.txt")));
    smoke(harness::import_a653, &all);
}
