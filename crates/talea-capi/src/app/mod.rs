//! Applications of `talea.h`, over `talea-runtime`.
//!
//! Model: a handle is an application, stopped or running, behind a lock. Only calls that jobs may
//! not make take the lock. The calls of jobs (activate, change a condition, push, pop) take no
//! lock: they do not block, allocate nothing and keep no message.
//!
//! Invariant: while the application runs, nothing that its jobs reach is freed. The caller promises
//! that for functions and arguments. Everything else ends with the handle, which stops the run
//! first.

mod calls;
mod channel;
mod choice;
mod convert;
mod job;
mod live;
mod report;
mod state;

pub(crate) use calls::text;
pub(crate) use channel::{Not, Pipe};
pub(crate) use job::{Call, choosing, is_inside};
pub(crate) use state::{App, wrong};
