//! Protocol between the daemon and its clients.
//!
//! One datagram of a UNIX `SOCK_SEQPACKET` socket is one message: an eight-byte [`wire::Header`],
//! then a fixed little-endian body selected by the header's operation. This crate does no I/O.
//! Requests and replies are plain values with `encode` and `decode`. Malformed input from a peer is
//! an error, never an assertion.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod counters;
pub mod host;
pub mod message;
mod name;
mod notes;
pub mod record;
pub mod refusal;
mod token;
pub mod wire;

pub use counters::Counters;
pub use message::{Granted, Owner, Reply, Request, SpecId, SpecInfo, Task, ThreadRef};
pub use refusal::{Code, Field, PluginAnswer, Refusal, Rejection};

/// Protocol version of this build: 4 since a plugin from outside states the reason of a refusal.
pub const VERSION: u16 = 4;
/// Maximum length of a message, in bytes.
pub const MESSAGE_MAX: usize = 16 * 1024;
/// Maximum number of tasks in one grouped request.
pub const GROUP_MAX: usize = 64;
/// Maximum number of plugin answers in one message.
pub const PLUGINS_MAX: usize = talea_core::setup::PLUGINS_MAX;
/// Default path of the daemon's socket.
pub const SOCKET_PATH: &str = "/run/talea/talea.sock";
/// Environment variable that overrides [`SOCKET_PATH`].
pub const SOCKET_ENV: &str = "TALEA_SOCKET";
