//! Request and reply over a sequenced-packet socket.
//!
//! This module does not use `talea_client`, which reconnects and keeps grants for long-lived
//! programs. A command sends a few requests, also to a broker in its own process, which has no path
//! for a reconnection.

use super::error::{Refused, Unreachable, unexpected};
use anyhow::{Context, bail};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use talea_os::thread::Method;
use talea_os::{Thread, seqpacket};
use talea_proto::wire::decode_reply;
use talea_proto::{MESSAGE_MAX, Reply, Request, ThreadRef, VERSION};

/// Maximum time until a reply arrives. A broker replies within microseconds, and plugins from
/// outside have much shorter time-outs.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a thread is sent as a descriptor. Before Linux 6.9 only main threads have a pidfd, and
/// other threads are sent by number.
pub(super) fn goes_as_descriptor(thread: &Thread) -> bool {
    thread.method() == Method::Pidfd || thread.tid() == thread.tgid()
}

/// Connection after the handshake.
pub(super) struct Wire {
    socket: OwnedFd,
    /// Name of the broker in messages.
    broker: String,
    seq: u32,
    buffer: Vec<u8>,
}

impl Wire {
    /// Performs the handshake over a connected socket.
    pub(super) fn open(socket: OwnedFd, broker: String) -> anyhow::Result<Wire> {
        seqpacket::set_timeout(&socket, REPLY_TIMEOUT)?;
        let mut wire = Wire { socket, broker, seq: 0, buffer: vec![0; MESSAGE_MAX] };
        match wire.ask(&Request::Hello { min: VERSION, max: VERSION }, None)? {
            Reply::Welcome { .. } => Ok(wire),
            Reply::Refused(refusal) => Err(Refused(refusal).into()),
            other => unexpected(&other),
        }
    }

    /// Sends a request and waits for the reply. A thread is sent as a descriptor.
    pub(super) fn ask(
        &mut self,
        request: &Request,
        thread: Option<&Thread>,
    ) -> anyhow::Result<Reply> {
        self.seq = self.seq.wrapping_add(1);
        let fd = thread.filter(|thread| goes_as_descriptor(thread));
        let by_number;
        let request = match (request, thread) {
            (Request::Attach { spec, .. }, Some(thread)) if fd.is_none() => {
                let named = ThreadRef::Tid(thread.tid().as_raw() as u32);
                by_number = Request::Attach { spec: *spec, thread: named };
                &by_number
            }
            (request, _) => request,
        };
        let length = request.encode(self.seq, &mut self.buffer);
        let sent =
            seqpacket::send_waiting(&self.socket, &self.buffer[..length], fd.map(Thread::as_fd));
        sent.map_err(|error| self.lost(&error))?;
        let received = seqpacket::recv_waiting(&self.socket, &mut self.buffer)
            .map_err(|error| self.lost(&error))?;
        if received.len == 0 {
            return Err(self.lost(&io::ErrorKind::UnexpectedEof.into()));
        }
        let (seq, reply) = decode_reply(&self.buffer[..received.len])
            .map_err(|garbled| anyhow::anyhow!("{}", crate::grant_text::refusal(&garbled.refusal)))
            .with_context(|| format!("the reply of {} cannot be decoded", self.broker))?;
        // Before the version is negotiated, refusals may have another sequence number.
        if seq != self.seq && !matches!(reply, Reply::Refused(_)) {
            bail!("{} answered request {seq} instead of {}", self.broker, self.seq);
        }
        Ok(reply)
    }

    fn lost(&self, error: &io::Error) -> anyhow::Error {
        let broker = &self.broker;
        Unreachable(match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                format!("{broker} did not answer within {} s", REPLY_TIMEOUT.as_secs())
            }
            io::ErrorKind::UnexpectedEof => format!("{broker} ended the connection"),
            _ => format!("{broker} ended the connection: {error}"),
        })
        .into()
    }
}
