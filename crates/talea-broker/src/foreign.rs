//! Calls of foreign plugins: one in flight per plugin, with a time-out, while other requests are
//! served. Calls wait in turns per user: a user with many requests delays another one by a single
//! call.
//!
//! | state of a host | event | next state |
//! | --- | --- | --- |
//! | *idle* | a call is queued and sent | *busy* |
//! | *busy* | the answer arrives; the next call is sent | *busy*, *idle* |
//! | *idle* | the host is not ready at the start of the daemon | *out of service* |
//! | *idle*, *busy* | time-out, answer outside the bounds, exit | *out of service* |
//! | *out of service* | the driver has started the host, perhaps again | *idle* |
//!
//! An out-of-service plugin is not called any more. Requests that wait for it continue with a
//! rejection, and the specs that it serves keep their attributes.

mod calls;

use crate::admission::AdmissionRequest;
use crate::call_queue::{CallKind, CallQueue};
use crate::input::{ForeignAnswer, ForeignCall, SessionId, Ticket};
use std::collections::BTreeSet;
use talea_core::mutate;
use talea_proto::SpecId;
use talea_proto::refusal::{PluginText, PluginVerdict, RejectionReason};

/// State of one plugin's host.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Call in flight; the inner value is `None` if the request behind it is gone.
    in_flight: Option<(Ticket, Option<Query>)>,
    queue: CallQueue<Target, Query>,
    /// Specs that the plugin holds, as far as it was notified.
    held: BTreeSet<SpecId>,
    /// Answers with the maximum number of new levels since the last other one.
    full_answers: usize,
    out_of_service: bool,
}

/// Call for a host.
#[derive(Debug)]
pub(crate) enum Query {
    /// Ask whether the plugin accepts a task; the admission continues with the answer.
    Accept(Box<AdmissionRequest>),
    /// Notify the plugin; only a missing answer matters.
    Notify(Box<ForeignCall>),
}

/// Object of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// The connection whose request asks; it has at most one unanswered request.
    Session(SessionId),
    /// The spec of a notification.
    Spec(SpecId),
    /// The plugin itself.
    Plugin,
}

impl Query {
    fn target(&self) -> Target {
        match self {
            Query::Accept(request) => Target::Session(request.reply_to.session),
            Query::Notify(call) => spec_of(call).map_or(Target::Plugin, Target::Spec),
        }
    }

    fn kind(&self) -> CallKind {
        match self {
            Query::Accept(_) => CallKind::Question,
            Query::Notify(call) => match **call {
                ForeignCall::Schedule { .. } | ForeignCall::Release { .. } => CallKind::Tasks,
                _ => CallKind::Notice,
            },
        }
    }

    fn into_request(self) -> Option<AdmissionRequest> {
        match self {
            Query::Accept(request) => Some(*request),
            Query::Notify(_) => None,
        }
    }
}

/// Returns the spec of a notification; `None` if it is about the whole plugin.
fn spec_of(call: &ForeignCall) -> Option<SpecId> {
    match *call {
        ForeignCall::Accept { .. } => unreachable!("a question is no notification"),
        ForeignCall::Rank => None,
        ForeignCall::Schedule { spec, .. }
        | ForeignCall::Release { spec }
        | ForeignCall::Attach { spec }
        | ForeignCall::Detach { spec } => Some(spec),
    }
}

/// Reply of a host.
#[derive(Clone, Debug)]
pub(crate) enum HostReply {
    /// An answer.
    Answer(Box<ForeignAnswer>),
    /// The plugin is out of service.
    Failed,
}

impl HostReply {
    pub(crate) fn answer(&self) -> Option<ForeignAnswer> {
        match self {
            HostReply::Answer(answer) => Some(**answer),
            HostReply::Failed => None,
        }
    }

    /// Returns the plugin's reason for its verdict.
    pub(crate) fn text_of(&self, verdict: &PluginVerdict) -> PluginText {
        let gives =
            matches!(verdict, PluginVerdict::No(no) if no.reason == RejectionReason::Foreign);
        let answer = self.answer().filter(|_| mutate!("plugin-foreign-text", gives, false));
        answer.map_or(PluginText::NONE, |answer| answer.text)
    }
}

impl Host {
    /// Returns the notification, unless it and a queued opposite one cancel each other. This bounds
    /// the queue when a client attaches and detaches repeatedly while the plugin is slow.
    fn cancel_opposite(&mut self, call: ForeignCall) -> Option<ForeignCall> {
        let Some(spec) = spec_of(&call) else { return Some(call) };
        let last = self.queue.last_of(Target::Spec(spec));
        let Some((number, Query::Notify(queued))) = last else { return Some(call) };
        let is_opposite = matches!(
            (&**queued, &call),
            (ForeignCall::Attach { .. }, ForeignCall::Detach { .. })
                | (ForeignCall::Detach { .. }, ForeignCall::Attach { .. })
                | (ForeignCall::Schedule { .. }, ForeignCall::Release { .. })
        );
        if is_opposite {
            self.queue.remove(number);
        }
        // The queued schedule may have been about new terms of a spec that the plugin holds.
        let is_release = matches!(call, ForeignCall::Release { .. });
        let must_release =
            mutate!("plugin-foreign-release", is_release && self.held.contains(&spec), false);
        (!is_opposite || must_release).then_some(call)
    }

    /// Removes the queued questions of this connection; `None` means of all.
    fn take_requests(&mut self, session: Option<SessionId>) -> Vec<AdmissionRequest> {
        let numbers: Vec<u64> = if let Some(session) = session {
            let last = self.queue.last_of(Target::Session(session));
            last.map(|(number, _)| number).into_iter().collect()
        } else {
            let asks = |&(_, query): &(u64, &Query)| matches!(query, Query::Accept(_));
            self.queue.iter().filter(asks).map(|(number, _)| number).collect()
        };
        let queries = numbers.into_iter().filter_map(|number| self.queue.remove(number));
        queries.filter_map(Query::into_request).collect()
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.out_of_service
    }
}
