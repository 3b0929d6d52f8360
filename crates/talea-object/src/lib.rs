//! Scheduling policies and servers from shared objects, for simulations and runs on threads.
//!
//! `include/talea_sched.h` is the interface: the traits [`Policy`](talea_core::sched::Policy) and
//! [`Server`](talea_core::server::Server) as tables of C functions (L8: delivery without source
//! text). [`load`] adds those of an object to a [`Registry`](talea_system::Registry), after the
//! policies have kept the contract of [`talea_core::sched::contract`].
//!
//! An object runs in the process that loads it, with its rights. So only commands of a user load
//! one, never the daemon (`docs/decisions/0019-policies-in-the-process-of-the-run.md`).

#![allow(unsafe_code, reason = "loads and calls code from outside; each block has its argument")]

mod abi;
mod load;
mod policy;
mod server;

pub use load::{MAX_POLICIES, MAX_SERVERS, ObjectError, load};
