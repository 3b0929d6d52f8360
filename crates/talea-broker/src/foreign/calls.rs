//! Calls of the hosts, and their answers.

use super::{HostReply, Query};
use crate::admission::{AdmissionRequest, RequestKind};
use crate::broker::Broker;
use crate::input::{Effect, ForeignAnswer, ForeignCall, LogEvent, SessionId, Ticket};
use crate::plugin::RuntimeCap;
use crate::plugin_set::SpecSlot;
use crate::refuse::refusal_without_numbers;
use crate::spec::PendingOp;
use talea_core::mutate;
use talea_proto::{Code, Field, SpecId};

impl Broker {
    /// Queues a call on behalf of a user and sends it if the host is idle.
    pub(crate) fn enqueue(&mut self, plugin: u32, uid: u32, query: Query) {
        self.hosts[plugin as usize].queue.push(uid, query.kind(), query.target(), query);
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
                let leaving = self.leaving_slot(&request.evaluation).map(SpecSlot);
                let ask = crate::admission::plugin_request(
                    &request.evaluation.task,
                    RuntimeCap::default(),
                    &request.evaluation.scope,
                );
                ForeignCall::Accept {
                    task: request.evaluation.task,
                    cpus: self.plugin_set.cpus_for(plugin, &ask, leaving),
                    preferred: ask.preferred,
                    replaces: request.evaluation.leaving(),
                    epoch: self.plugin_set.epoch(),
                }
            }
        };
        let held = &mut self.hosts[plugin as usize].held;
        match call {
            ForeignCall::Schedule { spec, .. } => drop(held.insert(spec)),
            ForeignCall::Release { spec } => drop(held.remove(&spec)),
            _ => {}
        }
        let ticket = self.ticket(plugin);
        self.hosts[plugin as usize].in_flight = Some((ticket, Some(next)));
        let timeout = self.plugin_set.timeout(plugin);
        self.emit(Effect::CallPlugin { ticket, plugin, call: Box::new(call), timeout });
    }

    pub(crate) fn plugin_answered(&mut self, ticket: Ticket, answer: Option<&ForeignAnswer>) {
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
            self.run_admission(*request, Some(HostReply::Answer(Box::new(*answer))));
        }
        self.send_next(plugin);
    }

    /// Applies the levels that a foreign plugin gives to its specs in answer to a notification.
    pub(crate) fn plugin_ranked(&mut self, plugin: u32, ranks: &[(SpecId, i32)], more: bool) {
        let Some(host) = self.hosts.get_mut(plugin as usize) else { return };
        let notified = matches!(&host.in_flight, Some((_, Some(Query::Notify(_)))));
        if ranks.is_empty() && !more || host.out_of_service {
            host.full_answers = 0;
            return;
        }
        if !mutate!("plugin-rank-question", notified, true) {
            return self.plugin_out_of_bounds(plugin, "new levels in answer to a question");
        }
        host.full_answers = if more { host.full_answers + 1 } else { 0 };
        // One new level for each spec needs no more answers.
        let enough = host.held.len() / ranks.len().max(1) + 1;
        let is_endless = mutate!("plugin-rank-endless", host.full_answers > enough, false);
        let valid = ranks.iter().map(|&(spec, level)| self.check_rank(plugin, spec, level));
        let checked: Result<Vec<(SpecId, u8)>, String> = valid.collect();
        match checked {
            Err(what) => return self.plugin_out_of_bounds(plugin, &what),
            Ok(_) if is_endless => {
                return self.plugin_out_of_bounds(plugin, "more new levels than it has tasks");
            }
            Ok(checked) => {
                for (spec, level) in checked {
                    self.set_rank(plugin, spec, level);
                }
            }
        }
        self.apply_moves(&[]);
        if more {
            self.notify_plugin(plugin, 0, ForeignCall::Rank);
        }
    }

    /// Checks a new level; the error continues a sentence that begins "it named".
    fn check_rank(&self, plugin: u32, spec: SpecId, level: i32) -> Result<(SpecId, u8), String> {
        let held = self.hosts[plugin as usize].held.contains(&spec);
        if !mutate!("plugin-rank-owner", held, true) {
            return Err(format!("a new level for grant {}, which it does not hold", spec.0));
        }
        let level = self.plugin_set.check_level(plugin, level).map_err(|violation| violation.0)?;
        Ok((spec, level))
    }

    /// Sets the level of a spec that the plugin holds. No effect if the spec has ended or moved to
    /// another plugin, and the plugin is yet to be notified.
    fn set_rank(&mut self, plugin: u32, id: SpecId, level: u8) {
        let Some(slot) = self.ids.get(id) else { return };
        let spec = self.specs.at_mut(slot);
        if let PendingOp::Changing(rollback) = &mut spec.step {
            // The plugin is not notified of the new terms yet.
            if rollback.plugin == plugin {
                mutate!("plugin-rank-change", rollback.offer.priority = level);
            }
            return;
        }
        if spec.plugin == plugin && spec.in_ledger && spec.offer.priority != level {
            spec.offer.priority = level;
            self.plugin_set.set_level(SpecSlot(slot), level);
            mutate!("plugin-rank-record", self.emit(Effect::WriteRecord { slot }));
        }
    }

    pub(crate) fn plugin_out_of_bounds(&mut self, plugin: u32, what: &str) {
        let name = self.plugin_name(plugin).to_string();
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
        host.held.clear();
        host.full_answers = 0;
        let queue = std::mem::take(&mut host.queue);
        self.plugin_set.out_of_service(plugin);
        let name = self.plugin_name(plugin).to_string();
        self.log(LogEvent::PluginOutOfService { name, why: why.to_owned() });
        self.emit(Effect::StopHost { plugin });
        for query in in_flight.into_iter().chain(queue.into_calls()) {
            if let Query::Accept(request) = query {
                self.run_admission(*request, Some(HostReply::Failed));
            }
        }
    }

    /// Takes a plugin out of service whose host is still starting.
    pub(crate) fn host_starting(&mut self, plugin: u32) {
        let Some(host) = self.hosts.get_mut(plugin as usize) else { return };
        host.out_of_service = true;
        self.plugin_set.out_of_service(plugin);
        let name = self.plugin_name(plugin).to_string();
        let why = "its host is still starting".to_owned();
        self.log(LogEvent::PluginOutOfService { name, why });
    }

    /// Takes a plugin into service again, and notifies it of its specs as a new daemon would.
    pub(crate) fn take_into_service(&mut self, plugin: u32) {
        let Some(host) = self.hosts.get_mut(plugin as usize).filter(|host| host.out_of_service)
        else {
            return;
        };
        host.out_of_service = false;
        self.plugin_set.into_service(plugin);
        let name = self.plugin_name(plugin).to_string();
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

    /// Cancels the pending request of a connection that has ended.
    pub(crate) fn cancel_pending(&mut self, session: SessionId) {
        self.changes.drop_requests_of(session);
        for request in self.take_pending(Some(session)) {
            self.drop_request(request);
        }
    }

    /// Refuses the requests whose admission waits for a plugin, a zero-lag hold or a change, when
    /// the daemon stops.
    pub(crate) fn refuse_pending(&mut self) {
        for request in self.take_pending(None) {
            let reply_to = request.reply_to;
            self.drop_request(request);
            self.refuse(reply_to, refusal_without_numbers(Code::Stopping, Field::Request));
        }
    }

    fn drop_request(&mut self, mut request: AdmissionRequest) {
        match request.kind {
            RequestKind::Group { reserved, .. } => {
                mutate!("message-create-group", self.unreserve(reserved));
            }
            RequestKind::Replace { facts, .. } => self.forget_unused(Some(Ok(*facts))),
            RequestKind::Create | RequestKind::Change { .. } | RequestKind::Explain => {}
        }
        self.recycle(&mut request.evaluation);
    }

    /// Removes the pending requests of this connection; `None` means of all.
    fn take_pending(&mut self, session: Option<SessionId>) -> Vec<AdmissionRequest> {
        let mut requests = Vec::new();
        let wanted = |request: &AdmissionRequest| {
            session.is_none_or(|session| request.reply_to.session == session)
        };
        for host in &mut self.hosts {
            if let Some((_, in_flight)) = &mut host.in_flight
                && matches!(in_flight, Some(Query::Accept(request)) if wanted(request))
            {
                requests.extend(in_flight.take().and_then(Query::into_request));
            }
            requests.extend(host.take_requests(session));
        }
        requests.extend(self.take_waiting(wanted));
        requests.extend(self.changes.take_admissions(wanted));
        requests
    }
}
