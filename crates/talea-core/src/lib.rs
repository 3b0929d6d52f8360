//! What every part of Talea agrees on: time, task parameters, charges, and the description of a
//! machine's real-time setup.
//!
//! The crate is `no_std` with `alloc`: no clock, no files, no threads, no hash map with random
//! order. Whoever needs to know what time it is, is told.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod attr;
pub mod charge;
pub mod cpus;
pub mod criteria;
pub mod heap;
pub mod machine;
pub mod mutation;
pub mod params;
pub mod priority;
pub mod sched;
pub mod server;
pub mod setup;
pub mod time;
pub mod workload;

pub use attr::{Attr, Policy};
pub use charge::Charge;
pub use cpus::CpuSet;
pub use params::Params;
pub use priority::Priority;
pub use time::{Span, Time, Work};
