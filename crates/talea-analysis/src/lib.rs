//! Schedulability mathematics over the core's task model: a file per test, its assumptions numbered
//! at the top.
//!
//! Pure and exact: integers of any size, no floats, no clock. A test answers for a list of
//! [`Demand`]s; how tasks become demands (several tasks in one kernel level, tasks of other plugins
//! above) is in [`rm`]. Whoever needs an answer in nanoseconds keeps running sums with directed
//! rounding and asks here only when rounding leaves the answer open; here cost does not matter,
//! being right does.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod card;
pub mod catalogue;
pub mod demand;
pub mod edf;
pub mod multi;
pub mod natural;
pub mod offline;
pub mod rm;
pub mod supply;
pub mod task;
pub mod tree;
pub mod uni;
pub mod verdict;

pub use card::Card;
pub use demand::Demand;
pub use task::Sporadic;
pub use verdict::{Release, Verdict, Why, Witness};
