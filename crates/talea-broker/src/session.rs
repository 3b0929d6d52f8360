//! Connections: hello, queueing of requests, and flow control.
//!
//! A connection has at most one unanswered request. Further requests wait in the session's queue,
//! and meanwhile the connection is not read. A client can therefore fill its own socket buffer, but
//! not the broker's memory.
//!
//! | state of a connection | reason | next state |
//! | --- | --- | --- |
//! | *reading* | a request waits for an external event; requests are queued | *suspended* |
//! | *reading* | the request rate of the subject is exceeded (users.rs) | *suspended* |
//! | *suspended* | no reason holds any more | *reading* |
//! | *rejected*: beyond the quota | hello is answered with the refusal | *closed* |
//! | any, without a hello | [`HELLO_TIMEOUT`] has passed and no message is unread | *closed* |
//!
//! A connection of the broker's own process has no such time-out: it is the client of an embedded
//! daemon, whose end is the end of that daemon.

mod requests;

use crate::input::{Caller, ProcessId, ThreadError, ThreadFacts};
use crate::plugin::ThreadScope;
use crate::subjects::Subject;
use crate::trail::Asked;
use std::collections::VecDeque;
use talea_core::{Monotonic, Span};
use talea_proto::message::Token;
use talea_proto::{Code, Field, Refusal, Request};

/// Maximum time between the accept of a connection and its hello. The libraries send it at once.
const HELLO_TIMEOUT: Span = Span::from_ns(1_000_000_000);

/// State of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) uid: u32,
    /// Subject that the connection and its requests are charged to.
    pub(crate) subject: Subject,
    pub(crate) process: ProcessId,
    pub(crate) client: u32,
    /// Slots of the specs bound to this connection.
    pub(crate) specs: Vec<u32>,
    /// Secret of the client from which its tokens derive.
    pub(crate) seed: Option<Token>,
    /// Current request, for the record of a refusal.
    pub(crate) asked: Asked,
    hello: Hello,
    pending_reply: PendingReply,
    waiting: VecDeque<QueuedRequest>,
    /// Latest time until which the current request may wait for the end of a thread's overrun, or
    /// for the kernel's admission test.
    pub(crate) wait_until: Option<Monotonic>,
    /// Time until which the request rate is exceeded.
    rate_limited_until: Option<Monotonic>,
    is_suspended: bool,
    /// `logged_refusals[code]`: a bit for each field with a logged refusal.
    logged_refusals: [u32; 32],
}

/// State of the hello of a connection.
#[derive(Debug)]
struct Hello {
    /// Whether the client was welcomed.
    is_done: bool,
    /// Time at which the hello is overdue; `None` after the hello or without a time-out.
    until: Option<Monotonic>,
    /// Refusal of a connection beyond the quota.
    rejection: Option<Box<Refusal>>,
}

/// Event that the unanswered request of a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingReply {
    /// There is no unanswered request.
    None,
    /// The kernel, which answers at once.
    Kernel,
    /// An external event: the answer of a foreign plugin, a change of another client, the end of a
    /// zero-lag hold, or the time at which the kernel may accept an apply. The connection is not
    /// read.
    External,
}

/// A request with the facts found by the driver.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) seq: u32,
    pub(crate) request: Request,
    pub(crate) thread: Option<Result<ThreadFacts, ThreadError>>,
    /// Process that the connection is to act for.
    pub(crate) caller: Option<Box<Result<Caller, ThreadError>>>,
    /// Restrictions of the thread that a blocked request has named.
    pub(crate) scope: ThreadScope,
    pub(crate) entropy: u128,
}

impl Session {
    pub(crate) fn reply_sent(&mut self) {
        self.pending_reply = PendingReply::None;
        self.wait_until = None;
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the number of threads that queued requests name.
    pub(crate) fn queued_threads(&self) -> usize {
        self.waiting.iter().filter(|queued| matches!(queued.thread, Some(Ok(_)))).count()
    }

    /// Whether the client has said hello and was welcomed.
    pub(crate) fn is_welcome(&self) -> bool {
        self.hello.is_done
    }

    pub(crate) fn is_rejected(&self) -> bool {
        self.hello.rejection.is_some()
    }

    /// Whether the request rate is exceeded until `at`.
    pub(crate) fn is_rate_limited_until(&self, at: Monotonic) -> bool {
        self.rate_limited_until == Some(at)
    }

    /// Whether the hello is overdue at `at`.
    pub(crate) fn awaits_hello_until(&self, at: Monotonic) -> bool {
        self.hello.until == Some(at)
    }

    /// Records a refusal; returns true if it is the first with this code and field.
    pub(crate) fn is_first_of_cause(&mut self, code: Code, field: Field) -> bool {
        let (of_code, bit) =
            (&mut self.logged_refusals[code as usize % 32], 1 << (field as u32 % 32));
        let first = *of_code & bit == 0;
        *of_code |= bit;
        first
    }
}
