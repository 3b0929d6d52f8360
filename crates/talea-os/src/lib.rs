//! Linux system calls behind safe types.
//!
//! All other crates use threads, policies, sockets and files through the types of this crate.
//! Kernel constants, `unsafe` blocks around system calls and workarounds for kernel versions are
//! confined to it. The crate makes no decision: the caller passes what to do, and each call returns
//! its result with the kernel's error number.
//!
//! Oldest kernel: 6.1. Newer features (`PIDFD_THREAD`, `PIDFD_GET_INFO`, `SO_PEERPIDFD`) are used
//! where the kernel has them and are replaced by `/proc` where it does not; [`sysinfo::SystemInfo`]
//! reports which.
#![allow(
    unsafe_code,
    reason = "kernel calls that no safe wrapper offers; each block carries its argument"
)]
#![warn(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

pub mod bounded_read;
pub mod capabilities;
pub mod cgroup;
pub mod clock;
pub mod cpu_events;
pub mod epoll;
pub mod event_count;
pub mod file_lock;
pub mod files;
pub mod launch;
pub mod mlock;
pub mod notify_socket;
pub mod partition;
pub mod peer;
mod perf;
pub mod pi_mutex;
pub mod proc;
pub mod proc_events;
pub mod process;
pub mod process_handle;
mod reaper;
pub mod sched;
pub mod sched_calls;
pub mod seqpacket;
pub mod shield;
pub mod signal_stop;
pub mod signals;
pub mod spawn;
pub mod statefile;
pub mod subuid;
pub mod switch_trace;
mod sys;
pub mod sysinfo;
pub mod task_clock;
pub mod thread;
pub mod thread_cpu_clock;
mod tid;
pub mod timerfd;
pub mod users;
pub mod wakeup_events;

pub use sched::{Attr, Policy};
pub use thread::{ApplyError, OpenError, Snapshot, Thread};
pub use tid::Tid;
