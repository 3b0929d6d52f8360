//! libFuzzer on sequences of operations: a crowd of clients, a fake kernel and its faults around
//! the broker, every decision taken from the bytes. Panics where a checker of the simulation finds
//! something.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| talea_broker::sim::run_ops(bytes));
