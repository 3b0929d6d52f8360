//! Schedulability tests over the task model of the core. Each file has one test, with its numbered
//! assumptions at the top.
//!
//! The tests are pure and exact: integers of any size, no floats, no clock. The tests of [`rm`] and
//! [`edf`] decide about a list of [`Demand`]s. [`rm`] turns tasks into demands (several tasks in
//! one kernel level, tasks of other plugins above). A caller that needs a verdict in nanoseconds
//! keeps running sums with directed rounding. It calls these tests only if rounding leaves the
//! verdict open, so their correctness matters more than their cost.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod biguint;
pub mod catalogue;
pub mod demand;
pub mod edf;
pub mod multi;
pub mod offline;
pub mod rm;
pub mod supply;
pub mod task;
pub mod test_info;
pub mod tree;
pub mod uni;
pub mod verdict;

pub use demand::Demand;
pub use task::Sporadic;
pub use test_info::TestInfo;
pub use verdict::{Inconclusive, Release, Verdict, Witness};
