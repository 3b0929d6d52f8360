//! Deterministic simulation of the broker's environment: a simulated kernel, a driver, clients, a
//! clock, and the checkers.
//!
//! [`Rng`] makes every decision, so a seed (or the bytes of a fuzzer) reproduces a run. The driver
//! executes effects late but in order, like the real one. The kernel has its own admission test and
//! its own faults. A checker that finds a violation panics with the seed.

mod canaries;
mod clients;
mod kernel;
mod plugin_hosts;
mod rng;
mod simulation;
mod state_file;

pub use canaries::Canaries;
pub use clients::{Clients, EventCounts, run_ops, run_seed};
pub use kernel::{ApplyOutcome, Kernel, Thread};
pub use rng::Rng;
pub use simulation::{Connection, Faults, Simulation, Target};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
