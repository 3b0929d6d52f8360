//! Tests of `talea-lab` from the outside: short runs of the experiments.

#[path = "../../../talea-cli/tests/it/harness.rs"]
mod harness;
mod l3c;
mod live;
mod speed;

/// Path of the binary under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_talea-lab");
