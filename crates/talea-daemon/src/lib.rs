//! The driver around the broker: sockets, the event loop, the state file, plugins' processes;
//! little else.
//!
//! [`Server`] owns a [`talea_broker::Broker`] and everything of Linux that it needs. The binary
//! `talead` runs one for a whole machine; the command-line tool runs one for itself when there is
//! no daemon ([`Server::embedded`]). Nothing here decides: what a client may have, where it goes
//! and what is put back is the broker's word.
#![forbid(unsafe_code)]

mod convert;
mod entropy;
mod hosts;
pub mod log;
pub mod partitions;
mod rights;
mod server;
pub mod start;
pub mod stop;
mod words;

pub use convert::machine as broker_machine;
pub use server::{Adoption, Ending, Parts, Reload, Server};
