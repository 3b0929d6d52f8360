//! A world around the broker: a fake kernel, a driver, clients, a clock, and whoever checks them.
//!
//! Everything is decided by [`Dice`], so a run is its seed (or, for a fuzzer, its bytes). The
//! driver here obeys effects as late as it likes, but in order, as the real one must; the kernel
//! has its own admission and its own mind. What the checkers find is a panic that names the seed.

mod crowd;
mod dice;
mod kernel;
mod world;

pub use crowd::{Crowd, Tally, run_ops, run_seed};
pub use dice::Dice;
pub use kernel::{Kernel, Thread, Took};
pub use world::{Faults, Line, Target, World};
