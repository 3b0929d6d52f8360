//! Evaluation of a request by the plugins, one after the other.

use super::{AdmissionRequest, Evaluation, PartialOffer, RequestKind, plugin_request};
use crate::broker::Broker;
use crate::exact_test::ExactTestBudget;
use crate::foreign::{HostReply, Query};
use crate::pending_changes::Blocked;
use crate::plugin::{Offer, PluginRequest, ThreadScope, Verdict};
use crate::plugin_set::SpecSlot;
use crate::refuse::{refusal, refusal_without_numbers};
use crate::rules::Denial;
use crate::spec::ReplyTo;
use talea_core::Monotonic;
use talea_core::mutate;
use talea_proto::message::Notes;
use talea_proto::refusal::{PluginAnswer, PluginText, PluginVerdict, RejectionReason};
use talea_proto::{Code, Field, Refusal, Rejection, Reply, SpecId, Task};

/// Progress of an evaluation.
enum Progress {
    /// This foreign plugin must be asked first.
    Suspend(u32),
    /// A zero-lag hold ends at this time, and a plugin may serve the task then.
    Wait(Monotonic),
    /// This plugin serves the task on these terms.
    Chosen(u32, Offer),
    /// No plugin serves the task, or the evaluation was an explanation.
    Over,
}

/// Result of [`Broker::evaluate`] for one plugin.
enum PluginResult {
    Verdict(Verdict),
    Denied(Denial),
    /// The foreign plugin must be asked, or asked again.
    NotAsked,
}

impl Broker {
    /// Starts an evaluation. Returns a refusal if the task is invalid or names an unknown plugin.
    pub(crate) fn start_evaluation(
        &mut self,
        client: u32,
        task: &Task,
        scope: &ThreadScope,
        leaving: Option<(SpecId, u32)>,
        ask_all: bool,
    ) -> Result<Evaluation, Box<Refusal>> {
        crate::validate::validate(task, &self.platform.cpus)?;
        let (next, end) = match &task.plugin {
            None => (0, self.plugin_set.len() as u32),
            Some(name) => {
                let count = self.plugin_set.len() as u64;
                let unknown = || refusal(Code::UnknownPlugin, Field::Plugin, 0, count);
                let plugin = self.plugin_set.find(name).ok_or_else(unknown)?;
                (plugin, mutate!("plugin-named", plugin + 1, count as u32))
            }
        };
        let mut answers = std::mem::take(&mut self.buffers.answers);
        answers.clear();
        let scope = self.beside_executors(scope, leaving.map(|(_, slot)| slot));
        Ok(Evaluation {
            // No later decision depends on the thread's number.
            task: Task { thread: None, ..*task },
            scope,
            client,
            leaving,
            ask_all,
            next,
            end,
            answers,
            first_ok: None,
            partial: None,
            denial: None,
            asked_twice: false,
            was_suspended: false,
            wait_until: None,
        })
    }

    /// Runs the admission of a request until the request is answered, suspended or blocked by a
    /// change. `reply` is the reply of the foreign plugin for which the request was suspended.
    pub(crate) fn run_admission(
        &mut self,
        mut request: AdmissionRequest,
        mut reply: Option<HostReply>,
    ) {
        loop {
            if self.changes.is_any()
                && let Some(reply) = reply.take()
            {
                return self.changes.block(Blocked::Resume(Box::new(request), Some(reply)));
            }
            match self.query_plugins(&mut request.evaluation, &request.exact_tests, reply.take()) {
                Progress::Suspend(plugin) => {
                    self.wait_external(request.reply_to.session);
                    // The first tasks of a group may have changed other priorities; the plugin may
                    // take long.
                    self.apply_moves(&[]);
                    let session = self.sessions.get(&request.reply_to.session);
                    let uid = session.map_or(0, |session| session.uid);
                    return self.enqueue(plugin, uid, Query::Accept(Box::new(request)));
                }
                Progress::Wait(at) => {
                    self.apply_moves(&[]);
                    request.evaluation.was_suspended = true;
                    return self.wait_for_hold(at, request);
                }
                Progress::Chosen(plugin, offer) => {
                    if !self.accept_offer(&mut request, plugin, &offer) {
                        return;
                    }
                }
                Progress::Over => return self.refuse_unserved(request),
            }
        }
    }

    fn query_plugins(
        &mut self,
        evaluation: &mut Evaluation,
        exact_tests: &ExactTestBudget,
        mut reply: Option<HostReply>,
    ) -> Progress {
        while evaluation.next < evaluation.end {
            let plugin = evaluation.next;
            let said = match self.evaluate(evaluation, exact_tests, plugin, reply.as_ref()) {
                PluginResult::NotAsked => {
                    evaluation.asked_twice = reply.is_some();
                    evaluation.was_suspended = true;
                    return Progress::Suspend(plugin);
                }
                PluginResult::Denied(denial) => {
                    evaluation.note_denial(&denial);
                    PluginVerdict::Denied {
                        code: denial.code,
                        field: denial.field,
                        asked: denial.asked,
                        limit: denial.limit,
                    }
                }
                PluginResult::Verdict(Verdict::Ok(offer)) => {
                    if mutate!("message-explain", !evaluation.ask_all, true) {
                        return Progress::Chosen(plugin, offer);
                    }
                    let first = evaluation.first_ok.unwrap_or(plugin);
                    evaluation.first_ok = Some(mutate!("plugin-precedence", first, plugin));
                    let notes = self.notes_of_offer(evaluation, plugin, &offer);
                    PluginVerdict::Ok { cpu: offer.cpu, charge: offer.charge, notes }
                }
                PluginResult::Verdict(Verdict::Partial(offer)) => {
                    let answer = reply.as_ref().and_then(HostReply::answer);
                    evaluation.partial.get_or_insert(PartialOffer { plugin, offer, answer });
                    let notes = self.notes_of_offer(evaluation, plugin, &offer);
                    PluginVerdict::Partial { cpu: offer.cpu, charge: offer.charge, notes }
                }
                PluginResult::Verdict(Verdict::No(no)) => {
                    match self.beside_holds(evaluation, plugin, no) {
                        Ok(no) => PluginVerdict::No(no),
                        Err(at) => return Progress::Wait(at),
                    }
                }
            };
            evaluation.answers.push(PluginAnswer {
                plugin,
                name: self.plugin_name(plugin),
                verdict: said,
                text: reply.as_ref().map_or(PluginText::NONE, |reply| reply.text_of(&said)),
            });
            evaluation.next += 1;
            evaluation.asked_twice = false;
            reply = None;
        }
        if evaluation.ask_all {
            Progress::Over
        } else {
            self.accept_partial(evaluation, exact_tests)
        }
    }

    fn notes_of_offer(&self, evaluation: &Evaluation, plugin: u32, offer: &Offer) -> Notes {
        let (task, client) = (&evaluation.task, self.client_of(evaluation));
        let slot = self.leaving_slot(evaluation);
        self.enforcement_notes(plugin, task, offer.runtime, client, slot, offer.notes)
    }

    /// Accepts the first partial offer, if it is still valid.
    fn accept_partial(
        &mut self,
        evaluation: &mut Evaluation,
        exact_tests: &ExactTestBudget,
    ) -> Progress {
        let partial = evaluation.partial.take();
        let Some(partial) = mutate!("plugin-partial", partial, None) else {
            return Progress::Over;
        };
        if !evaluation.was_suspended {
            return Progress::Chosen(partial.plugin, partial.offer);
        }
        evaluation.asked_twice = true;
        let reply = partial.answer.map(|answer| HostReply::Answer(Box::new(answer)));
        let said = match self.evaluate(evaluation, exact_tests, partial.plugin, reply.as_ref()) {
            PluginResult::Verdict(Verdict::Ok(offer) | Verdict::Partial(offer)) => {
                return Progress::Chosen(partial.plugin, offer);
            }
            PluginResult::Verdict(Verdict::No(no)) => PluginVerdict::No(no),
            PluginResult::NotAsked => PluginVerdict::No(out_of_service()),
            PluginResult::Denied(Denial { code, field, asked, limit, .. }) => {
                PluginVerdict::Denied { code, field, asked, limit }
            }
        };
        if let Some(answer) =
            evaluation.answers.iter_mut().find(|answer| answer.plugin == partial.plugin)
        {
            answer.verdict = said;
        }
        Progress::Over
    }

    /// Checks the rules, then asks the plugin.
    fn evaluate(
        &mut self,
        evaluation: &Evaluation,
        exact_tests: &ExactTestBudget,
        plugin: u32,
        reply: Option<&HostReply>,
    ) -> PluginResult {
        let leaving = self.leaving_slot(evaluation);
        let holds = leaving.map(|slot| {
            let spec = self.specs.at(slot);
            (spec.plugin, self.ruled_charge(slot))
        });
        let client = leaving.map_or(evaluation.client, |slot| self.specs.at(slot).client);
        let snapshot = self.clients.snapshot(client);
        let cap = match self.rules.admit(snapshot, plugin, &evaluation.task, holds) {
            Ok(cap) => cap,
            Err(denial) => return PluginResult::Denied(denial),
        };
        let ask = plugin_request(&evaluation.task, cap, &evaluation.scope);
        let leaving = leaving.map(SpecSlot);
        let ask = PluginRequest { exact_tests: Some(exact_tests), ..ask };
        if !self.plugin_set.is_foreign(plugin) {
            let verdict = self.plugin_set.ask(plugin, &ask, leaving);
            if let Verdict::Ok(offer) | Verdict::Partial(offer) = &verdict {
                let leaving = leaving.map(|slot| slot.0);
                let task = &evaluation.task;
                if let Err(denial) = self.check_levels(client, plugin, task, offer, leaving) {
                    return PluginResult::Denied(denial);
                }
            }
            return PluginResult::Verdict(verdict);
        }
        if self.hosts[plugin as usize].is_failed() {
            return PluginResult::Verdict(Verdict::No(out_of_service()));
        }
        match reply {
            None => PluginResult::NotAsked,
            Some(HostReply::Failed) => PluginResult::Verdict(Verdict::No(out_of_service())),
            Some(HostReply::Answer(answer))
                if mutate!(
                    "plugin-foreign-stale",
                    answer.epoch != self.plugin_set.epoch() && !evaluation.asked_twice,
                    false
                ) =>
            {
                PluginResult::NotAsked
            }
            Some(HostReply::Answer(answer)) => {
                match self.plugin_set.check_answer(plugin, &ask, answer, leaving) {
                    Ok(verdict) => PluginResult::Verdict(verdict),
                    Err(lie) => {
                        self.plugin_out_of_bounds(plugin, &lie.0);
                        PluginResult::Verdict(Verdict::No(out_of_service()))
                    }
                }
            }
        }
    }

    /// Answers a request that no plugin serves, or an explanation.
    fn refuse_unserved(&mut self, request: AdmissionRequest) {
        let AdmissionRequest { reply_to, kind, mut evaluation, .. } = request;
        if let RequestKind::Explain = kind {
            let chosen = evaluation.first_ok.or(evaluation.partial.map(|partial| partial.plugin));
            let chosen = chosen
                .and_then(|plugin| evaluation.answers.iter().position(|a| a.plugin == plugin));
            // The same refusal that the request itself would receive.
            let refusal =
                if chosen.is_none() { Some(self.unserved_refusal(&evaluation)) } else { None };
            let answers = std::mem::take(&mut evaluation.answers);
            let reply = Reply::Explained { chosen: chosen.map(|at| at as u32), answers, refusal };
            return self.reply(reply_to, reply);
        }
        let mut refusal = self.unserved_refusal(&evaluation);
        self.recycle(&mut evaluation);
        match kind {
            RequestKind::Group { reserved, .. } => {
                refusal.index = reserved.len() as u32;
                self.unreserve(reserved);
            }
            RequestKind::Replace { facts, .. } => self.forget_unused(Some(Ok(*facts))),
            RequestKind::Create | RequestKind::Change { .. } | RequestKind::Explain => {}
        }
        self.refuse(reply_to, refusal);
    }

    /// Returns the client whose rules apply: for a change, the client of the spec, even if the
    /// superuser requests the change. The result may change while the request is suspended, because
    /// another client may claim the spec, or the spec may end.
    fn client_of(&self, evaluation: &Evaluation) -> u32 {
        self.leaving_slot(evaluation).map_or(evaluation.client, |slot| self.specs.at(slot).client)
    }

    /// Returns the slot of the spec to be replaced; `None` if there is no such spec, or if it ended
    /// while the request was suspended.
    pub(crate) fn leaving_slot(&self, evaluation: &Evaluation) -> Option<u32> {
        let (spec, slot) = evaluation.leaving?;
        if evaluation.was_suspended { self.ids.get(spec) } else { Some(slot) }
    }

    #[expect(clippy::unnecessary_box_returns, reason = "refusals travel boxed")]
    fn unserved_refusal(&self, evaluation: &Evaluation) -> Box<Refusal> {
        let all_denied = evaluation
            .answers
            .iter()
            .all(|answer| matches!(answer.verdict, PluginVerdict::Denied { .. }));
        let mut refusal = match &evaluation.denial {
            _ if !self.rules.allows_anything(self.clients.snapshot(self.client_of(evaluation))) => {
                refusal_without_numbers(Code::NotAllowed, Field::Request)
            }
            Some(denial) if all_denied => self.ruled_out(denial),
            _ => refusal_without_numbers(Code::NoPlugin, Field::Request),
        };
        refusal.answers.clone_from(&evaluation.answers);
        refusal
    }

    /// Returns the refusal of a denial, with the location of the rule.
    #[expect(clippy::unnecessary_box_returns, reason = "refusals travel boxed")]
    pub(crate) fn ruled_out(&self, denial: &Denial) -> Box<Refusal> {
        let mut refusal = refusal(denial.code, denial.field, denial.asked, denial.limit);
        refusal.rule = denial.rule.map(|rule| self.rules.origin(rule).to_owned());
        refusal
    }

    /// Keeps the buffers of a finished evaluation for the next one.
    pub(crate) fn recycle(&mut self, evaluation: &mut Evaluation) {
        self.buffers.answers = std::mem::take(&mut evaluation.answers);
    }

    /// Answers whether a task would be accepted, with the answer of every plugin, and changes
    /// nothing.
    pub(crate) fn explain(&mut self, reply_to: ReplyTo, task: &Task, scope: &ThreadScope) {
        let client = self.sessions[&reply_to.session].client;
        let evaluation =
            self.check_spec_quota(client, 1).and_then(|()| self.check_owner(client, task));
        match evaluation.and_then(|()| self.start_evaluation(client, task, scope, None, true)) {
            Ok(evaluation) => {
                let kind = RequestKind::Explain;
                self.run_admission(AdmissionRequest::new(reply_to, kind, evaluation), None);
            }
            Err(refusal) => {
                let refusal = Some(refusal);
                self.reply(
                    reply_to,
                    Reply::Explained { chosen: None, answers: Vec::new(), refusal },
                );
            }
        }
    }
}

/// Returns the rejection of a plugin that is out of service.
fn out_of_service() -> Rejection {
    Rejection {
        reason: RejectionReason::OutOfService,
        field: Field::Plugin,
        cpu: None,
        asked: 0,
        limit: 0,
        fits: 0,
        witness: None,
    }
}
