//! `talea.h`: applications of tasks, over `talea-runtime`.
//!
//! Model: a handle is an application, stopped or running, behind a lock that only calls take which
//! jobs may not make. What jobs may call (activate, say what has become of the world, push, pop)
//! goes beside it: it does not block, allocates nothing and keeps no message.
//!
//! Invariant: while the application runs, nothing that its jobs reach is freed: functions and
//! arguments are the caller's promise, the rest ends with the handle, which stops first.

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
