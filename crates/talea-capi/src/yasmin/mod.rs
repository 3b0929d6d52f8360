//! `yasmin.h`: YASMIN's names over the same applications.
//!
//! Model: one application a program, made by `init` and forgotten by `cleanup`. The paper's calls
//! have no results for errors, so the first refusal is kept, and `start` refuses with it. What kind
//! a task is (activated by its channels, by a call, or by time) is known when everything was
//! declared, so tasks are declared anew at each start.
//!
//! Two locks: that of what is declared, which no job takes, and that of the application's address,
//! which jobs only try.

mod calls;
mod channel;
mod layout;
mod live;
mod select;
mod state;
