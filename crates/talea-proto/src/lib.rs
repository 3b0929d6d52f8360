//! What the daemon and its clients say to each other.
//!
//! One datagram of a UNIX `SOCK_SEQPACKET` socket is one message: an eight-byte [`wire::Header`],
//! then a fixed little-endian body that the header's operation names. Nothing here does I/O;
//! requests and replies are plain values with `encode` and `decode`, and a peer's nonsense is an
//! error, never an assertion.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod host;
pub mod message;
pub mod record;
pub mod refusal;
pub mod wire;

pub use message::{Granted, Named, Owner, Reply, Request, SpecId, SpecInfo, Task};
pub use refusal::{Answer, Code, Field, No, Refusal};

/// The protocol version that this build speaks: 2 since a plugin's "no" carries a witness.
pub const VERSION: u16 = 2;
/// No message is longer, in bytes.
pub const MESSAGE_MAX: usize = 16 * 1024;
/// Most tasks in one grouped request.
pub const GROUP_MAX: usize = 64;
/// Most answers of plugins in one message.
pub const PLUGINS_MAX: usize = talea_core::setup::PLUGINS_MAX;
/// Where the daemon listens unless told otherwise.
pub const SOCKET_PATH: &str = "/run/talea/talea.sock";
/// The environment variable that names another socket.
pub const SOCKET_ENV: &str = "TALEA_SOCKET";
