//! Change of a spec: other terms, possibly another plugin, in one step (R7).
//!
//! While the new attributes of an attached thread await the kernel's result, no other request
//! reserves. So the old terms still fit if the kernel refuses the new ones. The kernel switches the
//! thread directly to its new attributes, so the thread always has a real-time policy. The one
//! exception is a thread that sleeps in another root domain ([`deferred`](crate::deferred)).

use crate::admission::{AdmissionRequest, Evaluation, RequestKind, plugin_request};
use crate::broker::Broker;
use crate::input::{Effect, Errno, ForeignCall};
use crate::ownership::AccessKind;
use crate::plugin::{Offer, RuntimeCap, ThreadScope};
use crate::plugin_set::SpecSlot;
use crate::refuse::{ESRCH, kernel_refusal, refusal_without_numbers};
use crate::spec::{PendingOp, ReplyTo, Rollback};
use crate::starvation::is_fifo;
use crate::trail::AuditEvent;
use talea_core::Monotonic;
use talea_core::mutate;
use talea_proto::message::SpecId;
use talea_proto::{Code, Field, Granted, Reply, Task};

impl Broker {
    pub(crate) fn change(&mut self, reply_to: ReplyTo, id: SpecId, mut task: Task) {
        let slot = match self.find_idle(reply_to.session, id, AccessKind::Modify) {
            Ok(slot) => slot,
            Err(refusal) => return self.refuse(reply_to, refusal),
        };
        let client = self.sessions[&reply_to.session].client;
        task.owner = self.specs.at(slot).task.owner;
        task.exclusive = false;
        let scope = self.scope_of_spec(slot, &task);
        match self.start_evaluation(client, &task, &scope, Some((id, slot)), false) {
            Ok(evaluation) => {
                let kind = RequestKind::Change { spec: id };
                self.run_admission(AdmissionRequest::new(reply_to, kind, evaluation), None);
            }
            Err(refusal) => self.refuse(reply_to, refusal),
        }
    }

    pub(crate) fn accept_change(
        &mut self,
        reply_to: ReplyTo,
        id: SpecId,
        evaluation: &Evaluation,
        plugin: u32,
        offer: &Offer,
    ) {
        let task = &evaluation.task;
        let slot = match evaluation.unchanged_slot() {
            Some(slot) => slot,
            // The request was suspended for a foreign plugin.
            None => match self.find_idle(reply_to.session, id, AccessKind::Modify) {
                Ok(slot) => slot,
                Err(refusal) => return self.refuse(reply_to, refusal),
            },
        };
        let free_at = self.zero_lag(slot);
        let spec = self.specs.at(slot);
        let old_plugin = spec.plugin;
        let rollback = spec.thread.as_ref().map(|thread| Rollback {
            reply_to,
            task: spec.task,
            plugin: old_plugin,
            offer: spec.offer,
            applied: thread.applied,
        });
        self.set_terms(slot, task, plugin, offer, free_at);
        if let Some(rollback) = &rollback
            && let Some(until) = self.change_delay(slot, rollback)
        {
            self.roll_back(slot, rollback);
            return self.refuse(reply_to, self.starvation_refusal(until));
        }
        match rollback {
            Some(rollback) if self.plugin_set.attr(SpecSlot(slot)) != rollback.applied => {
                self.specs.at_mut(slot).step = PendingOp::Changing(Box::new(rollback));
                self.changes.begin();
                self.apply_moves(&[slot]);
            }
            _ => {
                mutate!("message-change-recorded", self.emit(Effect::WriteRecord { slot }));

                self.apply_moves(&[]);
                // The zero-lag hold of the old terms was not there when the offer was made.
                let granted = free_at.is_none().then(|| self.granted_from_offer(slot));
                self.changed(slot, reply_to, old_plugin, granted);
            }
        }
    }

    /// Returns the time before which the thread must not get the new attributes, because threads of
    /// its subject have starved a CPU that it does not use yet.
    fn change_delay(&self, slot: u32, rollback: &Rollback) -> Option<Monotonic> {
        let (old, new) = (&rollback.applied, self.plugin_set.attr(SpecSlot(slot)));
        let is_there = old.cpus.is_empty() || !new.cpus.is_empty() && new.cpus.is_subset(&old.cpus);
        if is_fifo(old.policy) && is_there { None } else { self.starvation_delay(slot, &new) }
    }

    pub(crate) fn set_terms(
        &mut self,
        slot: u32,
        task: &Task,
        plugin: u32,
        offer: &Offer,
        free_at: Option<Monotonic>,
    ) {
        self.stop_sharing(slot);
        self.forget_level(slot);
        let spec = self.specs.at_mut(slot);
        let snapshot = self.clients.snapshot(spec.client);
        self.rules.discharge(snapshot, spec.plugin, spec.offer.charge);
        self.rules.charge(snapshot, plugin, offer.charge);
        spec.task = *task;
        spec.plugin = plugin;
        spec.offer = *offer;
        self.forget_exclusive(slot);
        self.note_exclusive(slot);
        self.note_level(slot);
        self.plugin_set.replace(
            SpecSlot(slot),
            plugin,
            &plugin_request(task, RuntimeCap::default(), &ThreadScope::default()),
            offer,
            free_at,
        );
        self.start_sharing(slot);
        self.sync_limit(slot);
    }

    pub(crate) fn change_done(
        &mut self,
        slot: u32,
        rollback: &Rollback,
        result: Result<(), Errno>,
    ) {
        self.changes.end();
        match result {
            Ok(()) => {
                self.changed(slot, rollback.reply_to, rollback.plugin, None);
                self.apply_current(slot);
                self.release_if_unowned(slot);
            }
            Err(ESRCH) => {
                // The new terms stay in force, without a thread.
                let id = self.specs.at(slot).id;
                self.finish_thread_exit(slot);
                if self.ids.get(id) == Some(slot) {
                    self.changed(slot, rollback.reply_to, rollback.plugin, None);
                } else {
                    self.refuse(
                        rollback.reply_to,
                        refusal_without_numbers(Code::NoSuchThread, Field::Thread),
                    );
                }
            }
            Err(errno) => {
                self.roll_back(slot, rollback);
                self.refuse(rollback.reply_to, kernel_refusal(errno));
                self.release_if_unowned(slot);
            }
        }
    }

    /// Restores the old terms.
    pub(crate) fn roll_back(&mut self, slot: u32, rollback: &Rollback) {
        let (task, plugin, offer) = (&rollback.task, rollback.plugin, &rollback.offer);
        mutate!("message-change", self.set_terms(slot, task, plugin, offer, None));
        // Both terms may have the same attributes by now, so the order does not write it.
        self.emit(Effect::WriteRecord { slot });
        // The kernel may have applied a part, such as the CPUs without the policy.
        let attr = self.plugin_set.attr(SpecSlot(slot));
        self.order_apply(slot, attr);
        self.apply_moves(&[]);
    }

    /// Completes a change with the new terms; `granted` is the grant, if already known.
    pub(crate) fn changed(
        &mut self,
        slot: u32,
        reply_to: ReplyTo,
        old_plugin: u32,
        granted: Option<Granted>,
    ) {
        let changed = self.specs.at(slot);
        let (spec, uid, plugin) = (changed.id, changed.uid, changed.plugin);
        if plugin != old_plugin {
            self.notify_plugin(old_plugin, uid, ForeignCall::Release { spec });
        }
        let by = self.sessions.get(&reply_to.session).map(|session| session.uid);
        let cpu = self.specs.at(slot).offer.cpu;
        mutate!("trail-change", self.record_spec(slot, by, AuditEvent::Change { cpu }));
        self.notify_scheduled(slot);
        let granted = granted.unwrap_or_else(|| self.granted(slot));
        self.reply(reply_to, Reply::Granted(granted));
    }
}
