//! Interface to a connected broker, the same for the daemon and for a broker in this process.

use talea_os::Thread;
use talea_proto::{Reply, Request};

/// Connection to a broker.
pub(super) trait Broker {
    /// Sends a request and returns the reply. A thread is sent as a descriptor.
    fn ask(&mut self, request: &Request, thread: Option<&Thread>) -> anyhow::Result<Reply>;
    /// Describes the deciding broker in a sentence.
    fn describe(&self) -> String;
    /// Releases resources that other processes may need, until the next request.
    fn suspend(&mut self);
}
