//! Deployment: a described system that is kept in force, as a pure state machine.
//!
//! Inputs with a time go in; effects come out as data. The machine owns no thread, clock, socket or
//! system call. A driver passes observations of the computer and executes the effects; tests do the
//! same with a simulated computer.
//!
//! Model: the *desired* state is a [`Generation`], which is immutable. The *observed* state is an
//! [`Observation`]: the programs of the deployment that exist, with their threads. At every
//! observation the machine compares both and emits the effects that are missing. The comparison is
//! level-triggered: no effect is assumed to have taken place, so a lost effect, a lost answer and a
//! restart of the machine need no code of their own.
//!
//! | state | file |
//! | --- | --- |
//! | generation in force, trial, requests | `deployment.rs` |
//! | comparison of programs | `reconcile.rs` |
//! | one task: restarts, back-off, attempts | `task_state.rs` |
//! | one thread: repairs, contention | `drift.rs` |
//! | what a restart of the machine needs | `record.rs` |
//!
//! `mechanism.rs` derives the attributes of a generation from a described tree, `difference.rs`
//! compares two generations, and `text/` has the forms for files and messages.
//!
//! Absent on purpose: modes, open reservations and bindings of foreign threads, which have no
//! effects yet; and the store of generations, which is files.
#![forbid(unsafe_code)]

mod deployment;
mod difference;
mod drift;
pub mod generation;
mod ids;
mod inactive;
pub mod input;
pub mod mechanism;
mod reconcile;
pub mod record;
mod sha256;
pub mod status;
mod task_state;
pub mod text;

pub use deployment::{ADJUST_PERIOD, Deployment, INSPECTION_PERIOD, STOP_GRACE};
pub use difference::Difference;
pub use drift::{CONTENTION_WINDOW, MAX_REPAIRS, MAX_SETS, REFUSED_RETRY};
pub use generation::{
    Command, FileHash, Generation, Governed, InvalidGeneration, Role, RootSpec, TaskSpec,
};
pub use inactive::Inactive;
pub use input::{Effect, EffectNumber, Event, Input, Observation, ProcessId, Request, ThreadId};
pub use record::Record;
pub use status::{Condition, Status, TaskStatus};
pub use talea_core::health::{Health, OnFailure, Restart, RestartOn};
