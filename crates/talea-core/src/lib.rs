//! Types that all Talea crates share: time, task parameters, charges, the configuration of the
//! daemon, and the scheduler engine.
//!
//! The crate is `no_std` with `alloc`: no clock, no files, no threads, no hash map with random
//! order. Callers pass the current time.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod attr;
pub mod chain;
pub mod charge;
pub mod cpus;
pub mod criteria;
pub mod engine;
pub mod health;
pub mod heap;
pub mod mutation;
pub mod params;
pub mod priority;
pub mod quantile;
pub mod rng;
pub mod sched;
pub mod server;
pub mod setup;
pub mod sink;
pub mod time;
pub mod workload;

pub use attr::{Attr, Policy};
pub use charge::Charge;
pub use cpus::CpuSet;
pub use params::Params;
pub use priority::Priority;
pub use quantile::quantile;
pub use time::{Monotonic, Span, Time, Work};
