//! Creation of specs, single or as a group: reserve, then publish.
//!
//! A reserved spec has a ledger entry and a slot, but no id: it is invisible and not in the state
//! file. A group is published when its last task is reserved, or not at all.

use crate::admission::{AdmissionRequest, RequestKind, plugin_request};
use crate::broker::{Broker, WatchOwner};
use crate::exact_test::ExactTestBudget;
use crate::input::{Effect, ForeignCall, ProcessId};
use crate::plugin::{Offer, RuntimeCap, ThreadScope};
use crate::plugin_set::{Placement, SpecSlot};
use crate::refuse::{refusal, refusal_without_numbers};
use crate::spec::{Lifetime, PendingOp, ReplyTo, Spec};
use crate::trail::AuditEvent;
use talea_core::Monotonic;
use talea_core::mutate;
use talea_proto::message::{Notes, SpecId, Token};
use talea_proto::record::Record;
use talea_proto::{Code, Field, GROUP_MAX, Granted, Owner, Refusal, Reply, Task};

impl Broker {
    pub(crate) fn create(
        &mut self,
        reply_to: ReplyTo,
        task: &Task,
        scope: &ThreadScope,
        token: Token,
    ) {
        match self.start_first_evaluation(reply_to, 1, task, scope) {
            Ok(evaluation) => {
                let (kind, exact_tests) = (RequestKind::Create, ExactTestBudget::default());
                self.run_admission(
                    AdmissionRequest { reply_to, kind, token, evaluation, exact_tests },
                    None,
                );
            }
            Err(refusal) => self.refuse(reply_to, refusal),
        }
    }

    pub(crate) fn create_group(
        &mut self,
        reply_to: ReplyTo,
        tasks: Vec<Task>,
        scope: &ThreadScope,
        token: Token,
    ) {
        let count = tasks.len();
        if count == 0 || count > GROUP_MAX {
            let limit = if count == 0 { 1 } else { GROUP_MAX as u64 };
            return self
                .refuse(reply_to, refusal(Code::Malformed, Field::Group, count as u64, limit));
        }
        // Invalid tasks are refused before anything is reserved, at any position in the group.
        for (index, task) in tasks.iter().enumerate().skip(1) {
            if let Err(mut refusal) = crate::validate::validate(task, &self.platform.cpus) {
                refusal.index = index as u32;
                return self.refuse(reply_to, refusal);
            }
        }
        match self.start_first_evaluation(reply_to, count as u32, &tasks[0], scope) {
            Ok(evaluation) => {
                let kind = RequestKind::Group { tasks, reserved: Vec::with_capacity(count) };
                let exact_tests = ExactTestBudget::default();
                self.run_admission(
                    AdmissionRequest { reply_to, kind, token, evaluation, exact_tests },
                    None,
                );
            }
            Err(refusal) => self.refuse(reply_to, refusal),
        }
    }

    fn start_first_evaluation(
        &mut self,
        reply_to: ReplyTo,
        count: u32,
        task: &Task,
        scope: &ThreadScope,
    ) -> Result<crate::admission::Evaluation, Box<Refusal>> {
        let client = self.sessions[&reply_to.session].client;
        self.check_spec_quota(client, count)?;
        self.check_owner(client, task)?;
        self.start_evaluation(client, task, scope, None, false)
    }

    /// Checks that `count` more specs of this client are within the quota of its subject and within
    /// the quota of all users.
    pub(crate) fn check_spec_quota(&self, client: u32, count: u32) -> Result<(), Box<Refusal>> {
        let quota = &self.setup.quota;
        let subject = self.subject_of_specs(self.clients.peer(client).uid);
        let (_, own) = self.users.usage(subject);
        let all = self.specs.len();
        for (held, limit) in [(own, quota.specs_per_user), (all, quota.specs)] {
            if mutate!(
                "quota-specs",
                held.saturating_add(count) > limit,
                false && held.saturating_add(count) > limit
            ) {
                return Err(refusal(
                    Code::Quota,
                    Field::Specs,
                    u64::from(held) + u64::from(count),
                    limit.into(),
                ));
            }
        }
        Ok(())
    }

    /// Checks the owner: a process in another PID namespace cannot own a spec.
    pub(crate) fn check_owner(&self, client: u32, task: &Task) -> Result<(), Box<Refusal>> {
        match task.owner {
            Owner::Process if self.clients.peer(client).pid == 0 => {
                Err(refusal_without_numbers(Code::Malformed, Field::Owner))
            }
            _ => Ok(()),
        }
    }

    /// Accepts a chosen offer. Returns true if a group is incomplete: `request` then evaluates the
    /// next task of the group.
    pub(crate) fn accept_offer(
        &mut self,
        request: &mut AdmissionRequest,
        plugin: u32,
        offer: &Offer,
    ) -> bool {
        let AdmissionRequest { reply_to, kind, token: first, evaluation, .. } = request;
        let (reply_to, first) = (*reply_to, *first);
        self.recycle(evaluation);
        match kind {
            RequestKind::Explain => unreachable!("an explanation chooses no plugin"),
            RequestKind::Change { spec } => {
                self.accept_change(reply_to, *spec, evaluation, plugin, offer);
            }
            RequestKind::Replace { spec, named, facts } => {
                self.accept_replacement(reply_to, *spec, *named, **facts, plugin, offer);
            }
            RequestKind::Create => {
                match self.reserve(reply_to, &evaluation.task, plugin, offer, first) {
                    Ok(slot) => {
                        self.publish(reply_to, slot);
                        let granted = self.granted_from_offer(slot);
                        self.apply_moves(&[]);
                        self.reply(reply_to, Reply::Granted(granted));
                    }
                    Err(refusal) => self.refuse(reply_to, refusal),
                }
            }
            RequestKind::Group { tasks, reserved } => {
                let index = reserved.len();
                let token = first.of_group(index);
                let reserved_slot = self.reserve(reply_to, &evaluation.task, plugin, offer, token);
                let next = reserved_slot.and_then(|slot| {
                    reserved.push(slot);
                    let Some(task) = tasks.get(index + 1) else { return Ok(None) };
                    let client = self.sessions[&reply_to.session].client;
                    self.check_owner(client, task)?;
                    self.start_evaluation(client, task, &evaluation.scope, None, false).map(Some)
                });
                match next {
                    Ok(Some(next)) => {
                        *evaluation = next;
                        return true;
                    }
                    Ok(None) => {
                        let granted = reserved.iter().map(|&slot| {
                            self.publish(reply_to, slot);
                            self.granted(slot)
                        });
                        let granted = granted.collect();
                        self.apply_moves(&[]);
                        self.reply(reply_to, Reply::GrantedGroup(granted));
                    }
                    Err(mut refusal) => {
                        refusal.index = reserved.len() as u32;
                        let reserved = std::mem::take(reserved);
                        mutate!("message-create-group-native", self.unreserve(reserved));
                        self.refuse(reply_to, refusal);
                    }
                }
            }
        }
        false
    }

    /// Reserves an offer. The quota is checked again, because a foreign plugin may have answered
    /// late.
    fn reserve(
        &mut self,
        reply_to: ReplyTo,
        task: &Task,
        plugin: u32,
        offer: &Offer,
        token: Token,
    ) -> Result<u32, Box<Refusal>> {
        let session = &self.sessions[&reply_to.session];
        let (client, uid, process) = (session.client, session.uid, session.process);
        self.check_spec_quota(client, 1)?;
        self.record_room.check(self.specs.next_slot())?;
        let subject = self.subject_of_specs(uid);
        let spec = Spec {
            id: SpecId(0),
            token,
            uid,
            subject,
            lifetime: Lifetime::of(process),
            client,
            session: None,
            task: *task,
            in_ledger: true,
            plugin,
            offer: *offer,
            detached: None,
            thread: None,
            zero_lag_until: Monotonic::ZERO,
            step: PendingOp::Idle,
        };
        let slot = self.specs.insert(spec);
        self.plugin_set.admit(
            plugin,
            SpecSlot(slot),
            &plugin_request(task, RuntimeCap::default(), &ThreadScope::default()),
            offer,
        );
        self.rules.charge(self.clients.snapshot(client), plugin, offer.charge);
        self.clients.acquire(client);
        self.users.account(subject).specs += 1;
        self.note_exclusive(slot);
        self.note_level(slot);
        Ok(slot)
    }

    /// Releases reservations, last one first.
    pub(crate) fn unreserve(&mut self, reserved: Vec<u32>) {
        for slot in reserved.into_iter().rev() {
            self.forget_exclusive(slot);
            self.forget_level(slot);
            let spec = self.specs.remove(slot).expect("the slot was reserved");
            self.plugin_set.release(SpecSlot(slot), None);
            self.rules.discharge(
                self.clients.snapshot(spec.client),
                spec.plugin,
                spec.offer.charge,
            );
            self.users.account(spec.subject).specs -= 1;
            self.clients.release(spec.client);
        }
        self.apply_moves(&[]);
    }

    /// Publishes a reserved spec: assigns its id, binds it to the session and orders its record.
    fn publish(&mut self, reply_to: ReplyTo, slot: u32) {
        let id = SpecId(self.next_id);
        self.next_id += 1;
        self.ids.insert(id, slot);
        let spec = self.specs.at(slot);
        self.users.insert_id(spec.uid, id, spec.token, slot);
        self.bind_to_session(reply_to.session, slot);
        let spec = self.specs.at_mut(slot);
        spec.id = id;
        let (owner, process) = (spec.task.owner, spec.lifetime.process);
        if owner == Owner::Process {
            spec.lifetime.process_watched = true;
            self.watch_process(process, WatchOwner::Spec(slot));
        }
        mutate!("message-create", self.emit(Effect::WriteRecord { slot }));

        let cpu = self.specs.at(slot).offer.cpu;
        let by = self.clients.front_end(self.sessions[&reply_to.session].client);
        mutate!("trail-grant", self.record_spec(slot, by, AuditEvent::Grant { cpu }));
        self.notify_scheduled(slot);
    }

    /// Notifies a foreign plugin of a spec that it now serves.
    pub(crate) fn notify_scheduled(&mut self, slot: u32) {
        let spec = self.specs.at(slot);
        if self.plugin_set.is_foreign(spec.plugin) {
            let question = ForeignCall::Schedule {
                spec: spec.id,
                task: spec.task,
                cpu: spec.offer.cpu,
                cpus: self.plugin_set.attr(SpecSlot(slot)).cpus,
                priority: spec.offer.priority,
                runtime: spec.offer.runtime,
                terms: self.plugin_set.terms(SpecSlot(slot)),
            };
            self.notify_plugin(spec.plugin, spec.uid, question);
        }
    }

    /// Returns the grant of a spec.
    pub(crate) fn granted(&self, slot: u32) -> Granted {
        self.granted_with(slot, &self.plugin_set.placement(SpecSlot(slot)))
    }

    /// Returns the grant of a spec directly after its offer was accepted: see
    /// [`PluginSet::placement_from_offer`].
    ///
    /// [`PluginSet::placement_from_offer`]: crate::plugin_set::PluginSet::placement_from_offer
    pub(crate) fn granted_from_offer(&self, slot: u32) -> Granted {
        self.granted_with(
            slot,
            &self.plugin_set.placement_from_offer(SpecSlot(slot), &self.specs.at(slot).offer),
        )
    }

    fn granted_with(&self, slot: u32, placed: &Placement) -> Granted {
        let spec = self.specs.at(slot);
        let (runtime, client) = (spec.offer.runtime, spec.client);
        let notes = self.enforcement_notes(
            spec.plugin,
            &spec.task,
            runtime,
            client,
            Some(slot),
            placed.notes,
        );
        let is_asleep = spec.thread.as_ref().is_some_and(|thread| thread.attempts.asleep > 0);
        let pending = if is_asleep { Notes::PENDING_WAKEUP } else { Notes::default() };
        let is_asked = self.clients.has_front_end(client);
        let origin = if is_asked { Notes::FRONT_END } else { Notes::default() };
        Granted {
            spec: spec.id,
            token: spec.token,
            plugin: placed.plugin,
            cpu: placed.cpu,
            runtime: placed.runtime,
            charge: placed.charge,
            priority: placed.priority,
            mechanism: placed.mechanism,
            granularity: self.enforcement_granularity(slot, placed),
            notes: notes.with(origin).with(mutate!(
                "broker-change-note",
                pending,
                Notes::default()
            )),
        }
    }
}

impl Spec {
    /// Returns the persistent record of the spec.
    pub(crate) fn record(
        &self,
        plugin: talea_proto::message::Name,
        is_from_front_end: bool,
    ) -> Record {
        let ProcessId { pid, start } = self.lifetime.process;
        Record {
            spec: self.id,
            token: self.token,
            uid: self.uid,
            pid,
            pid_start: start,
            task: self.task,
            plugin,
            cpu: self.offer.cpu,
            runtime: self.offer.runtime,
            charge: self.offer.charge,
            priority: self.offer.priority,
            terms: self.offer.terms,
            thread: self.thread.as_ref().map(|thread| thread.record()),
            is_from_front_end,
        }
    }
}
