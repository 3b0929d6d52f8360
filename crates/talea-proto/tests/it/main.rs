//! The codec against values of every kind, and against bytes that are none.

mod golden;
#[path = "../../../../fuzz/harness/mutate.rs"]
mod mutate;
mod round_trip;
mod sentences;
mod strategies;
mod strict;
