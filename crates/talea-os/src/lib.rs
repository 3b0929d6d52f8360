//! The only part of Talea that knows Linux.
//!
//! Everything above speaks of threads, policies, sockets and files through the types here; every
//! number of a kernel call, every `unsafe` block around one and every trap of a kernel version
//! lives below this line. The crate decides nothing: whom to serve, where and how is told to it,
//! and what came of it is returned with the kernel's own error number.
//!
//! Oldest kernel: 6.1. What newer ones add (`PIDFD_THREAD`, `PIDFD_GET_INFO`, `SO_PEERPIDFD`) is
//! used where it is found and replaced by `/proc` where it is not; [`machine::Machine`] says which.
#![allow(
    unsafe_code,
    reason = "kernel calls that no safe wrapper offers; each block carries its argument"
)]
#![warn(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

pub mod alarm;
pub mod bell;
pub mod clock;
pub mod dropcaps;
pub mod epoll;
pub mod files;
pub mod gate;
pub mod groups;
mod keeper;
pub mod launch;
pub mod machine;
pub mod memory;
pub mod partition;
pub mod peer;
mod perf;
pub mod pilock;
pub mod proc;
pub mod process;
pub mod sched;
pub mod seqpacket;
pub mod shield;
pub mod signals;
pub mod spawn;
pub mod statefile;
pub mod switches;
mod sys;
pub mod thread;
pub mod threadclock;
mod tid;
pub mod users;
pub mod wakes;

pub use sched::{Attr, Policy};
pub use thread::{ApplyError, OpenError, Snapshot, Thread};
pub use tid::Tid;
