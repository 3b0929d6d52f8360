//! Broker: sessions, access rules, ledger and plugins, as a pure state machine.
//!
//! Inputs with a time go in; effects come out as data. The broker owns no thread, clock, socket or
//! system call. The daemon passes it inputs and executes its effects; tests do the same with a
//! simulated kernel. A grant has three steps: reserve in the ledger, apply, then confirm or release
//! after [`Input::Done`] with the kernel's result.
#![forbid(unsafe_code)]

mod act_for;
mod admission;
mod adopt;
mod attach;
mod attached_threads;
mod audit;
mod broker;
mod budget_limits;
mod call_queue;
mod change;
mod claim;
mod clients;
mod create;
mod deferred;
mod demotions;
mod exact_test;
mod exclusive;
mod foreign;
mod ids;
mod ledger;
mod level_quota;
mod levels;
mod log_limit;
mod nice;
mod offline;
mod outbox;
mod ownership;
mod pending_changes;
mod placements;
mod plugins;
mod queries;
mod records;
mod refuse;
mod release;
mod reload;
mod replace;
mod restore;
mod rm_bounds;
mod segment_tree;
mod session;
mod slab;
mod span_tree;
mod spec;
mod starvation;
mod subjects;
mod threads;
mod unclaimed;
mod ungranted;
mod users;
mod validate;
mod waiting;

pub mod drift;
pub mod host_call;
pub mod input;
#[cfg(any(test, feature = "sim"))]
#[doc(hidden)]
pub mod sim;
#[cfg(test)]
mod tests;

pub mod plugin;
pub mod plugin_set;
pub mod rules;
pub mod trail;

pub use broker::Broker;
pub use exact_test::ExactTestBudget;
pub use input::{Effect, Input, LogEvent, Peer, SessionId, ThreadFacts, ThreadId, Ticket};
pub use plugin::{BoundsViolation, Offer, PluginRequest, RuntimeCap, ThreadScope, Verdict};
pub use plugin_set::{Placement, PluginSet, SpecSlot};
pub use rules::{Denial, Rules, Snapshot};
pub use subjects::Subject;
pub use trail::AuditRecord;
pub use ungranted::RealTimeThread;
