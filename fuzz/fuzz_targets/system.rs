//! libFuzzer on `harness::description`.
#![no_main]

#[path = "../harness/system.rs"]
#[allow(dead_code, reason = "one harness of several")]
mod harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness::description(bytes));
