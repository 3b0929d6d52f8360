//! Tests of the codec with values of every kind and with invalid bytes.

mod golden;
#[path = "../../../../fuzz/harness/mutate.rs"]
mod mutate;
mod round_trip;
mod sentences;
mod strategies;
mod strict;
