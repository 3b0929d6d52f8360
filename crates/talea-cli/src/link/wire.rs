//! One request, one reply, over a sequenced-packet socket, whoever is at the other end.
//!
//! Not `talea_client`: that heals its connection and keeps grants for a program that lives long; a
//! command asks, hears and ends, and must be able to ask a broker in its own process, which has no
//! path to connect to again.

use super::{Refused, Unreachable};
use anyhow::{Context, bail};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use talea_os::thread::Method;
use talea_os::{Thread, seqpacket};
use talea_proto::wire::decode_reply;
use talea_proto::{MESSAGE_MAX, Named, Reply, Request, VERSION};

/// How long an answer may take. A broker answers within microseconds; foreign plugins have
/// time-outs of their own, well below this.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that has been welcomed.
pub(super) struct Wire {
    socket: OwnedFd,
    /// For people.
    broker: String,
    seq: u32,
    buffer: Vec<u8>,
}

impl Wire {
    /// Says hello over a connected socket.
    pub(super) fn open(socket: OwnedFd, broker: String) -> anyhow::Result<Wire> {
        seqpacket::set_timeout(&socket, PATIENCE)?;
        let mut wire = Wire { socket, broker, seq: 0, buffer: vec![0; MESSAGE_MAX] };
        match wire.ask(&Request::Hello { min: VERSION, max: VERSION }, None)? {
            Reply::Welcome { .. } => Ok(wire),
            Reply::Refused(refusal) => Err(Refused(refusal).into()),
            other => super::unexpected(&other),
        }
    }

    /// Asks; a thread travels as a descriptor.
    pub(super) fn ask(
        &mut self,
        request: &Request,
        thread: Option<&Thread>,
    ) -> anyhow::Result<Reply> {
        self.seq = self.seq.wrapping_add(1);
        // Before Linux 6.9 only main threads have descriptors; the others go by number.
        let fd = thread
            .filter(|thread| thread.method() == Method::Pidfd || thread.tid() == thread.tgid());
        let by_number;
        let request = match (request, thread) {
            (Request::Attach { spec, .. }, Some(thread)) if fd.is_none() => {
                let named = Named::Number(thread.tid().as_raw() as u32);
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
            .map_err(|garbled| anyhow::anyhow!("{}", crate::words::refusal(&garbled.refusal)))
            .with_context(|| format!("the answer of {} cannot be understood", self.broker))?;
        // Before a version is agreed on, refusals may come without our number.
        if seq != self.seq && !matches!(reply, Reply::Refused(_)) {
            bail!("{} answered question {seq} instead of {}", self.broker, self.seq);
        }
        Ok(reply)
    }

    fn lost(&self, error: &io::Error) -> anyhow::Error {
        let broker = &self.broker;
        Unreachable(match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                format!("{broker} did not answer within {} s", PATIENCE.as_secs())
            }
            io::ErrorKind::UnexpectedEof => format!("{broker} ended the connection"),
            _ => format!("{broker} ended the connection: {error}"),
        })
        .into()
    }
}
