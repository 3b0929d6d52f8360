//! Driver of the broker: sockets, the event loop, the state file and the processes of plugins.
//!
//! [`Daemon`] owns a [`talea_broker::Broker`] and the Linux resources that it needs. The binary
//! `talead` runs one for the whole machine. The command-line tool runs one for itself when no
//! daemon exists ([`Daemon::embedded`]). The broker makes every decision: which requests are
//! granted, where tasks are placed and what is restored.
#![forbid(unsafe_code)]

mod call_time;
mod canaries;
mod convert;
mod cpu_times;
mod enforcement;
mod entropy;
mod event_loop;
mod event_queue;
mod host_process;
mod hosts;
pub mod log;
mod loop_priority;
pub mod partitions;
mod plugin_output;
mod rights;
pub mod service_manager;
pub mod start;
pub mod stop;
mod text;
pub mod trail;

pub use convert::platform as broker_machine;
pub use event_loop::{Adoption, Daemon, ExitReason, Parts, Reload};
pub use loop_priority::raise_for_start;
