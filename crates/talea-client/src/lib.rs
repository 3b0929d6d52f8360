//! Ask Talea's daemon for real-time service, from Rust.
//!
//! Model: a [`Client`] is one connection that heals itself. A [`Spec`] says what a task needs; what
//! the daemon accepts is a [`Grant`], and dropping the grant gives it back. Attach a thread and it
//! becomes real-time; a [`Periodic`] then wakes it at the right times.
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
//! [`Failure`], never a signal. When the connection breaks, the next call makes a new one and
//! claims what was granted. One request is under way at a time; a client may be shared by threads
//! and cloned.
//!
//! Threads that share a client wait for each other behind a lock that does not inherit priorities,
//! so that an urgent one may wait for a less urgent one, and with it for the daemon. Ask before the
//! loop, or give the urgent thread a client of its own; [`Periodic`] takes no lock and asks nobody.
#![forbid(unsafe_code)]

mod client;
mod connection;
mod failure;
mod grant;
mod periodic;
mod session;
mod spec;

pub use client::{Builder, Client, Explanation};
pub use failure::{Failure, Outcome};
pub use grant::Grant;
pub use periodic::{Activation, Late, Periodic};
pub use spec::{BadSpec, Spec, SpecBuilder};
pub use talea_core::{Attr, Charge, CpuSet, Policy};
pub use talea_proto::message::{
    CpuInfo, Mechanism, Name, Notes, Owner, PluginInfo, SessionInfo, SpecId, SpecInfo, Status,
    Token,
};
pub use talea_proto::{Answer, Code, Field, GROUP_MAX, Granted, No, Refusal};

/// A daemon that has not answered by then is not going to.
pub const DEFAULT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
/// The environment variable that switches Talea off for a program: any value but empty and `0`.
pub const DISABLE_ENV: &str = "TALEA_DISABLE";
