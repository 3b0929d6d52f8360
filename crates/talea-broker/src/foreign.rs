//! Calls of foreign plugins: one in flight per plugin, with a time-out, while other requests are
//! served. Calls wait in turns per user: a user with many requests delays another one by a single
//! call.
//!
//! | state of a host | event | next state |
//! | --- | --- | --- |
//! | *idle* | a call is queued and sent | *busy* |
//! | *busy* | the answer arrives; the next call is sent | *busy*, *idle* |
//! | *idle*, *busy* | time-out, answer outside the bounds, exit | *out of service* |
//! | *out of service* | the driver has started the host again | *idle* |
//!
//! An out-of-service plugin is not called any more. Requests that wait for it continue with a
//! rejection, and the specs that it serves keep their attributes.

use crate::admission::{AdmissionRequest, RequestKind};
use crate::broker::{Blocked, Broker};
use crate::input::{Effect, ForeignAnswer, ForeignCall, LogEvent, SessionId, Ticket};
use crate::plugin::RuntimeCap;
use crate::refuse::refusal_without_numbers;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use talea_core::mutate;
use talea_proto::{Code, Field, SpecId};

/// State of one plugin's host.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Call in flight; the inner value is `None` if the request behind it is gone.
    in_flight: Option<(Ticket, Option<Query>)>,
    queue: CallQueue,
    out_of_service: bool,
}

/// Waiting calls. Those of one user keep their order; the users take turns.
///
/// O(waiting calls · log users) per call.
#[derive(Debug, Default)]
struct CallQueue {
    calls: VecDeque<(u32, Query)>,
    /// Number of the last turn of each user since the host was idle.
    turns: BTreeMap<u32, u64>,
    turn: u64,
}

impl CallQueue {
    fn push(&mut self, uid: u32, query: Query) {
        self.calls.push_back((uid, query));
    }

    /// Removes the first call of the user whose last turn is the oldest.
    fn pop(&mut self) -> Option<Query> {
        if self.calls.is_empty() {
            // No call waits or is in flight.
            self.turns.clear();
        }
        let mut seen = BTreeSet::new();
        let firsts = self.calls.iter().enumerate().filter(|(_, (uid, _))| seen.insert(*uid));
        let (_, at) =
            firsts.map(|(at, (uid, _))| (self.turns.get(uid).copied().unwrap_or(0), at)).min()?;
        let (uid, query) = self.calls.remove(mutate!("plugin-foreign-turns", at, 0))?;
        self.turn += 1;
        self.turns.insert(uid, self.turn);
        Some(query)
    }
}

/// Call for a host.
#[derive(Debug)]
pub(crate) enum Query {
    /// Ask whether the plugin accepts a task; the admission continues with the answer.
    Accept(Box<AdmissionRequest>),
    /// Notify the plugin; only a missing answer matters.
    Notify(Box<ForeignCall>),
}

/// Reply of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostReply {
    /// An answer.
    Answer(ForeignAnswer),
    /// The plugin is out of service.
    Failed,
}

impl HostReply {
    pub(crate) fn answer(&self) -> Option<ForeignAnswer> {
        match self {
            HostReply::Answer(answer) => Some(*answer),
            HostReply::Failed => None,
        }
    }
}

impl Host {
    /// Returns the notification, unless it and a queued opposite one cancel each other. This bounds
    /// the queue when a client attaches and detaches repeatedly while the plugin is slow.
    fn cancel_opposite(&mut self, what: ForeignCall) -> Option<ForeignCall> {
        let about = spec_of(&what)?;
        let calls = &mut self.queue.calls;
        let last = calls.iter().rposition(|(_, query)| match query {
            Query::Notify(queued) => spec_of(queued) == Some(about),
            Query::Accept(_) => false,
        });
        let Some(at) = last else { return Some(what) };
        let (_, Query::Notify(queued)) = &calls[at] else { return Some(what) };
        let opposite = matches!(
            (&**queued, &what),
            (ForeignCall::Attach { .. }, ForeignCall::Detach { .. })
                | (ForeignCall::Detach { .. }, ForeignCall::Attach { .. })
                | (ForeignCall::Schedule { .. }, ForeignCall::Release { .. })
        );
        if opposite {
            calls.remove(at);
        }
        (!opposite).then_some(what)
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.out_of_service
    }
}

impl Broker {
    /// Queues a call on behalf of a user and sends it if the host is idle.
    pub(crate) fn enqueue(&mut self, plugin: u32, uid: u32, query: Query) {
        self.hosts[plugin as usize].queue.push(uid, query);
        self.send_next(plugin);
    }

    /// Notifies a foreign plugin of an event of its spec, which user `uid` owns; no effect for
    /// built-in plugins.
    pub(crate) fn notify_plugin(&mut self, plugin: u32, uid: u32, what: ForeignCall) {
        if self.plugin_set.is_foreign(plugin)
            && !self.hosts[plugin as usize].out_of_service
            && let Some(what) = self.hosts[plugin as usize].cancel_opposite(what)
        {
            self.enqueue(plugin, uid, Query::Notify(Box::new(what)));
        }
    }

    fn send_next(&mut self, plugin: u32) {
        let host = &mut self.hosts[plugin as usize];
        if host.out_of_service || host.in_flight.is_some() {
            return;
        }
        let Some(next) = host.queue.pop() else { return };
        let call = match &next {
            Query::Notify(what) => ForeignCall::clone(what),
            Query::Accept(request) => {
                let ask = crate::admission::plugin_request(
                    &request.evaluation.task,
                    RuntimeCap::default(),
                    &request.evaluation.scope,
                );
                ForeignCall::Accept {
                    task: request.evaluation.task,
                    cpus: self.plugin_set.cpus_for(plugin, &ask),
                    replaces: request.evaluation.leaving(),
                    epoch: self.plugin_set.epoch(),
                }
            }
        };
        let ticket = self.ticket(plugin);
        self.hosts[plugin as usize].in_flight = Some((ticket, Some(next)));
        let timeout = self.plugin_set.timeout(plugin);
        self.emit(Effect::CallPlugin { ticket, plugin, call: Box::new(call), timeout });
    }

    pub(crate) fn plugin_answered(&mut self, ticket: Ticket, answer: Option<ForeignAnswer>) {
        let plugin = ticket.0 as u32;
        let Some(host) = self.hosts.get_mut(plugin as usize) else { return };
        if host.in_flight.as_ref().is_none_or(|(in_flight, _)| *in_flight != ticket) {
            return;
        }
        let Some(answer) = answer else {
            let why = format!("no answer within {}", self.plugin_set.timeout(plugin));
            return self.take_out_of_service(plugin, &why);
        };
        let query = host.in_flight.take().and_then(|(_, query)| query);
        if let Some(Query::Accept(request)) = query {
            self.run_admission(*request, Some(HostReply::Answer(answer)));
        }
        self.send_next(plugin);
    }

    pub(crate) fn plugin_out_of_bounds(&mut self, plugin: u32, what: &str) {
        let name = self.names[plugin as usize].to_string();
        self.log(LogEvent::PluginOutOfBounds { name, what: what.to_owned() });
        self.take_out_of_service(plugin, "it answered outside its bounds");
    }

    /// Takes a plugin out of service; requests that wait for it continue.
    pub(crate) fn take_out_of_service(&mut self, plugin: u32, why: &str) {
        let Some(host) = self.hosts.get_mut(plugin as usize).filter(|host| !host.out_of_service)
        else {
            return;
        };
        host.out_of_service = true;
        let in_flight = host.in_flight.take().and_then(|(_, query)| query);
        let queue = std::mem::take(&mut host.queue);
        self.plugin_set.out_of_service(plugin);
        let name = self.names[plugin as usize].to_string();
        self.log(LogEvent::PluginOutOfService { name, why: why.to_owned() });
        self.emit(Effect::StopHost { plugin });
        let queued = queue.calls.into_iter().map(|(_, query)| query);
        for query in in_flight.into_iter().chain(queued) {
            if let Query::Accept(request) = query {
                self.run_admission(*request, Some(HostReply::Failed));
            }
        }
    }

    /// Takes a plugin into service again, and notifies it of its specs as a new daemon would.
    pub(crate) fn take_into_service(&mut self, plugin: u32) {
        let Some(host) = self.hosts.get_mut(plugin as usize).filter(|host| host.out_of_service)
        else {
            return;
        };
        host.out_of_service = false;
        self.plugin_set.into_service(plugin);
        let name = self.names[plugin as usize].to_string();
        self.log(LogEvent::PluginInService { name });
        let served = self.specs.iter().filter(|(_, spec)| spec.plugin == plugin && spec.in_ledger);
        let served: Vec<u32> = served.map(|(slot, _)| slot).collect();
        for slot in served {
            self.notify_scheduled(slot);
            let spec = self.specs.at(slot);
            if spec.thread.is_some() {
                let (id, uid) = (spec.id, spec.uid);
                self.notify_plugin(plugin, uid, ForeignCall::Attach { spec: id });
            }
        }
    }

    /// Cancels all pending requests of a connection that has ended.
    pub(crate) fn cancel_pending(&mut self, session: SessionId) {
        self.blocked
            .retain(|blocked| !matches!(blocked, Blocked::Request(id, _) if *id == session));
        let of_it = |request: &AdmissionRequest| request.reply_to.session == session;
        for request in self.take_pending(of_it) {
            self.drop_request(request);
        }
    }

    /// Refuses the requests whose admission waits for a plugin, a zero-lag hold or a change, when
    /// the daemon stops.
    pub(crate) fn refuse_pending(&mut self) {
        for request in self.take_pending(|_| true) {
            let reply_to = request.reply_to;
            self.drop_request(request);
            self.refuse(reply_to, refusal_without_numbers(Code::Stopping, Field::Request));
        }
    }

    fn drop_request(&mut self, mut request: AdmissionRequest) {
        match request.kind {
            RequestKind::Group { reserved, .. } => {
                mutate!("message-create-group", self.unreserve(reserved), ());
            }
            RequestKind::Replace { facts, .. } => self.forget_unused(Some(Ok(*facts))),
            RequestKind::Create | RequestKind::Change { .. } | RequestKind::Explain => {}
        }
        self.recycle(&mut request.evaluation);
    }

    fn take_pending(
        &mut self,
        wanted: impl Fn(&AdmissionRequest) -> bool,
    ) -> Vec<AdmissionRequest> {
        let mut requests = Vec::new();
        let mut sift = |query: Query| match query {
            Query::Accept(request) if wanted(&request) => {
                requests.push(*request);
                None
            }
            other => Some(other),
        };
        for host in &mut self.hosts {
            if let Some((_, in_flight)) = &mut host.in_flight {
                *in_flight = in_flight.take().and_then(&mut sift);
            }
            let queued = std::mem::take(&mut host.queue.calls).into_iter();
            host.queue.calls =
                queued.filter_map(|(uid, query)| Some((uid, sift(query)?))).collect();
        }
        requests.extend(self.take_waiting(&wanted));
        for blocked in std::mem::take(&mut self.blocked) {
            match blocked {
                Blocked::Resume(request, _) if wanted(&request) => requests.push(*request),
                other => self.blocked.push_back(other),
            }
        }
        requests
    }
}

/// Returns the spec of a notification; `None` for a question.
fn spec_of(what: &ForeignCall) -> Option<SpecId> {
    match *what {
        ForeignCall::Accept { .. } => None,
        ForeignCall::Schedule { spec, .. }
        | ForeignCall::Release { spec }
        | ForeignCall::Attach { spec }
        | ForeignCall::Detach { spec } => Some(spec),
    }
}
