//! Functions of `yasmin.h`, over the applications of `talea.h`.
//!
//! Model: each program has one application, created by `init` and forgotten by `cleanup`. The
//! paper's calls have no results for errors. So the library keeps the first refusal, with which
//! `start` then fails. The kind of a task (activated by its channels, by a call, or by time) is
//! known only after all declarations, so each start declares the tasks again.
//!
//! There are two locks: the lock of the declarations, which no job takes, and the lock of the
//! application's address, for which no job waits.

mod calls;
mod channel;
mod layout;
mod live;
mod select;
mod state;
