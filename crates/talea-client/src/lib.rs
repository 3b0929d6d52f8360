//! Rust client of Talea's daemon: requests real-time service for threads.
//!
//! Model: a [`Client`] is one connection, which the client re-establishes when it breaks. A
//! [`Spec`] describes what a task needs. The daemon's acceptance is a [`Grant`], and dropping the
//! grant releases the spec. A thread that is attached to the spec becomes real-time. A [`Periodic`]
//! then wakes the thread at its releases.
//!
//! ```no_run
//! use std::time::Duration;
//! use talea_client::{Client, Periodic, Spec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let period = Duration::from_millis(10);
//! let spec = Spec::builder().period(period).runtime(Duration::from_millis(2)).build()?;
//! let grant = Client::connect()?.create(&spec)??; // failure, then refusal: two different things
//! grant.attach_current()??;
//! let mut periodic = Periodic::start(period);
//! for _ in 0..100 {
//!     // one job
//!     periodic.wait_period();
//! }
//! # Ok(()) }
//! ```
//!
//! Invariants. Every call ends within its time-out, whatever the daemon does. A dead daemon is a
//! [`Failure`], never a signal. When the connection breaks, the next call makes a new connection
//! and claims the granted specs. A restart of the daemon during a call is no failure: the call
//! waits for the next daemon, and has its effect exactly once. One request is in progress at a
//! time. A client may be cloned and shared by threads.
//!
//! Threads that share a client wait for each other on a lock without priority inheritance. So a
//! thread may wait for a thread of lower priority, and for the daemon. A thread of high priority
//! should make its requests before its loop, or have its own client. [`Periodic`] takes no lock and
//! makes no request.
#![forbid(unsafe_code)]

mod client;
mod connection;
mod failure;
mod grant;
mod periodic;
mod retry;
mod session;
mod siblings;
mod spec;

pub use client::{Builder, Client, Explanation};
pub use failure::{Failure, Outcome};
pub use grant::Grant;
pub use periodic::{Activation, OverrunPolicy, Periodic};
pub use spec::{BadSpec, Spec, SpecBuilder};
pub use talea_core::{Attr, Charge, CpuSet, Monotonic, Policy};
pub use talea_proto::message::{
    CpuInfo, Mechanism, Name, Notes, Owner, PluginInfo, SessionInfo, SpecId, SpecInfo, Status,
    Token,
};
pub use talea_proto::{Code, Field, GROUP_MAX, Granted, PluginAnswer, Refusal, Rejection};

/// Default time-out of a call.
pub const DEFAULT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
/// Environment variable that switches Talea off for a program. Any value but the empty one and `0`
/// does so.
pub const DISABLE_ENV: &str = "TALEA_DISABLE";
