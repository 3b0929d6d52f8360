//! The broker: sessions, rules, ledger, plugins. Pure: inputs with a time go in, effects come out
//! as data.
//!
//! The second of Talea's two machines without hands (the first is the scheduler machine of
//! `talea-core`). It owns no thread, clock, socket or system call; the daemon feeds it and obeys
//! it, and tests do the same with a fake kernel. A grant has three steps: reserve in the ledger,
//! apply, then confirm or give back when [`Input::Done`] says how it went.
#![forbid(unsafe_code)]

mod adopt;
mod attach;
mod audit;
mod bound;
mod broker;
mod change;
mod check;
mod claim;
mod classes;
mod clients;
mod create;
mod decide;
#[cfg(test)]
mod dice;
mod exact;
mod foreign;
mod ids;
mod later;
mod leaves;
mod ledger;
mod levels;
mod look;
mod plugins;
mod refuse;
mod release;
mod reload;
mod residents;
mod restore;
mod segments;
mod session;
mod slab;
mod spec;
mod threads;
mod users;
mod whose;

pub mod input;
#[cfg(any(test, feature = "sim"))]
#[doc(hidden)]
pub mod sim;
#[cfg(test)]
mod tests;

pub mod plugin;
pub mod rules;
pub mod suite;

pub use broker::Broker;
pub use exact::Tries;
pub use input::{Effect, Input, LogEvent, Peer, SessionId, ThreadFacts, ThreadId, Ticket};
pub use plugin::{Ask, Clip, Offer, Verdict};
pub use rules::{Denial, Rules, Snapshot};
pub use suite::{Lie, Placed, Slot, Suite};
