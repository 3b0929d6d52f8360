//! libFuzzer on `harness::wire`.
#![no_main]

#[path = "../harness/proto.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness::wire(bytes));
