//! libFuzzer on `harness::import_a653`.
#![no_main]

#[path = "../harness/import.rs"]
#[allow(dead_code, reason = "one harness of several")]
mod harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness::import_a653(bytes));
