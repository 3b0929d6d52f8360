//! libFuzzer on `harness::config`.
#![no_main]

#[path = "../harness/config.rs"]
#[allow(dead_code, reason = "one harness of several")]
mod harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness::config(bytes));
