//! Timing, asserted: on a machine with one CPU whose clock counts instructions, nothing disturbs a
//! run, and what a run takes is what our code takes. `cargo xtask guest` boots it; outside of it
//! these tests mean nothing, and `cargo test` does not run them.
#![forbid(unsafe_code)]

mod costs;
mod l3c;
mod native;
mod scene;
mod sf3p;
